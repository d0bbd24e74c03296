"""Read the values of a platform's or a team's release, and run the checks that do not need Helm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launcher import plugins
from launcher.config.checks import rules as checks
from launcher.config.checks.problems import ERROR, CheckContext, Problem
from launcher.config.checks.schema import Violation, violations
from launcher.config.checks.value_rules import value_rules
from launcher.config.plan import CheckFailed
from launcher.config.suggest import closest, join_or
from launcher.config.values import files as values_files
from launcher.config.values.tree import Node, Values, dotted, set_value, with_defaults
from launcher.errors import LauncherError

_KINDS = {"ray-cluster": "cluster", "serve": "serve"}
"""The kind in the table of rules of each chart that is not of a run."""

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z0-9_/-]+)*")


def load(chart: str, files: Sequence[str], sets: Sequence[str]) -> tuple[Values, Values]:
    """Return the user's values and the effective values.

    The chart itself checks the rules that calculate, and Helm reports their sentences: see `of_chart`.

    Raises LauncherError if there are no values. Raises CheckFailed, with file and line of each problem, if the values
    violate the schema or a rule of charts/_rules.json, or if a served model does not fit its slice.
    """

    user = values_files.load(files, sets)
    if not user.tree:
        raise LauncherError("No values are given: use -f FILE or --set.")
    if chart == "queues":
        user = without_cluster(user)
    effective = effective_of(chart, user)
    if chart in _KINDS:
        _fail(broken_rules(chart, user, effective))
    _fail([problem for hook in plugins.hooks(f"rules {chart}") for problem in hook(CheckContext(user, effective))])
    return user, effective


def broken_rules(chart: str, user: Values, effective: Values) -> list[Problem]:
    """Return the problems of a Ray cluster or a served model that charts/_rules.json finds in valid values."""
    case = CheckContext(user, effective)
    case.tree, case.release = {"common": case.tree["common"], **checks.own_values(chart, case.tree)}, _KINDS[chart]
    return [problem for _, rule in value_rules() for problem in rule(case)]


def _fail(problems: Sequence[Problem]) -> None:
    if problems:
        raise CheckFailed(sorted(problems, key=lambda p: (p.file is None, p.file or "", p.line or 0, p.key)))


def without_cluster(user: Values) -> Values:
    """Return the values of charts/queues among the values of launcher cluster.

    On Autopilot, a flavor with an accelerator selects the nodes of the ComputeClass with its name.
    """
    tree = user.tree
    cluster = tree.get("gke")
    if not isinstance(cluster, dict):
        return user
    kept = Values(Node({key: node for key, node in user.root.value.items() if key != "gke"}, user.root.origin))
    flavors = tree.get("flavors")
    if cluster.get("mode") != "autopilot" or not isinstance(flavors, dict):
        return kept
    for name, flavor in flavors.items():
        if isinstance(flavor, dict) and flavor.get("accelerator") not in (None, "cpu"):
            path = ("flavors", name, "nodeLabels", "cloud.google.com/compute-class")
            origin = user.origin(("flavors", name)) or user.root.origin
            kept = set_value(kept, path, name, origin)
    return kept


def effective_of(chart: str, user: Values) -> Values:
    """Return the effective values. Raises CheckFailed if the values violate the schema."""
    effective = with_defaults(user, values_files.chart_defaults(chart))
    _fail(list(_problems(chart, CheckContext(user, effective))))
    return effective


def of_chart(sentence: str, user: Values) -> Problem:
    """Return a chart's sentence as a problem of the key that it begins with."""
    path = match[0].split(".") if (match := _KEY.match(sentence)) else []
    origin = user.origin(path) if path else None
    file, line, key = (origin.file, origin.line, dotted(path)) if origin else (None, None, "")
    return Problem("chart", ERROR, sentence, file, line, key)


def _problems(chart: str, case: CheckContext) -> Iterator[Problem]:
    schema = checks.schema(chart)
    own = checks.chart_violations(chart, case.tree)
    tables = case.tree.get("common")
    common = violations(checks.schema("common"), tables, ("common",)) if isinstance(tables, dict) else ()
    yield from (problem_of(violation, schema, case) for violation in [*own, *common])


def problem_of(violation: Violation, schema: Mapping[str, Any], case: CheckContext) -> Problem:
    """Return the violation of a schema as a problem, with a suggestion for an unknown key."""
    key, unknown = dotted(violation.path), violation.rule == "unknown-key"
    message = f"unknown key {key}{_belongs(schema, violation.path)}" if unknown else f"{key} {violation.says}"
    return case.problem(violation.rule, violation.path, message)


def _belongs(schema: object, path: Sequence[str]) -> str:
    """Return the end of the message on an unknown key: the closest sibling key, or all of them."""
    *above, key = path
    siblings = [name for name in _keys(schema, above) if name != "global"]
    if near := closest(key, siblings):
        return f"; did you mean {dotted([*above, near[0]])}?"
    if not above and key in checks.schema("run")["properties"]:
        return "; it is a key of a run: launcher check -f FILE."
    return f"; {dotted(above) or 'the top level'} has {join_or(siblings, 'and')}." if siblings else "."


def _keys(schema: object, path: Sequence[str]) -> list[str]:
    node = schema if isinstance(schema, dict) else {}
    for part in path:  # an entry can have any name
        node = node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
        if not isinstance(node, dict):
            return []
    return list(node.get("properties", {}))
