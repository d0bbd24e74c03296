"""The product `drill`: break a small training on purpose, and show what each fault costs."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Understand",
    package="launcher.products.drill.cli",
    commands={
        "drill": Command(
            "Break a small training on this machine in several ways, and show what each fault costs.",
            ("launcher drill", "launcher drill --fault worker-killed --fault stopped --to certificate.json"),
            "docs/how-to/drill.md",
        ),
    },
    api={"drill": "launcher.products.drill.api"},
    instead_of=dict.fromkeys(("chaos", "fault-injection"), "launcher drill"),
)
