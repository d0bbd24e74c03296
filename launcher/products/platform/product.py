"""The product `platform`: quota, queues and teams of a cluster, for those who run it."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Understand",
    package="launcher.products.platform.cli",
    commands={
        "queues": Command(
            "Show quota, use and waiting runs of the queues, by queue and team.",
            ("launcher queues -n research", "launcher queues -A -o json"),
            "docs/how-to/share-a-cluster.md",
        ),
    },
    api={"queues": "launcher.products.platform.api"},
    hooks={
        "queue_backend": "launcher.products.platform.foreign:QueueBackend",
        "foreign_object": "launcher.products.platform.foreign:named",
        "explained_object": "launcher.products.platform.explain:explain",
        "sick_nodes": "launcher.products.platform.sick_nodes:sick_nodes",
        "doctor": "launcher.products.platform.doctor.checks:examine",
    },
)
