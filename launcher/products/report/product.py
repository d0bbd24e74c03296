"""The product `report`: runs as an HTML page, and in TensorBoard."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Report",
    package="launcher.products.report.cli",
    commands={
        "report": Command(
            "Write a report that compares runs, as one HTML page.",
            ("launcher report llama llama-2 --open",),
            "docs/how-to/view-metrics.md",
        ),
        "tensorboard": Command(
            "Serve TensorBoard for runs on this machine, until Ctrl-C.",
            ("launcher tensorboard first",),
            "docs/how-to/view-metrics.md",
        ),
    },
    api={
        **dict.fromkeys(("report", "tensorboard"), "launcher.products.report.api"),
    },
)
