"""The rules and dashboards of charts/queues, in a real Prometheus that scrapes a real training."""

from __future__ import annotations

import functools
import gzip
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.charts import queues_chart
from tests.trainer import prometheus
from tests.trainer.prometheus import Prometheus
from tests.trainer.runs import CHECKOUT, Run, TrainingHarness, keep, with_metrics

RECORDED = CHECKOUT / "tests" / "upstream" / "recordings" / "metrics"
CONTROLLERS = {"kueue": "kueue-0.19.2", "jobset": "jobset-0.12.0", "kuberay": "kuberay-1.7.0"}
# Every training is slower than this forecast. A file system always has some bytes that are in use.
FORECAST = 1e-6
VALUES = """
monitoring: {alerts: {kind: PrometheusRule, storageFreeRatio: 1}}
teams: {red: {clusterQueue: research}}
"""
# Metrics that only accelerators have.
ABSENT = ("slipway_hbm_", "slipway_chip_", "slipway_mfu_")


@dataclass(frozen=True)
class Scraped:
    run: Run
    server: Prometheus


@pytest.fixture(scope="module")
def recordings() -> Iterator[dict[str, str]]:
    """Serve what the real controllers served, and return their addresses: the controllers need a cluster with runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = gzip.decompress((RECORDED / f"{CONTROLLERS[self.server.name]}.txt.gz").read_bytes())  # type: ignore[attr-defined]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    servers = []
    for name in CONTROLLERS:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.name = name  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
    yield {name: f"127.0.0.1:{server.server_port}" for name, server in zip(CONTROLLERS, servers, strict=True)}
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def groups(helm4: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the rules of the chart, evaluated each second instead of each minute, and without waiting for minutes."""
    values = queues_chart.merged(queues_chart.BASE, queues_chart.tree(VALUES))
    objects = queues_chart.render(helm4, values, tmp_path_factory.mktemp("values"))
    [spec] = [obj["spec"] for obj in objects if obj["kind"] == "PrometheusRule"]
    for group in spec["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "2s"
    found: list[dict[str, Any]] = spec["groups"]
    return found


@pytest.fixture(scope="module")
def scraped(
    lab: TrainingHarness,
    recordings: dict[str, str],
    groups: list[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scraped]:
    """Train on one host without Ray, on its own text, until the tests are done, and scrape the run."""
    config = with_metrics(lab.config("watched", hosts=1, steps=100_000, checkpoint_period=2, eval_interval=3))
    tree = json.loads(config.read_text())
    tree["tracking"]["forecastStepSeconds"] = FORECAST
    config.write_text(json.dumps(tree | {"team": {"name": "red"}}))
    run = lab.start(config, "--no-ray")
    keep(run)
    try:
        run.until(lambda: run.step() >= 3)
        target = (run.folder / "metrics-address-0.txt").read_text().strip().removeprefix("http://").partition("/")[0]
        with prometheus.running(tmp_path_factory.mktemp("prometheus"), {"run": target, **recordings}, groups) as server:
            yield Scraped(run, server)
    finally:
        run.process.terminate()
        run.wait(60)


def test_alerts_fire_on_a_real_training(scraped: Scraped, groups: list[dict[str, Any]]) -> None:
    """The steps are slower than the forecast, and the file system is fuller than the bound. Nothing else is wrong."""

    def firing() -> dict[str, dict[str, Any]]:
        alerts = scraped.server.get("alerts").get("alerts", [])
        return {alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] == "firing"}

    expected = {"SlipwayStepTimeAboveForecast", "SlipwayStorageNearlyFull"}
    alerts = scraped.server.until(lambda: (now := firing()).keys() >= expected and now)
    for name in expected:
        assert alerts[name]["labels"].items() >= {"run": "watched", "team": "red"}.items()
        assert alerts[name]["annotations"]["summary"].count("watched of the team red") == 1
    # The recording has workloads that wait, and admits none.
    assert set(alerts) - expected <= {"SlipwayNothingAdmitted"}
    rules = [rule for group in scraped.server.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == sum(len(group["rules"]) for group in groups)
    assert [rule for rule in rules if rule.get("health") != "ok"] == []


def test_every_query_of_every_dashboard_returns_series(scraped: Scraped) -> None:
    server = scraped.server
    server.until(lambda: server.ask("rate(slipway_step_duration_seconds_count[5m]) > 0"))
    server.until(lambda: server.ask("team_flavor:slipway_chip_hours:sum"))
    variables = {"team": "red", "run": "watched", "queue": "red", "cluster_queue": ".*", "datasource": "prometheus"}
    files = sorted((queues_chart.CHART / "dashboards").glob("*.json"))
    assert len(files) == 3
    for file in files:
        dashboard = json.loads(file.read_text())
        for variable in dashboard["templating"]["list"]:
            assert variable["name"] in variables
            if variable["type"] == "query":
                metric, label = (
                    variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
                )
                has_values = functools.partial(_has, server, _filled(metric, variables), label)
                server.until(functools.partial(has_values, variables[variable["name"]]))
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                query = _filled(target["expr"], variables)
                assert "$" not in query
                if not any(name in query for name in ABSENT):
                    try:
                        series = server.until(functools.partial(server.ask, query))
                    except AssertionError as error:
                        raise AssertionError(f"{file.name}, {panel['title']}: {query}") from error
                    # The legend names labels that the series have.
                    for label in target["legendFormat"].split("{{")[1:]:
                        assert label.partition("}}")[0] in series[0]["metric"], (panel["title"], label)


def _has(server: Prometheus, query: str, label: str, wanted: str) -> bool:
    """Return whether the label has the value, or any for ".*". A scrape that is late removes series for a moment."""
    values = {series["metric"].get(label) for series in server.ask(query)} - {None}
    return bool(values) if wanted == ".*" else wanted in values


def _filled(query: str, variables: dict[str, str]) -> str:
    for name, value in variables.items():
        query = query.replace(f"${name}", value)
    return query
