"""Submit a run that another verb plans: an export or an import in a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from launcher import api
from launcher.cli import follow, output
from launcher.config.plan import LaunchPlan, without_defaults
from launcher.k8s.target import Target


def sets_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--set`, for values that override those of the run."""
    return click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set one value of the run in the cluster that does it; may be repeated.",
    )(command)


def detach_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--detach` and `--dry-run`."""
    command = click.option(
        "--dry-run", is_flag=True, help="In a cluster: print the run config and what would happen, and create nothing."
    )(command)
    return click.option(
        "--detach", is_flag=True, help="In a cluster: return once the run was submitted, instead of following it."
    )(command)


def submit(plan: LaunchPlan, target: Target, form: str, *, detach: bool, dry_run: bool) -> int:
    """Submit the plan, and follow the run until it ends. A run of the same name that has ended is replaced."""
    words = plan.config["run"]["command"]
    written = words[words.index("--to") + 1]
    backend = api.backend_for(plan, target)
    backend.report_progress = output.narrate
    if dry_run:
        preview = backend.preview(plan, accept_changes=True)
        output.narrate(preview.message)
        config = without_defaults(preview.config) if form == "text" else preview.config
        output.emit(config, "yaml" if form == "text" else form, "")
        return 0
    output.narrate(f"Submitting to {backend.description}.")
    submission = backend.submit(plan, accept_changes=True)
    output.narrate(submission.message, f"It writes {written}.")
    status = submission.status
    if detach:
        if not status.state.ended:
            output.narrate(follow.come_back(status, target))
        output.emit(status.as_json(), form, "")
        return 0
    return follow.to_the_end(backend, status, target, form)
