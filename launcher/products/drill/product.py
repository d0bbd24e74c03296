"""The product `drill`: break a small training on purpose, and show what each fault costs."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Understand",
    package="launcher.products.drill.cli",
    commands={
        "drill": Command(
            "Break a small training in several ways, here or in a cluster, and show what each fault costs.",
            (
                "launcher drill",
                "launcher drill --fault worker-killed --fault stopped --to certificate.json",
                "launcher drill -n research -f run.yaml",
            ),
            "docs/how-to/drill.md",
        ),
    },
    api={"drill": "launcher.products.drill.api"},
    instead_of=dict.fromkeys(("chaos", "fault-injection"), "launcher drill"),
)
