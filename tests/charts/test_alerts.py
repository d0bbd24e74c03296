"""The alerts, the recording rules and the dashboards of charts/queues. promtool evaluates the rules."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts import queues_chart, schemas
from tests.charts.alert_cases import CASES, LEASES, Case, Series
from tests.tools import tool
from tests.trainer.test_telemetry import LABELS
from trainer.telemetry.chips import Chips, Sample, Sampler
from trainer.telemetry.prometheus import Endpoint
from trainer.telemetry.storage import Storage

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "reference" / "alerts.md"
DASHBOARDS = sorted((queues_chart.CHART / "dashboards").glob("*.json"))
RECORDED = CHECKOUT / "tests" / "upstream" / "recordings" / "metrics"
ON = "monitoring: {alerts: {kind: PrometheusRule}}\nteams: {research: {members: {alice@example.com: User}}}"

Tree = dict[str, Any]


def objects(helm: Path, folder: Path, keys: str) -> list[Tree]:
    values = queues_chart.merged(queues_chart.BASE, queues_chart.tree(keys))
    kinds = ("PrometheusRule", "ClusterRules", "ConfigMap")
    return [obj for obj in queues_chart.render(helm, values, folder) if obj["kind"] in kinds]


def rules_of(groups: list[Tree]) -> Iterator[Tree]:
    for group in groups:
        yield from group["rules"]


@pytest.fixture(scope="module")
def groups(helm4: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Tree]:
    """Return the groups of rules with the default bounds."""
    [rules] = objects(helm4, tmp_path_factory.mktemp("values"), ON)
    found: list[Tree] = rules["spec"]["groups"]
    return found


def names(text: str) -> set[str]:
    """Return the names of the metrics in a query."""
    return set(re.findall(r"\b(?:kueue|jobset|kuberay|slipway|leader|controller_runtime)_[a-z_]+", text))


# --- What the chart renders -----------------------------------------------------------------------------------------


def test_there_are_no_alerts_and_no_dashboards_by_default(helm4: Path, tmp_path: Path) -> None:
    assert objects(helm4, tmp_path, "{}") == []


def test_both_kinds_have_the_same_rules(helm4: Path, tmp_path: Path, groups: list[Tree]) -> None:
    [managed] = objects(helm4, tmp_path, ON.replace("PrometheusRule", "ClusterRules"))
    assert (managed["apiVersion"], managed["metadata"].get("namespace")) == ("monitoring.googleapis.com/v1", None)
    assert managed["spec"]["groups"] == groups
    [rule] = objects(helm4, tmp_path, ON.replace("{alerts", "{labels: {release: ours}, alerts"))
    assert rule["metadata"]["labels"]["release"] == "ours"
    for obj in (managed, rule):
        assert schemas.validate(obj) == []


def test_every_alert_has_a_section_that_it_links_to(helm4: Path, tmp_path: Path, groups: list[Tree]) -> None:
    alerts = {rule["alert"] for rule in rules_of(groups) if "alert" in rule}
    headings = re.findall(r"^## (Slipway\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(alerts)
    assert not [rule for rule in rules_of(groups) if "runbook_url" in rule.get("annotations", {})]
    url = "https://docs.example.com/reference/alerts"
    [linked] = objects(helm4, tmp_path, ON.replace("{kind", f"{{runbookUrl: '{url}', kind"))
    for rule in rules_of(linked["spec"]["groups"]):
        if "alert" in rule:
            assert rule["annotations"]["runbook_url"] == f"{url}#{rule['alert'].lower()}"


def test_no_key_is_left_in_the_rules(groups: list[Tree]) -> None:
    assert "$(" not in json.dumps(groups)


def test_alerts_and_controllers_can_be_left_out(helm4: Path, tmp_path: Path, groups: list[Tree]) -> None:
    disabled = ["SlipwayQueueNotActive", "SlipwayWaitTooLong", "SlipwayNothingAdmitted"]
    keys = ON.replace("{kind", f"{{disabled: {json.dumps(disabled)}, controllers: [kueue], kind")
    [rule] = objects(helm4, tmp_path, keys)
    before = [rule.get("alert") for rule in rules_of(groups)]
    after = [rule.get("alert") for rule in rules_of(rule["spec"]["groups"])]
    assert before.count("SlipwayControllerDown") == len(LEASES)
    assert after.count("SlipwayControllerDown") == 1
    assert set(before) - set(after) == set(disabled)


def test_without_policies_none_can_be_missing(helm4: Path, tmp_path: Path) -> None:
    keys = "monitoring: {alerts: {kind: ClusterRules}}\npolicies: {runs: false, tokens: false}"
    [rule] = objects(helm4, tmp_path, keys)
    assert "SlipwayPolicyMissing" not in json.dumps(rule)


def test_a_cluster_without_the_kinds_is_an_error_before_anything_changes(helm4: Path, tmp_path: Path) -> None:
    keys = "monitoring: {podMonitor: true, podMonitoring: true, alerts: {kind: PrometheusRule}}"
    values = queues_chart.merged(queues_chart.BASE, queues_chart.tree(keys))
    served = ["--api-versions", "kueue.x-k8s.io/v1beta2/ResourceFlavor"]
    operator, google = "monitoring.coreos.com/v1", "monitoring.googleapis.com/v1"
    assert queues_chart.rejections(helm4, values, tmp_path, *served) == [
        "monitoring.alerts.kind is PrometheusRule, but the cluster does not serve the kind PrometheusRule of "
        f"{operator}; install the Prometheus Operator first, or change the key.",
        f"monitoring.podMonitor is true, but the cluster does not serve the kind PodMonitor of {operator}; "
        "install the Prometheus Operator first, or change the key.",
        f"monitoring.podMonitoring is true, but the cluster does not serve the kind PodMonitoring of {google}; "
        "install GKE's managed Prometheus first, or change the key.",
    ]
    for api in (f"{operator}/PodMonitor", f"{operator}/PrometheusRule", f"{google}/PodMonitoring"):
        served += ["--api-versions", api]
    assert queues_chart.rejections(helm4, values, tmp_path, *served) == []


# --- Rules, evaluated by promtool -----------------------------------------------------------------------------------


def expected(groups: list[Tree], case: Case) -> Tree:
    """Return the alert as Prometheus sends it: its templates with the labels and the value of the case."""
    rules = [rule for rule in rules_of(groups) if rule.get("alert") == case.alert]
    [rule] = [rule for rule in rules if rule["labels"].get("controller") in (None, case.labels.get("controller"))]
    labels = rule["labels"] | case.labels

    def filled(text: str) -> str:
        text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: labels[label[1]], text)
        return re.sub(r"\{\{ \$value .*?\}\}", case.value, text)

    annotations = {key: filled(text) for key, text in rule["annotations"].items()}
    return {"exp_labels": labels, "exp_annotations": annotations}


def scenario(groups: list[Tree], case: Case, series: Series, *, fires: bool) -> Tree:
    alert = {"eval_time": case.at, "alertname": case.alert, "exp_alerts": [expected(groups, case)] if fires else []}
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": inputs, "alert_rule_test": [alert]}


def promtool(folder: Path, groups: list[Tree], scenarios: list[Tree]) -> None:
    """Check the rules, and run the scenarios on them."""
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": scenarios}
    (folder / "tests.yaml").write_text(yaml.safe_dump(tests))
    for command in (["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run(
            [str(tool("promtool")), *command], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_on_what_it_should_and_only_on_that(groups: list[Tree], tmp_path: Path) -> None:
    assert {case.alert for case in CASES} == {rule["alert"] for rule in rules_of(groups) if "alert" in rule}
    cases = [scenario(groups, case, case.fires, fires=True) for case in CASES]
    promtool(tmp_path, groups, [*cases, *(scenario(groups, case, case.quiet, fires=False) for case in CASES)])


def test_the_bounds_are_those_of_the_values(helm4: Path, tmp_path: Path) -> None:
    """Each case is quiet with bounds that are further away."""
    bounds = (
        "queueNotActiveMinutes: 60, waitMinutes: 600, noStepMinutes: 60, stepTimeRatio: 3, checkpointMinutes: 300, "
        "goodputRatio: 0, storageFreeRatio: 0.01, controllerDownMinutes: 60"
    )
    [rule] = objects(helm4, tmp_path, ON.replace("kind:", f"{bounds}, kind:"))
    groups = rule["spec"]["groups"]
    cases = [case for case in CASES if case.alert != "SlipwayPolicyMissing"]  # it has no bound
    promtool(tmp_path, groups, [scenario(groups, case, case.fires, fires=False) for case in cases])


def test_chip_hours_are_recorded_by_team_and_flavor(groups: list[Tree], tmp_path: Path) -> None:
    usage = 'kueue_local_queue_resource_usage{{name="runs",{},flavor="{}",replica_role="{}",resource="{}"}}'
    series = {
        usage.format('namespace="research"', "v6e-4x4", "leader", "google.com/tpu"): "16x29 32x29",
        # The second replica of Kueue serves the same, cpu does not count, and a scraper adds its own namespace.
        usage.format('namespace="research"', "v6e-4x4", "follower", "google.com/tpu"): "16x29 32x29",
        usage.format('namespace="research"', "cpu", "leader", "cpu"): "40x59",
        usage.format(
            'namespace="kueue-system",exported_namespace="product"', "v6e-4x4", "leader", "google.com/tpu"
        ): "8x59",
    }
    expected = {"research": 16 * 30 / 60 + 32 * 30 / 60, "product": 8}
    samples = [{"labels": f'{{flavor="v6e-4x4", team="{team}"}}', "value": value} for team, value in expected.items()]
    query = {
        "expr": "sum_over_time(team_flavor:slipway_chip_hours:sum[1h])",
        "eval_time": "59m",
        "exp_samples": samples,
    }
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    promtool(tmp_path, groups, [{"interval": "1m", "input_series": inputs, "promql_expr_test": [query]}])


def test_the_metrics_of_rules_and_dashboards_exist(groups: list[Tree]) -> None:
    """Trainer, Kueue, JobSet and KubeRay serve them under these names."""

    class Device:
        id = 0

        def memory_stats(self) -> dict[str, int]:
            return {"bytes_in_use": 1, "peak_bytes_in_use": 1, "bytes_limit": 1}

    class Known(Sampler):
        """Has its sample at once, without its thread."""

        def latest(self) -> Sample:
            return self._read()

    endpoint = Endpoint(LABELS)
    chips = Known(lambda: {"duty_cycle_pct": [1.0], "tensorcore_util": [1.0]})
    endpoint.registry.register(Chips([Device()], LABELS, chips))
    endpoint.registry.register(Storage(LABELS, Known(lambda: {"size": [1.0], "available": [1.0]})))
    served = {family.name for family in endpoint.registry.collect()}
    for file in RECORDED.glob("*.txt.gz"):
        served |= set(re.findall(r"^# TYPE (\S+)", gzip.decompress(file.read_bytes()).decode(), re.MULTILINE))
    served |= {f"{name}_total" for name in served} | {f"{name}_{part}" for name in served for part in ("sum", "count")}
    used = names(json.dumps([rule["expr"] for rule in rules_of(groups)]))
    for file in DASHBOARDS:
        used |= names(file.read_text())
    records = {part for rule in rules_of(groups) if "record" in rule for part in rule["record"].split(":")}
    assert used - served - records == set()


# --- Dashboards -----------------------------------------------------------------------------------------------------


def test_dashboards_are_config_maps_that_grafanas_sidecar_finds(helm4: Path, tmp_path: Path) -> None:
    keys = "monitoring: {dashboards: {create: true, annotations: {grafana_folder: Slipway}}}"
    made = objects(helm4, tmp_path, keys)
    assert [obj["metadata"]["name"].rpartition("-")[2] for obj in made] == ["fleet", "run", "team"]
    for obj, file in zip(made, DASHBOARDS, strict=True):
        assert schemas.validate(obj) == []
        assert obj["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert obj["metadata"]["annotations"] == {"grafana_folder": "Slipway"}
        [(name, text)] = obj["data"].items()
        assert name == f"slipway-{file.name}"
        assert json.loads(text) == json.loads(file.read_text())


def test_grafanas_schema_accepts_every_dashboard(tmp_path: Path) -> None:
    command = [str(tool("grafana-dashboards")), *map(str, DASHBOARDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    text = DASHBOARDS[0].read_text()
    for good, bad, message in (
        ('"gridPos"', '"gridpos"', "unexpected field 'gridpos'"),
        ('"expr"', '"expression"', ".expression: the schema has no such key"),
        ('"unit"', '"units"', ".units: the schema has no such key"),
        ('"type": "stat"', '"type": "number"', 'Grafana has no panel "number"'),
        ('"refresh": 2', '"refresh": "always"', "cannot unmarshal string"),
    ):
        assert good in text
        (tmp_path / "bad.json").write_text(text.replace(good, bad))
        command[1:] = [str(tmp_path / "bad.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert message in done.stdout


def test_panels_do_not_overlap_and_their_ids_differ() -> None:
    for file in DASHBOARDS:
        panels = json.loads(file.read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        cells = [
            (x, y)
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24
