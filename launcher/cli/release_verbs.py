"""Show the changes of a release, ask for confirmation, and apply them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from launcher import api
from launcher.cli import output
from launcher.cli.options import confirm
from launcher.errors import LauncherError
from launcher.helm import diff
from launcher.k8s.client import lacks_namespace

if TYPE_CHECKING:
    from launcher.releases.install import ReleasePlan


def apply(plan: ReleasePlan, form: str, *, dry_run: bool, yes: bool, timeout: float | None, force: bool = False) -> int:
    """Print the plan and apply it, unless `dry_run` is set or the user refuses. Return the command's exit code.

    Waits at most `timeout` seconds until the release is ready; None is the default of the chart.
    Without `force`, a plan that removes what runs use is refused.
    """
    if lacks_namespace(plan.cluster):
        message = f"The namespace {plan.namespace} does not exist in {plan.cluster.name}; nothing was changed."
        raise LauncherError(message, f"kubectl create namespace {plan.namespace}, or choose another with -n.")
    output.narrate(plan.description, *diff.lines(plan.changes), *plan.notes)
    output.narrate(f"Objects: {diff.summary(plan.changes)}.")
    if dry_run:
        output.narrate(*filter(None, [plan.recovery]), "Nothing was changed.")
        output.emit(plan.as_json(), form, "")
        return 0
    refused = plan.users.losing and not force
    asks = plan.changed and not yes and not refused and sys.stdin.isatty()
    if asks and not confirm("Apply these changes?", "Nothing was changed."):
        return 1
    missing = api.install(plan, output.narrate, force=force, seconds=timeout)
    state = "installed, but not ready yet; run the same command again to check" if missing else "ready"
    output.narrate(*missing, f"The release {plan.name} is {'installed' if timeout == 0 and not missing else state}.")
    output.emit({**plan.as_json(), "notReady": missing}, form, "")
    return int(bool(missing))
