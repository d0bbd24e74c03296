"""Explain: runs, this machine and the cluster. Changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.backends.lookup import find_run, no_run
from launcher.errors import LauncherError
from launcher.hooks import cluster_findings, explained_object, sick_nodes
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.diagnose.doctor import Finding
    from launcher.diagnose.explain.finding import Explanation


def explain(name: str, *, target: Target = DEFAULT_TARGET) -> Explanation:
    """Return why the run is in its state: a sentence, the evidence, and suggestions. Changes nothing.

    Raises IsSweep, which has the runs, if the name is that of a sweep. Explains an object in a queue that Slipway did
    not create, too, if no run has the name.
    """
    from launcher.diagnose.explain.explanation import explain_run

    run = find_run(name.removeprefix("run/"), target, summary=True)
    if run is not None:
        explanation = explain_run(*run)
        nodes, more = sick_nodes(*run)
        evidence, suggestions = (*explanation.evidence, *nodes), (*explanation.suggestions, *more)
        return replace(explanation, evidence=evidence, suggestions=suggestions)
    explained = explained_object(target, name)
    if explained is None:
        raise no_run(name, target)
    return explained


def doctor(target: Target = DEFAULT_TARGET, files: Sequence[str] = (), sets: Sequence[str] = ()) -> list[Finding]:
    """Check this machine and the cluster of `target`: return what works, what does not, and how to fix it.

    `files` and `sets` are values for `launcher cluster`; the cluster on Google Cloud is compared with them. Changes
    nothing. A check for which this user lacks the rights is a finding of level `unknown`.
    """

    from launcher.diagnose.doctor import examine

    findings = examine(target)
    if files or sets:
        compared = cluster_findings(files, sets)
        if compared is None:
            raise LauncherError(
                "No installed package of the launcher creates clusters, so the values cannot be compared with one.",
                "Leave out -f.",
            )
        findings += compared
    return findings
