"""A run's output across streams that are cut: each line once, and none lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from launcher.backends.kubernetes import logs as kube_logs
from launcher.backends.kubernetes.states import ObservedRun
from launcher.errors import LauncherError
from launcher.k8s.errors import NotFound, Unreachable

Object = dict[str, Any]


class Streams:
    """As much of a Cluster as reading logs needs; each call of `logs` gives the next stream, of which a part may be an
    error to raise. Real streams are read in tests/cluster/test_logs.py; these break off at any place wanted."""

    def __init__(self, *streams: list[str | Exception]) -> None:
        self.streams = list(streams)
        self.asked: list[tuple[str, str | None, bool]] = []

    def logs(
        self, pod: str, *, container: str, follow: bool = False, since: str | None = None, **_: Any
    ) -> Iterator[str]:
        self.asked.append((pod, since, follow))
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
    return ObservedRun(obj, None, tuple(pod(name) for name in pods))


def pod(name: str, host: int = 0, made: str = "2026-01-01T00:00:00Z") -> Object:
    labels = {"batch.kubernetes.io/job-completion-index": str(host), "jobset.sigs.k8s.io/job-index": "0"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": made},
        "spec": {"containers": [{"name": "gcsfuse"}, {"name": "trainer"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def looks(*seen: ObservedRun | None) -> Callable[[], ObservedRun | None]:
    """Each look at the run; the last one stays."""
    left = list(seen)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def read(cluster: Streams, look: Callable[[], ObservedRun | None], **options: Any) -> list[str]:
    given: dict[str, Any] = {"follow": True, "worker": None, "pause": 0.0, **options}
    return list(kube_logs.lines(cluster, look, **given))  # type: ignore[arg-type]  # as much of one as is needed


def at(second: int, text: str, fraction: str = "") -> str:
    return f"2026-01-01T00:00:{second:02}{fraction}Z {text}"


def test_a_stream_that_is_cut_is_taken_up_where_it_broke() -> None:
    first: list[str | Exception] = [at(1, "one"), at(2, "two", ".1"), at(2, "three", ".25"), Unreachable("cut")]
    second: list[str | Exception] = [at(2, "two", ".1"), at(2, "three", ".250"), at(2, "four", ".3"), at(3, "five")]
    cluster = Streams(first, second, [at(3, "five"), at(4, "six")])
    said = read(cluster, looks(run(), run(), run(), run(ended=True)))
    assert said == ["one", "two", "three", "four", "five", "six"]
    assert cluster.asked == [
        ("a", None, True),
        ("a", "2026-01-01T00:00:02Z", True),
        ("a", "2026-01-01T00:00:03Z", False),
    ]


def test_lines_of_the_same_moment_are_told_apart() -> None:
    same = [at(1, text) for text in ("one", "one", "two")]
    cluster = Streams([*same[:2], Unreachable("cut")], [*same], [*same, at(1, "three")])
    assert read(cluster, looks(run(), run(), run(), run(ended=True))) == ["one", "one", "two", "three"]


def test_what_is_printed_while_the_run_ends_is_read() -> None:
    # The stream breaks off without a word, and by the next look the run has ended.
    cluster = Streams([at(1, "one")], [at(1, "one"), at(2, "the end")])
    assert read(cluster, looks(run(), run(ended=True))) == ["one", "the end"]


def test_a_pod_that_replaces_another_begins_anew() -> None:
    cluster = Streams([at(5, "old")], [at(1, "new")], [at(1, "new")])
    after, last = run(), run(ended=True)
    pods = (pod("a"), pod("b", made="2026-01-01T00:01:00Z"))
    after, last = ObservedRun(after.obj, None, pods), ObservedRun(last.obj, None, pods)
    assert read(cluster, looks(run(), after, after, last)) == ["old", "new"]
    assert [name for name, *_ in cluster.asked] == ["a", "b", "b"]


def test_a_pod_that_is_not_there_yet_is_waited_for() -> None:
    cluster = Streams([NotFound("no container yet")], [at(1, "one")], [at(1, "one")])
    assert read(cluster, looks(run(pods=()), run(), run(), run(), run(), run(ended=True))) == ["one"]


def test_a_worker_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LauncherError, match=r"Worker 3 was not found: the run has 1, counted from 0\."):
        read(Streams(), looks(run()), worker=3)


def test_without_following_a_cut_is_an_error() -> None:
    with pytest.raises(Unreachable):
        read(Streams([at(1, "one"), Unreachable("cut")]), looks(run()), follow=False)


def test_a_run_that_is_deleted_has_no_more_lines() -> None:
    assert read(Streams([at(1, "one")]), looks(run(), None)) == ["one"]


def test_nothing_written_yet() -> None:
    with pytest.raises(LauncherError) as caught:
        read(Streams(), looks(run(pods=())), follow=False)
    assert caught.value.message == 'The run "demo" is admitted and has written nothing yet.'
    assert caught.value.hint == "To find out why: launcher explain demo -n research"


def test_a_stream_that_outlives_the_run_is_left() -> None:
    """As the log of a Ray head, which goes on when its job has ended; what it brought by then is not lost."""
    ended = threading.Event()
    left = threading.Event()

    class Head(Streams):
        def logs(self, pod: str, *, follow: bool = False, **_: Any) -> Iterator[str]:
            yield at(1, "one")
            yield at(2, "two")
            if follow:
                ended.set()
                left.wait(20)

    said = read(Head(), lambda: run(ended=ended.is_set()))
    left.set()
    assert said == ["one", "two"]


def test_nothing_written_by_a_run_that_runs() -> None:
    seen = run()
    seen = ObservedRun(seen.obj, None, (pod("a"),))
    with pytest.raises(LauncherError) as caught:
        read(Streams(), looks(seen), follow=False)
    assert caught.value.message == 'The run "demo" is running and has written nothing yet.'
    assert caught.value.hint == "To wait for its output: launcher logs -f demo -n research"
