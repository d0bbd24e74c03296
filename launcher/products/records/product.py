"""The product `records`: what is left of a run when it is over."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Understand",
    package="launcher.products.records.cli",
    commands={
        "record": Command(
            "Write the records of the runs of a cluster.",
            ("launcher record gs://research-records -n research", "launcher record ./records --all-namespaces"),
            "docs/how-to/keep-records.md",
        ),
    },
    api={
        **dict.fromkeys(("read_records", "record_runs"), "launcher.products.records.api"),
        "download_logs": "launcher.products.records.logs",
    },
    hooks={
        "stored_log": "launcher.products.records.logs:stored_log",
        "ended": "launcher.products.records.followed:ended",
    },
)
