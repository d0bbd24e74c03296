"""The product `planner`: forecasts of runs, and simulations of queues."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Plan",
    package="launcher.products.planner.cli",
    commands={
        "forecast": Command(
            "Forecast whether a run fits, how fast it is and what it costs.",
            (
                "launcher forecast models/llama3.1-8b slices/v6e-4x4",
                "launcher forecast models/llama3.1-8b slices/v6e-4x4 --tokens 15T --search 30",
            ),
            "docs/how-to/forecast.md",
        ),
        "simulate": Command(
            "Simulate when runs start, and what a change of the queues would do.",
            (
                "launcher simulate -f queues.yaml --trace runs.csv",
                "launcher simulate -f queues.yaml --trace runs.csv "
                "--set clusterQueues.research.quota.v6e-4x4.slices=+4",
            ),
            "docs/how-to/plan-quota.md",
        ),
    },
    api={
        **dict.fromkeys(("forecast",), "launcher.products.planner.api.forecasts"),
        **dict.fromkeys(
            (
                "simulate_cluster",
                "simulate_scenarios",
                "simulate_trace",
                "simulation_page",
                "record_trace",
                "advise_queues",
                "expected_start",
                "expected_starts",
                "expected_start_of",
            ),
            "launcher.products.planner.api.simulations",
        ),
    },
    instead_of={
        **dict.fromkeys(("estimate", "plan", "cost", "price"), "launcher forecast"),
    },
    hooks={
        "misfit": "launcher.products.planner.forecast.known_forecast:problem",
        "forecast_speed": "launcher.products.planner.forecast.known_forecast:speed",
        "expected_starts": "launcher.products.planner.simulation.expected_start:for_list",
        "expected_start_of": "launcher.products.planner.simulation.expected_start:for_new_run",
    },
)
