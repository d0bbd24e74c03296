"""A model under the real Ray Serve, with the config that charts/serve renders, as OpenAI's own package sees it.

tests/trainer/serving_program.py runs in an environment of its own, because torch and MaxText need different versions of
their dependencies. The first test installs it outside the checkout (6 GB, some minutes). vLLM runs on neither this
machine's CPU nor in this environment, so trainer/serving/vllm_engine.py is not tested.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.serving_run import serve


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the program found."""
    return serve(tmp_path_factory.mktemp("serving"))


def test_the_model_answers_as_transformers_does(found: dict[str, Any]) -> None:
    answers = found["answers"]
    assert answers["whole"] == answers["bare"]
    assert answers["streamed"] == answers["whole"]
    assert answers["parts"] > 5
    assert answers["chat_streamed"] == answers["chat"] != ""
    assert answers["reason"] in ("length", "stop")


def test_the_numbers_of_tokens(found: dict[str, Any]) -> None:
    answers = found["answers"]
    prompt = answers["prompt_tokens"]
    usage = {"prompt_tokens": prompt, "completion_tokens": 24, "total_tokens": prompt + 24}
    for key in ("usage", "stream_usage"):
        assert {name: answers[key][name] for name in usage} == usage
    assert answers["full"]["total_tokens"] == 256  # the context of the model


def test_a_stop_text_ends_an_answer(found: dict[str, Any]) -> None:
    answers = found["answers"]
    assert answers["stopped"] == answers["whole"][: answers["whole"].index(answers["stop"])]
    assert answers["stopped_reason"] == "stop"
    # The end of a text waits if it can be the start of a stop text.
    assert found["until"] == [[2, False], [1, True]]


def test_a_seed_repeats_an_answer(found: dict[str, Any]) -> None:
    same, again, other = found["answers"]["sampled"]
    assert same == again != other


def test_what_is_refused(found: dict[str, Any]) -> None:
    assert found["refusals"] == {
        "wrong key": "401 The API key is missing or wrong.",
        "other model": "404 The model other does not exist; this serves tiny.",
        "two answers": "400 n: Input should be 1.",
        "unknown field": "400 top_k is not supported.",
        "empty prompt": "400 The prompt is empty.",
        "long prompt": found["refusals"]["long prompt"],
        "no such token": "400 prompt has a token that the model does not have.",
        "no such role": found["refusals"]["no such role"],
        "no JSON": found["refusals"]["no JSON"],
    }
    assert "the model accepts 255." in found["refusals"]["long prompt"]
    assert found["refusals"]["no such role"].startswith("400 messages.0.")
    assert found["refusals"]["no JSON"].startswith("400 The request is not valid JSON: ")
    assert found["health"] == 200
    assert found["models"] == ["tiny"]


def test_fifty_clients_at_once(found: dict[str, Any]) -> None:
    assert found["many"]["equal"] == 50


def test_a_killed_replica_fails_only_the_requests_that_it_had(found: dict[str, Any]) -> None:
    killed = found["killed"]
    assert (killed["before"], killed["after"]) == (2, 2)
    assert len(killed["failed"]) <= killed["clients"]
    assert killed["good"] > 10


def test_a_new_model_replaces_the_old_one_without_a_failed_request(found: dict[str, Any]) -> None:
    updated = found["updated"]
    assert updated["failed"] == []
    assert updated["good"] > 10
    assert updated["answer"] != found["answers"]["whole"]
