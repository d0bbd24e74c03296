"""The form of a record, two records of one run, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import LauncherError
from launcher.products.records import api, form
from tests.products.records.records import attempt, of_cluster, of_trainer, stamp


def written(folder: Path, name: str, record: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record) if not isinstance(record, str) else record)
    return path


def test_the_schema_is_valid_and_accepts_the_examples() -> None:
    jsonschema.Draft202012Validator.check_schema(form.schema())
    for record in (of_cluster(), of_trainer(), form.merge(of_cluster(), of_trainer())):
        jsonschema.validate(record, form.schema())
        assert form.parse(json.dumps(record).encode(), "a file") == record


def test_two_records_of_one_run_are_one(tmp_path: Path) -> None:
    written(tmp_path, "research/demo.uid-1.record.json", of_cluster())
    written(tmp_path, "demo/run.record.json", of_trainer())
    read = api.read_records(tmp_path)
    assert read.problems == []
    (run,) = read.records
    assert run["sources"] == ["cluster", "trainer"]
    assert (run["uid"], run["queue"], run["steps"], run["goodput"]) == ("uid-1", "research", 10, 0.769231)
    assert (run["times"]["submitted"], run["times"]["first_step"]) == (stamp(0), stamp(26))
    assert run["times"]["ended"] == stamp(100), "the cluster decides when it ended"
    assert run["chip_seconds"] == 16 * 90


def test_a_run_submitted_again_has_two_objects_and_one_folder(tmp_path: Path) -> None:
    """The trainer's attempts belong to the object that existed when they started."""
    later = {"submitted": stamp(1000), "admitted": stamp(1010), "ended": stamp(1100)}
    again = of_cluster(uid="uid-2", times=later, held=[{"from": stamp(1010), "to": stamp(1100)}], written=stamp(1120))
    first = attempt(21, 99, how="failed", training=60.0)
    second = attempt(1021, 1099, steps=(8, 20), how="succeeded", training=70.0)
    both = of_trainer(attempts=[first, second], steps=20, tokens=2000, written=stamp(1099))
    for name, record in {"a.record.json": of_cluster(state="failed"), "b.record.json": again}.items():
        written(tmp_path, name, record)
    written(tmp_path, "demo/run.record.json", both)
    one, two = api.read_records(tmp_path).records
    assert ([one["uid"], two["uid"]], one["attempts"], two["attempts"]) == (["uid-1", "uid-2"], [first], [second])
    assert (one["steps"], one["tokens"], two["steps"]) == (10, 1000, 20)
    assert (one["state"], two["state"]) == ("failed", "succeeded")
    assert one["seconds"]["training"] == 60.0
    assert two["seconds"]["training"] == 70.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is damaged: it is not a JSON object."),
        ("[]", "is damaged: it is not a JSON object."),
        (json.dumps(of_cluster(state="done")), 'is damaged: state is "done"; it must be one of queued,'),
        (json.dumps(of_cluster(version=2)), "has version 2; this Slipway reads version 1. Upgrade Slipway."),
        (json.dumps(of_cluster(written="yesterday")), "is damaged: written is not a time in RFC 3339."),
        (json.dumps({**of_cluster(), "attempts": [{}]}), "is damaged: attempts"),
        (json.dumps(of_cluster(held=[{"from": "x", "to": "y"}])), "is damaged: held is not a time in RFC 3339."),
    ],
)
def test_a_damaged_record_is_named_and_left_out(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, "bad.record.json", text)
    written(tmp_path, "good.record.json", of_cluster())
    read = api.read_records(tmp_path)
    assert [record["uid"] for record in read.records] == ["uid-1"]
    (problem,) = read.problems
    assert problem.startswith(f"{path} {says}"), problem


def test_a_large_file_is_left_out_unread(tmp_path: Path) -> None:
    with (tmp_path / "huge.record.json").open("wb") as file:
        file.truncate(5 << 20)
    assert api.read_records(tmp_path).problems == [
        f"{tmp_path}/huge.record.json is not a record: it is larger than 4 MiB."
    ]


def test_a_folder_that_does_not_exist() -> None:
    with pytest.raises(LauncherError, match="There is no folder /nowhere"):
        api.read_records("/nowhere")


def test_an_ended_state_stays() -> None:
    """A record that a slow process wrote late does not revive a run."""
    late = of_trainer(state="running", times={"started": stamp(21), "ended": None}, written=stamp(500))
    assert form.merge(of_cluster(state="failed", reason="Its pods failed."), late)["state"] == "failed"
    assert form.merge(of_trainer(state="failed", reason="Out of memory."), of_cluster(state="failed"))["reason"] == (
        "Out of memory."
    )


def test_the_price_of_the_chips() -> None:
    prices = {"v6e": {"perChipHour": {"spot": 2.0}, "region": "us-east5", "date": "2026"}}
    priced = form.with_price(form.with_amounts(of_cluster()), prices)
    assert priced["cost"] == {
        "usd": 0.8,  # 16 chips for 90 s
        "usd_per_chip_hour": 2.0,
        "provisioning": "spot",
        "region": "us-east5",
        "date": "2026",
    }
    assert form.with_price(of_cluster(accelerator="h100"), prices).get("cost") is None


def test_the_causes_add_up() -> None:
    """Ten steps, of which two are lost by a failure, then a preemption."""
    attempts = [
        attempt(0, 100, how="failed", training=80.0, starting=15.0, compiling=5.0),
        attempt(110, 160, steps=(8, 12), how="preempted", training=40.0, starting=10.0),
        attempt(200, 250, steps=(12, 20), how="succeeded", training=40.0, starting=5.0, data=1.0),
    ]
    totals = form.totals(attempts, form._seconds(stamp(252)))
    seconds = totals["seconds"]
    assert seconds["total"] == 252
    assert (seconds["failures"], seconds["preemptions"]) == (10 + 16, 40)
    assert seconds["training"] == 64 + 40 + 40
    assert sum(amount for cause, amount in seconds.items() if cause != "total") == pytest.approx(252)
    assert totals["goodput"] == pytest.approx(144 / 252, abs=1e-6)


states = st.sampled_from(["queued", "running", "succeeded", "failed", "cancelled"])
seconds = st.integers(0, 300).map(float)


@st.composite
def runs(draw: Any) -> Any:
    make = draw(st.sampled_from([of_cluster, of_trainer]))
    parts = draw(st.lists(seconds, max_size=3))
    return make(
        uid="uid-1",
        state=draw(states),
        reason=draw(st.sampled_from(["", "one", "two"])),
        written=stamp(draw(seconds)),
        steps=draw(st.none() | st.integers(0, 9)),
        attempts=[attempt(at, None) for at in parts],
        held=[{"from": stamp(at), "to": stamp(at + 5)} for at in parts],
    )


@given(runs(), runs())
def test_the_order_of_two_records_does_not_matter(one: dict[str, Any], other: dict[str, Any]) -> None:
    merged = form.merge(one, other)
    assert merged == form.merge(other, one)
    assert form.merge(merged, merged) == merged
    jsonschema.validate(merged, form.schema())
