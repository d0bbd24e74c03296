"""The comparison of the hosts' times (trainer/training/slow_hosts.py).

tests/trainer/test_without_ray.py pauses a real host."""

from __future__ import annotations

import pytest

from trainer.training.slow_hosts import HostTimes, slow


def times(**changes: HostTimes) -> dict[int, HostTimes]:
    """Return the times of eight hosts; `changes` are by host, such as h3."""
    normal = {host: HostTimes(f"demo-{host}", 0.0010 + host * 1e-5, 0.01, 1.0, 12) for host in range(8)}
    return normal | {int(name[1:]): row for name, row in changes.items()}


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (HostTimes("demo-3", 0.0018, 0.01, 1.0, 12), "Host 3 (demo-3) is slow: the same calculation takes 73% longer"),
        (HostTimes("demo-3", 0.0018, 0.01, 1.0, 12, "node-7"), "Host 3 (demo-3 on the node node-7) is slow: the same"),
        (HostTimes("demo-3", 0.001, 0.6, 1.0, 12), "Host 3 (demo-3) waits 0.6 s per step for its text, the other"),
    ],
)
def test_a_slow_host_is_named(host: HostTimes, message: str) -> None:
    (row,) = slow(times(h3=host), 1.25)
    assert row.message.startswith(message)
    assert (row.host, row.node) == (3, host.node)


@pytest.mark.parametrize(
    "host",
    [
        HostTimes("demo-3", 0.0012, 0.01, 1.0, 12),  # 15 % are normal
        HostTimes("demo-3", 0.0018, 0.01, 1.0, 3),  # too few samples
        HostTimes("demo-3", 0.0010, 0.15, 1.0, 12),  # a short wait
    ],
)
def test_normal_hosts_are_not(host: HostTimes) -> None:
    assert slow(times(h3=host), 1.25) == []


def test_the_slowest_is_first_and_one_host_has_no_other() -> None:
    two = times(h2=HostTimes("b", 0.002, 0, 1, 12), h5=HostTimes("e", 0.003, 0, 1, 12))
    assert [row.host for row in slow(two, 1.25)] == [5, 2]
    assert slow({0: HostTimes("a", 0.002, 0, 1, 12)}, 1.25) == []
