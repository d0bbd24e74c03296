"""The product `inspect`: look into runs while they work."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Understand",
    package="launcher.products.inspect.cli",
    commands={
        "profile": Command(
            "Record a profile of the next steps of a run.",
            ("launcher profile first --steps 5",),
            "docs/how-to/view-metrics.md",
        ),
        "shell": Command(
            "Open a shell in the pod of a host of a run, or run a command there.",
            ("launcher shell llama --worker 1",),
            "docs/how-to/run-on-a-cluster.md",
        ),
    },
    api=dict.fromkeys(("profile", "shell"), "launcher.products.inspect.api"),
    instead_of=dict.fromkeys(("exec", "ssh"), "launcher shell"),
)
