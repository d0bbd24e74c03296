"""The verbs of the core and of the products, and their one-line helps, without importing any."""

from __future__ import annotations

import functools

from launcher import plugins
from launcher.cli import output

_GROUPS = {
    "Train": {
        "submit": "Check the values, start the run, and follow it until it ends.",
        "list": "List the runs of this machine and of the namespace.",
        "status": "Show the status of a run, a sweep, a served model or a long-lived Ray cluster.",
        "logs": "Print the output of a run's current attempt, or of a served model.",
        "attach": "Follow a run or a sweep again, until it ends.",
        "wait": "Wait until a run ends, or all runs of a sweep.",
        "cancel": "Stop runs or sweeps, and release their resources.",
        "delete": "Delete runs that have ended, or all runs of a sweep.",
    },
    "Understand": {
        "explain": "Explain why a run waits or failed, or why a served model does not answer, and how to fix it.",
        "doctor": "Check whether this machine and the cluster can start runs.",
    },
    "Values": {
        "presets": "List the presets: models, slices, queues, clusters, tutorials, tuned runs.",
        "init": "Write a values file for a run on this machine, or for all runs of your namespace.",
        "values": "Print the values files and --set, merged and not validated.",
        "check": "Check the values against all rules that need no chips.",
        "render": "Print the manifests that submit would create.",
        "diff": "Show what submit or install would change in the cluster.",
    },
    "Platform": {
        "install": "Install or upgrade a platform's queues, a Ray cluster or a served model.",
        "uninstall": "Remove a release of queues or of a Ray cluster.",
    },
    "Shell": {
        "completion": "Print the completion script for a shell.",
    },
}
"""The core's verbs and their one-line helps, in the groups of `launcher --help`, which imports no verb. A test compares
them with the verbs' own."""


CORE = {verb for verbs in _GROUPS.values() for verb in verbs}


@functools.cache
def groups() -> dict[str, dict[str, str]]:
    """Return the verbs and their one-line helps by group: those of the core, then those of each product."""
    found = {title: dict(verbs) for title, verbs in _GROUPS.items()}
    output.narrate(*(f"Warning: {problem}" for problem in plugins.problems()))
    for product in plugins.products():
        added = {verb: command.help for verb, command in product.commands.items() if verb not in CORE}
        for verb in sorted(product.commands.keys() & CORE):
            output.narrate(f'Warning: The command "{verb}" of {product.package} is left out: the launcher has it.')
        found.setdefault(product.title, {}).update(added)
    return {title: group for title, group in found.items() if group}


def verbs() -> dict[str, str]:
    """Return all verbs and their one-line helps."""
    return {verb: text for group in groups().values() for verb, text in group.items()}
