"""The product `ray_cluster`: runs as jobs of long-lived Ray clusters, and the dashboards of Ray clusters."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Understand",
    package="launcher.products.ray_cluster.cli",
    commands={
        "dashboard": Command(
            "Serve Ray's dashboard on a local port, until Ctrl-C.",
            ("launcher dashboard llama",),
            "docs/how-to/view-metrics.md",
        ),
    },
    api=dict.fromkeys(("clusters", "dashboard"), "launcher.products.ray_cluster.api"),
    hooks={
        "backend": "launcher.products.ray_cluster.backend:RayClusterBackend",
        "submitter ray-cluster": "launcher.products.ray_cluster.submitter:RayClusterSubmitter",
        "ray_clusters": "launcher.products.ray_cluster.api:table",
        "ray_cluster": "launcher.products.ray_cluster.api:details",
        "doctor": "launcher.products.ray_cluster.rights:examine",
        "active_jobs": "launcher.products.ray_cluster.users:active_jobs",
        "not_ready RayCluster": "launcher.products.common.ray_hosts:not_ready",
    },
    instead_of=dict.fromkeys(("ui", "web"), "launcher dashboard"),
)
