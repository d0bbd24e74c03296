"""The product `gke`: GKE clusters."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Google Cloud",
    package="launcher.products.gke.cli",
    commands={
        "cluster": Command(
            "Plan, create, change and delete a GKE cluster for the queues.",
            (
                "launcher cluster plan -f cluster.yaml -f queues.yaml",
                "launcher cluster up -f cluster.yaml -f queues.yaml",
            ),
            "docs/how-to/create-a-gke-cluster.md",
        ),
    },
    api={
        **dict.fromkeys(
            (
                "plan_cluster",
                "cluster_changes",
                "cluster_script",
                "cluster_terraform",
                "create_cluster",
                "cluster_removal",
                "delete_cluster",
                "adopt_cluster",
            ),
            "launcher.products.gke.api",
        ),
    },
    hooks={
        "cluster_findings": "launcher.products.gke.findings:of_values",
    },
)
