"""`launcher record` on what the real Kueue, JobSet and KubeRay wrote (tests/upstream), and on buckets."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from launcher.products.records import api, form, notify
from launcher.products.records.collect import Collected, collect
from tests.bucket import bucket
from tests.products.records.records import of_cluster
from tests.unit import recorded
from tests.unit.notification_servers import http

CONFIG = json.dumps(
    {
        "run": {"name": "demo"},
        "slice": {"accelerator": "v5e", "count": 2, "provisioning": "on-demand"},
        "accelerator": {"name": "v5e", "topology": "2x4", "chips": 8},
        "image": {"repository": "example.com/trainer", "digest": "sha256:ab"},
    }
)


def cluster_at(recording: str, seconds: float) -> Any:
    """Return the cluster of a recording, whose JobSets and RayJobs are runs of Slipway."""
    cluster = recorded.at(recording, seconds)
    for obj in cluster.objects:
        if obj["kind"] in ("JobSet", "RayJob"):
            obj["metadata"]["labels"]["slipway.dev/run"] = obj["metadata"]["name"]
        if obj["kind"] == "JobSet":
            template = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
            template.setdefault("metadata", {}).setdefault("annotations", {})["slipway.dev/run-config"] = CONFIG
    return cluster


def record(folder: Path | str, recording: str, seconds: float, **options: Any) -> tuple[Collected, list[Any]]:
    cluster = cluster_at(recording, seconds)
    done = collect(
        [cluster],
        str(folder),
        all_namespaces=True,
        prices=options.pop("prices", {}),
        now=lambda: cluster.now.timestamp(),
        **options,
    )
    read = api.read_records(folder)
    assert read.problems == []
    for run in read.records:
        jsonschema.validate(run, form.schema())
    return done, read.records


def test_a_preempted_run(tmp_path: Path) -> None:
    prices = {"v5e": {"perChipHour": {"on-demand": 1.2}}}
    _, runs = record(tmp_path, "preempted-by-priority", 30, prices=prices)
    low = next(run for run in runs if run["name"] == "low-3")
    assert (low["state"], low["preemptions"], len(low["held"])) == ("running", 1, 2)
    assert low["times"]["submitted"] <= low["times"]["admitted"]
    assert low["chip_seconds"] == pytest.approx(16 * held(low), rel=1e-6)
    assert low["cost"]["usd"] == pytest.approx(low["chip_seconds"] / 3600 * 1.2, abs=1e-4)
    assert (low["image"], low["topology"], low["flavor"]) == ("example.com/trainer@sha256:ab", "2x4", "v5e-2x4")


def test_passes_keep_what_the_cluster_forgets(tmp_path: Path) -> None:
    """Events of an admission are gone after an hour; an earlier pass has recorded it."""
    record(tmp_path, "preempted-by-priority", 12)
    cluster = cluster_at("preempted-by-priority", 30)
    cluster.objects = [obj for obj in cluster.objects if obj["kind"] != "Event"]
    collect([cluster], str(tmp_path), all_namespaces=True, prices={}, now=lambda: cluster.now.timestamp())
    low = next(run for run in api.read_records(tmp_path).records if run["name"] == "low-3")
    assert len(low["held"]) == 2


def held(run: dict[str, Any]) -> float:
    return sum(form._seconds(part["to"]) - form._seconds(part["from"]) for part in run["held"])


def test_a_failed_run_is_recorded_once(tmp_path: Path) -> None:
    first, runs = record(tmp_path, "run-fails-after-restarts", 17)
    (run,) = [run for run in runs if run["name"] == "fails"]
    assert (run["state"], bool(run["reason"]), run["times"]["ended"] is not None) == ("failed", True, True)
    assert any(name.endswith("/fails") for name in first.written)
    again, _ = record(tmp_path, "run-fails-after-restarts", 18)
    assert not any(name.endswith("/fails") for name in again.written)
    assert again.unchanged >= 1


def test_a_run_whose_object_is_gone(tmp_path: Path) -> None:
    record(tmp_path, "preempted-by-priority", 30)
    cluster = cluster_at("preempted-by-priority", 31)
    cluster.objects = [obj for obj in cluster.objects if obj["metadata"]["name"] != "low-3"]
    collect([cluster], str(tmp_path), all_namespaces=True, prices={}, now=lambda: cluster.now.timestamp())
    low = next(run for run in api.read_records(tmp_path).records if run["name"] == "low-3")
    assert (low["state"], low["reason"]) == ("cancelled", "Its object was deleted before its end was recorded.")
    assert low["times"]["ended"]


def test_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab-records").mkdir()
    with bucket(tmp_path) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        _, runs = record("gs://lab-records/all", "run-fails-after-restarts", 17)
        assert [run["state"] for run in runs if run["name"] == "fails"] == ["failed"]
    files = list((tmp_path / "lab-records/all").rglob("*.record.json"))
    assert {json.loads(path.read_text())["uid"] for path in files} == {run["uid"] for run in runs}


def test_a_damaged_record_is_named_and_replaced_by_the_next_pass(tmp_path: Path) -> None:
    _, runs = record(tmp_path, "run-fails-after-restarts", 17)
    path = next(tmp_path.rglob("fails.*.record.json"))
    path.write_text("{")
    cluster = cluster_at("run-fails-after-restarts", 17)
    done = collect([cluster], str(tmp_path), all_namespaces=True, prices={}, now=lambda: cluster.now.timestamp())
    assert done.problems == [f"{path} is damaged: it is not a JSON object."]
    assert sorted(run["uid"] for run in api.read_records(tmp_path).records) == sorted(run["uid"] for run in runs)


def notifying(cluster: Any, folder: Path, **options: Any) -> Collected:
    return collect(
        [cluster],
        str(folder),
        all_namespaces=True,
        prices={},
        secret="slipway-notify",
        now=lambda: cluster.now.timestamp(),
        **options,
    )


def with_secret(cluster: Any, text: str, key: str = "addresses") -> Any:
    data = {key: base64.b64encode(text.encode()).decode()}
    return cluster.add(
        {"kind": "Secret", "metadata": {"name": "slipway-notify", "namespace": "research"}, "data": data}
    )


def test_a_run_that_never_started_is_notified_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kueue deactivated it, so no trainer could say so. Two passes send one notification to each address."""
    monkeypatch.delenv("SLIPWAY_NOTIFY", raising=False)
    cluster = cluster_at("run-fails-after-restarts", 17)
    with http((500, 200)) as team, http() as platform:
        with_secret(cluster, f"events ended\nslack {team.url}\n")
        monkeypatch.setenv("SLIPWAY_NOTIFY", f"json {platform.url}")
        for obj in cluster.objects:  # its pods were never ready
            if obj["kind"] == "Workload":
                parts = obj["status"]["conditions"]
                obj["status"]["conditions"] = [part for part in parts if part["type"] != "PodsReady"]
        first = notifying(cluster, tmp_path)
        second = notifying(cluster, tmp_path)
    assert first.problems == []
    assert (first.notified, second.notified) == (["research/fails"], [])
    assert (len(team.requests), len(platform.requests)) == (2, 1)
    assert "Run fails has failed." in team.bodies[-1]["text"]
    assert platform.bodies[0]["state"] == "failed"
    (run,) = [run for run in api.read_records(tmp_path).records if run["name"] == "fails"]
    assert run["notified"] == ["ended"]


def test_a_secret_that_may_not_be_read_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_at("run-fails-after-restarts", 17)
    cluster.hidden.add(("secrets", "research"))
    monkeypatch.setattr(notify, "is_due", lambda record, *_: record["name"] == "fails")
    done = notifying(cluster, tmp_path)
    assert done.problems == ["The Secret slipway-notify of the namespace research cannot be read: No."]


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ("adresses", "slack https://example.com", "has no key addresses; add it, with addresses."),
        ("addresses", "", "has no key addresses; add it, with addresses."),
    ],
)
def test_a_secret_without_addresses_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, text: str, says: str
) -> None:
    cluster = cluster_at("run-fails-after-restarts", 17)
    with_secret(cluster, text, key)
    monkeypatch.setattr(notify, "is_due", lambda record, *_: record["name"] == "fails")
    done = notifying(cluster, tmp_path)
    assert done.problems == [f"The Secret slipway-notify of the namespace research {says}"]


@pytest.mark.parametrize(
    ("mark", "due"), [(None, True), ("2026-11-21T00:00:00Z", True), ("2026-11-22T00:00:00Z", False)]
)
def test_what_the_trainer_has_notified_of(tmp_path: Path, mark: str | None, due: bool) -> None:
    """The mark of an earlier submission under the same name does not count."""
    times = {"submitted": "2026-11-21T12:00:00Z", "started": "2026-11-21T12:01:00Z", "ended": "2026-11-21T13:00:00Z"}
    run = of_cluster(times=times, folder="/data/demo", sources=["cluster", "trainer"], attempts=[])
    now = form._seconds("2026-11-21T13:10:00Z")
    if mark is not None:
        (tmp_path / "demo/notified").mkdir(parents=True)
        (tmp_path / "demo/notified/ended-1.json").write_text(json.dumps({"time": mark, "state": "sent"}))
    assert notify.is_due(run, tmp_path, now) is due
    assert not notify.is_due(run, None, now), "its folder cannot be read, so the trainer may have notified"
    assert notify.is_due({**run, "times": {**times, "started": None}}, None, now)
    assert not notify.is_due({**run, "notified": ["ended"]}, tmp_path, now)
    assert not notify.is_due(run, tmp_path, now + 90_000), "it ended more than a day ago"
