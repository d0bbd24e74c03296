"""The product `fleet`: who used which chips, what waited, what was lost, and what it cost."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Fleet",
    package="launcher.products.fleet.cli",
    commands={
        "fleet": Command(
            "Show chip-hours, waits, preemptions and cost of all runs, by team, user and flavor.",
            ("launcher fleet --since 7d", "launcher fleet --since 2026-11-01 --until 2026-12-01 -o csv > november.csv"),
            "docs/how-to/see-the-fleet.md",
        ),
        "board": Command(
            "Serve a live page of queues and runs on a local port, until Ctrl-C.",
            ("launcher board", "launcher board -A --port 8800"),
            "docs/how-to/see-the-fleet.md",
        ),
        "top": Command(
            "Show queues and runs in the terminal, and update them.",
            ("launcher top", "launcher top -A"),
            "docs/how-to/see-the-fleet.md",
        ),
    },
    api=dict.fromkeys(("fleet", "board", "top"), "launcher.products.fleet.api"),
    instead_of=dict.fromkeys(("usage", "chargeback", "billing", "costs"), "launcher fleet"),
)
