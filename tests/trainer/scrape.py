"""Reads the metrics that a run serves, as Prometheus does."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

LABELS = ("run", "team", "host")
"""The labels of every sample."""


def scraped(text: str) -> dict[str, float]:
    """Return the value of every sample by its name and the labels that are not in LABELS: slipway_x{device=0}."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            more = {key: value for key, value in sample.labels.items() if key not in LABELS}
            assert set(LABELS) <= set(sample.labels), sample
            key = sample.name + ("{" + ",".join(f"{k}={v}" for k, v in more.items()) + "}" if more else "")
            assert key not in found
            found[key] = sample.value
    return found


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text
