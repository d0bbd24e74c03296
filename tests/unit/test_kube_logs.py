"""A run's output is complete and without duplicates even if streams break off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from launcher.backends.kubernetes import logs as kubernetes_logs
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.states import ObservedRun
from launcher.backends.log_excerpt import Excerpt
from launcher.errors import LauncherError
from launcher.k8s.errors import NotFound, Unreachable
from launcher.k8s.pods import Pod


class Streams:
    """The part of a Cluster that reads logs. Each call of `logs` returns the next stream; an error in it is raised.

    It replaces real streams, because a test cannot make those break off at a chosen line. tests/cluster/test_logs.py
    reads real ones.
    """

    def __init__(self, *streams: list[str | Exception]) -> None:
        self.streams = list(streams)
        self.calls: list[tuple[str, str | None, bool]] = []

    def logs(
        self, pod: str, *, container: str, follow: bool = False, since: str | None = None, **_: Any
    ) -> Iterator[str]:
        self.calls.append((pod, since, follow))
        for part in self.streams.pop(0) if self.streams else []:
            if isinstance(part, Exception):
                raise part
            yield part


def run(*, ended: bool = False, pods: tuple[str, ...] = ("a",)) -> ObservedRun:
    conditions = [{"type": "Completed", "status": "True"}] if ended else []
    obj = {
        "kind": "JobSet",
        "metadata": {"name": "demo", "namespace": "research", "labels": {}, "uid": "u"},
        "spec": {},
        "status": {"conditions": conditions},
    }
    return ObservedRun(RunObject.parse(obj), None, tuple(pod(name) for name in pods))


def pod(name: str, host: int = 0, created: str = "2026-01-01T00:00:00Z") -> Pod:
    labels = {"batch.kubernetes.io/job-completion-index": str(host), "jobset.sigs.k8s.io/job-index": "0"}
    return Pod(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": created},
            "spec": {"containers": [{"name": "gcsfuse"}, {"name": "trainer"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


def in_turn(*observations: ObservedRun | None) -> Callable[[], ObservedRun | None]:
    """Return a function that returns the next of these states at each call, and then the last one again."""
    remaining = list(observations)
    return lambda: remaining.pop(0) if len(remaining) > 1 else remaining[0]


def read(cluster: Streams, observe: Callable[[], ObservedRun | None], **options: Any) -> list[str]:
    arguments: dict[str, Any] = {"follow": True, "worker": None, "pause": 0.0, **options}
    return list(kubernetes_logs.lines(cluster, observe, **arguments))  # type: ignore[arg-type]  # it has the needed methods


def at(second: int, text: str, fraction: str = "") -> str:
    return f"2026-01-01T00:00:{second:02}{fraction}Z {text}"


def test_a_broken_stream_is_resumed() -> None:
    first: list[str | Exception] = [at(1, "one"), at(2, "two", ".1"), at(2, "three", ".25"), Unreachable("cut")]
    second: list[str | Exception] = [at(2, "two", ".1"), at(2, "three", ".250"), at(2, "four", ".3"), at(3, "five")]
    cluster = Streams(first, second, [at(3, "five"), at(4, "six")])
    lines = read(cluster, in_turn(run(), run(), run(), run(ended=True)))
    assert lines == ["one", "two", "three", "four", "five", "six"]
    assert cluster.calls == [
        ("a", None, True),
        ("a", "2026-01-01T00:00:02Z", True),
        ("a", "2026-01-01T00:00:03Z", False),
    ]


def test_lines_with_the_same_time_are_distinguished() -> None:
    same = [at(1, text) for text in ("one", "one", "two")]
    cluster = Streams([*same[:2], Unreachable("cut")], [*same], [*same, at(1, "three")])
    assert read(cluster, in_turn(run(), run(), run(), run(ended=True))) == ["one", "one", "two", "three"]


def test_lines_printed_while_the_run_ends_are_read() -> None:
    # The stream ends without an error, and the run has ended when it is read again.
    cluster = Streams([at(1, "one")], [at(1, "one"), at(2, "the end")])
    assert read(cluster, in_turn(run(), run(ended=True))) == ["one", "the end"]


def test_a_pod_that_replaces_another_is_read_from_its_start() -> None:
    cluster = Streams([at(5, "old")], [at(1, "new")], [at(1, "new")])
    after, last = run(), run(ended=True)
    pods = (pod("a"), pod("b", created="2026-01-01T00:01:00Z"))
    after, last = ObservedRun(after.run, None, pods), ObservedRun(last.run, None, pods)
    assert read(cluster, in_turn(run(), after, after, last)) == ["old", "new"]
    assert [name for name, *_ in cluster.calls] == ["a", "b", "b"]


def test_a_pod_that_does_not_exist_yet_is_waited_for() -> None:
    cluster = Streams([NotFound("no container yet")], [at(1, "one")], [at(1, "one")])
    assert read(cluster, in_turn(run(pods=()), run(), run(), run(), run(), run(ended=True))) == ["one"]


def test_a_missing_worker_is_an_error() -> None:
    with pytest.raises(LauncherError, match=r"Worker 3 was not found: the run has 1, counted from 0\."):
        read(Streams(), in_turn(run()), worker=3)


def test_without_follow_a_broken_stream_is_an_error() -> None:
    with pytest.raises(Unreachable):
        read(Streams([at(1, "one"), Unreachable("cut")]), in_turn(run()), follow=False)


def test_a_run_that_is_deleted_has_no_more_lines() -> None:
    assert read(Streams([at(1, "one")]), in_turn(run(), None)) == ["one"]


def test_nothing_written_yet() -> None:
    with pytest.raises(LauncherError) as caught:
        read(Streams(), in_turn(run(pods=())), follow=False)
    assert caught.value.message == 'The run "demo" is admitted and has written nothing yet.'
    assert caught.value.hint == "To find out why: launcher explain demo -n research"


def test_a_stream_that_outlives_the_run_is_closed() -> None:
    """The log of a Ray head continues after its job has ended. Lines that were read until then are not lost."""
    ended = threading.Event()
    closed = threading.Event()

    class Head(Streams):
        def logs(self, pod: str, *, follow: bool = False, **_: Any) -> Iterator[str]:
            yield at(1, "one")
            yield at(2, "two")
            if follow:
                ended.set()
                closed.wait(20)

    lines = read(Head(), lambda: run(ended=ended.is_set()))
    closed.set()
    assert lines == ["one", "two"]


def test_a_stream_that_outlives_its_pod_is_left_for_that_of_the_next_pod() -> None:
    """The machine of the pod is gone, so its stream stays open."""
    gone, closed = threading.Event(), threading.Event()

    class Machine(Streams):
        def logs(self, pod: str, *, follow: bool = False, **_: Any) -> Iterator[str]:
            yield at(1, f"from {pod}")
            if pod == "a":
                gone.set()
                closed.wait(20)

    states = in_turn(run(pods=()), run(pods=("b",)), run(pods=("b",)), run(pods=("b",), ended=True))
    lines = read(Machine(), lambda: states() if gone.is_set() else run())
    closed.set()
    assert lines == ["from a", "from b"]


def test_the_last_lines_and_what_follows_them() -> None:
    cluster = Streams([at(2, "two"), at(3, "three")], [at(3, "three"), at(4, "four")], [at(4, "four"), at(5, "five")])
    lines = read(cluster, in_turn(run(), run(), run(ended=True)), excerpt=Excerpt(tail=2))
    assert lines == ["two", "three", "four", "five"]
    assert cluster.calls == [
        ("a", None, False),
        ("a", "2026-01-01T00:00:03Z", True),
        ("a", "2026-01-01T00:00:04Z", False),
    ]
    assert read(Streams([at(2, "two")]), in_turn(run(ended=True)), excerpt=Excerpt(tail=1)) == ["two"]


def test_the_lines_since_a_time() -> None:
    since = datetime.fromisoformat("2026-01-01T00:00:02.5Z").timestamp()
    cluster = Streams([at(2, "two"), at(2, "later", ".7"), at(3, "three")])
    assert read(cluster, in_turn(run(ended=True)), excerpt=Excerpt(since=since)) == ["later", "three"]
    assert cluster.calls == [("a", "2026-01-01T00:00:02Z", False)]
    # A running run that is silent for a while has written something before.
    assert read(Streams(), in_turn(run()), follow=False, excerpt=Excerpt(since=since)) == []


def test_nothing_written_by_a_run_that_runs() -> None:
    observed = run()
    observed = ObservedRun(observed.run, None, (pod("a"),))
    with pytest.raises(LauncherError) as caught:
        read(Streams(), in_turn(observed), follow=False)
    assert caught.value.message == 'The run "demo" is running and has written nothing yet.'
    assert caught.value.hint == "To wait for its output: launcher logs -f demo -n research"
