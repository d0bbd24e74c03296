"""An example of each verb of the core, and the page that describes it, for the end of the verb's help."""

from __future__ import annotations

from launcher import plugins

_EXAMPLES = {
    "submit": (
        "launcher submit quickstart --name first",
        "launcher submit models/llama3.1-8b slices/v6e-4x4 team.yaml --name llama --detach",
        "docs/tutorial/1-laptop.md",
    ),
    "list": ("launcher list --all-namespaces", "docs/quick-reference.md"),
    "status": ("launcher status llama", "docs/how-to/run-on-a-cluster.md"),
    "logs": ("launcher logs llama -f --worker 1", "launcher logs llama --tail 20", "docs/how-to/run-on-a-cluster.md"),
    "attach": ("launcher attach llama", "docs/how-to/run-on-a-cluster.md"),
    "wait": ("launcher wait llama --timeout 2h", "docs/how-to/run-on-a-cluster.md"),
    "cancel": ("launcher cancel llama", "docs/how-to/resume-a-run.md"),
    "delete": (
        "launcher delete llama",
        'launcher delete "demo-*" --older-than 7d --dry-run',
        "docs/quick-reference.md",
    ),
    "explain": ("launcher explain llama", "docs/how-to/debug-a-pending-run.md"),
    "doctor": ("launcher doctor", "docs/how-to/run-on-a-cluster.md"),
    "presets": ("launcher presets v6e", "launcher presets models -o json", "docs/how-to/override-preset-values.md"),
    "init": ("launcher init --local", "launcher init --out team.yaml -n research", "docs/reference/environment.md"),
    "values": (
        "launcher values quickstart mine.yaml --origins",
        "launcher values queues queues/one-team --all",
        "docs/how-to/override-preset-values.md",
    ),
    "check": (
        "launcher check quickstart mine.yaml",
        "launcher check queues queues/three-teams",
        "docs/reference/checks.md",
    ),
    "render": (
        "launcher render models/llama3.1-8b slices/v6e-4x4 team.yaml --name llama",
        "launcher render queues queues/three-teams",
        "docs/how-to/override-preset-values.md",
    ),
    "diff": ("launcher diff queues queues.yaml", "docs/how-to/install-and-upgrade.md"),
    "install": (
        "launcher install queues queues.yaml --dry-run",
        "launcher install ray-cluster shared team.yaml",
        "docs/how-to/install-and-upgrade.md",
    ),
    "uninstall": ("launcher uninstall shared", "docs/how-to/install-and-upgrade.md"),
    "completion": ('eval "$(launcher completion bash)"', "docs/quick-reference.md"),
}
"""The commands, and the page, by verb."""


def of(verb: str) -> tuple[tuple[str, ...], str]:
    """Return the example commands of a verb, and the page that describes it."""
    product = None if verb in _EXAMPLES else plugins.product_of(verb)
    if product is not None:
        added = product.commands[verb]
        return tuple(added.examples), added.page
    *commands, page = _EXAMPLES[verb]
    return tuple(commands), page


def epilog(verb: str) -> str:
    """Return the end of a verb's help, as click formats it: its examples, and its page."""
    commands, page = of(verb)
    title = "Examples:" if len(commands) > 1 else "Example:"
    shown = ["\b", title, *(f"  {command}" for command in commands), ""] if commands else []
    return "\n".join([*shown, *([f"Page: {page}"] if page else [])])
