"""What a run serves to Prometheus, read as Prometheus reads it."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

LABELS = ("run", "team", "host")
"""On every sample."""


def scraped(text: str) -> dict[str, float]:
    """Every sample by its name, with the labels that are not every one's: slipway_x{device=0}."""
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
