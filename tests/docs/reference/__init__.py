"""The reference pages, each generated from its source: `python -m tests.docs` writes them."""

from __future__ import annotations

from collections.abc import Callable

from tests.docs.reference import command, environment, files, python, rules_reference, run_policy, tables, values

PAGES: dict[str, Callable[[], str]] = {
    "command": command.text,
    "environment": environment.text,
    "run-values": values.run,
    "queues-values": values.queues,
    "cluster-values": values.cluster,
    "fleet-values": values.fleet,
    "run-policy": run_policy.text,
    "accelerators": tables.accelerators,
    "maxtext-keys": tables.maxtext_keys,
    "run-config": files.run_config,
    "metrics": files.metrics,
    "record": files.record,
    "checks": rules_reference.checks,
    "explain": rules_reference.explain,
    "python-api": python.text,
}
"""The generators, by the page's name in docs/reference."""
