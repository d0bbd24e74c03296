"""The product `sweeps`: `launcher submit --sweep`, and the commands for the runs of a sweep."""

from __future__ import annotations

from launcher.plugins import Product

PRODUCT = Product(
    title="Train",
    package="launcher.products.sweeps",
    commands={},
    api=dict.fromkeys(
        (
            *("plan_sweep", "preview_sweep", "submit_sweep", "find_sweep", "sweep"),
            *("wait_sweep", "cancel_sweep", "delete_sweep"),
        ),
        "launcher.products.sweeps.api",
    ),
    hooks={"sweep_verb": "launcher.products.sweeps.verbs:verb"},
)
