"""`explain` of runs without a queue and without a cluster: the run's state is the complete answer."""

from __future__ import annotations

import pytest

from launcher.backends.base import RunStatus, State
from launcher.backends.local.backend import LocalBackend
from launcher.diagnose.explain.explanation import explain_run
from launcher.diagnose.explain.finding import Explanation
from launcher.diagnose.explain.formatting import amount, clause, join_words, one_line, ordinal
from launcher.k8s.kueue.workloads import Amounts


def local(state: State, reason: str = "") -> Explanation:
    return explain_run(LocalBackend(), RunStatus("first", "", "local", state, reason, folder="/home/me/runs/first"))


def test_a_run_of_this_machine() -> None:
    explanation = local(State.RUNNING, "compiling")
    assert explanation.as_text() == "first is running: compiling\n\n  folder: /home/me/runs/first"
    assert (explanation.state, explanation.position, explanation.suggestions) == ("running", None, ())


def test_a_run_of_this_machine_that_failed() -> None:
    explanation = local(State.FAILED, "the trainer ended with exit code 1")
    assert explanation.headline == "first failed: the trainer ended with exit code 1"
    assert explanation.suggestions == (
        "launcher logs first shows its output.",
        "launcher submit -f FILE --name first starts it again; add --continue if the values have changed.",
    )


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ({"google.com/tpu": 1}, "1 chip"),
        ({"google.com/tpu": 4096}, "4,096 chips"),
        ({"nvidia.com/gpu": 8}, "8 GPUs"),
        ({"cpu": "2.5"}, "2.5 CPUs"),
        ({"memory": 8 * 1024**3}, "8 GiB of memory"),
        ({"memory": 1536 * 1024**2}, "1.5 GiB of memory"),
        ({"example.com/widget": 3}, "3 of example.com/widget"),
    ],
)
def test_amounts(amounts: Amounts, text: str) -> None:
    from decimal import Decimal

    ((resource, value),) = amounts.items()
    assert amount(resource, Decimal(value)) == text


def test_words() -> None:
    assert join_words([]) == ""
    assert join_words(["a"]) == "a"
    assert join_words(["a", "b"], "or") == "a or b"
    assert join_words(list("abcdef")) == "a, b, c, d and 2 more"
    assert [ordinal(place) for place in (1, 2, 3, 11, 22)] == ["next", "2nd", "3rd", "11th", "22nd"]
    assert clause("The job has failed.") == "the job has failed."
    assert clause("MaxText says no.") == "MaxText says no."
    assert one_line("a\n  b " + "c" * 400, 10) == "a b ccccc…"
