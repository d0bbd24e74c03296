"""A trained model under the real Ray Serve, with the config that charts/serve renders, as OpenAI's package sees it.

tests/trainer/serving_program.py runs in an environment of its own, because torch and MaxText need different versions of
their dependencies. The first test installs it outside the checkout (6 GB, some minutes). The engine is transformers, or
vLLM if you have one for CPUs: see serving_run.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.cli.conftest import Launcher
from tests.cli.test_serve import serving, talk
from tests.trainer.runs import CHECKOUT, Run
from tests.trainer.serving_run import VLLM, serve

STEPS = (4, 16)
"""The checkpoint that is served, and the one that replaces it."""
CONTEXT = 256 if VLLM else 64
"""The context in tokens of the model that is served."""


@pytest.fixture(scope="module")
def exported(undisturbed: Run, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Export two checkpoints of a run, and give them a chat template, which a model of plain text has not."""
    folders = [tmp_path_factory.mktemp("exports") / str(step) for step in STEPS]
    for step, folder in zip(STEPS, folders, strict=True):
        launcher("export", str(undisturbed.folder), "--step", str(step), "--to", str(folder))
        shutil.copy(Path(__file__).with_name("chat_template.jinja"), folder)
    return folders


@pytest.fixture(scope="module")
def generated(exported: list[Path]) -> dict[str, Any]:
    """Return what `launcher generate` prints for the prompt of the program."""
    options = ("--temperature", "0", "--max-tokens", "24", "-o", "json")
    done: dict[str, Any] = json.loads(launcher("generate", str(exported[0]), "def main(", *options))
    return done


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the program found."""
    folder = tmp_path_factory.mktemp("serving")
    if VLLM:
        return serve(folder)
    exported, generated = (request.getfixturevalue(name) for name in ("exported", "generated"))
    (folder / "generated.txt").write_text(generated["text"])
    return serve(folder, "--models", *exported, "--generated", folder / "generated.txt")


def launcher(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "launcher", *arguments], capture_output=True, text=True, cwd=CHECKOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def outcomes(found: dict[str, Any]) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Return the whole texts that clients got in the order of their ends, all other texts, and the requests that
    failed."""
    sent = sorted(found["sent"], key=lambda one: one["ended"])
    texts = [one["text"] for one in sent if not one["error"]]
    whole = [text for text in texts if text in found["expected"]]
    return whole, [text for text in texts if text not in found["expected"]], [one for one in sent if one["error"]]


def test_a_model_answers_as_transformers_and_launcher_generate_do(
    found: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    answers = found["answers"]
    assert answers["usage"]["completion_tokens"] == answers["stream_usage"]["completion_tokens"] == 24
    # The last two are not what transformers generates, and show that the comparison can fail.
    assert answers["greedy"] == {
        "whole": True,
        "chat": True,
        "launcher generate": not VLLM,
        "other text": False,
        "shorter text": False,
    }
    assert VLLM or request.getfixturevalue("generated")["tokens"] == 24
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
    assert answers["full"]["total_tokens"] == CONTEXT


def test_a_stop_text_ends_an_answer(found: dict[str, Any]) -> None:
    answers = found["answers"]
    assert answers["stopped"] == answers["whole"][: answers["whole"].index(answers["stop"])]
    assert answers["stopped_reason"] == "stop"


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
    assert f"the model accepts {CONTEXT - 1}." in found["refusals"]["long prompt"]
    assert found["refusals"]["no such role"].startswith("400 messages.0.")
    assert found["refusals"]["no JSON"].startswith("400 The request is not valid JSON: ")
    assert found["health"] == 200
    assert found["models"] == ["tiny"]


def test_fifty_clients_at_once(found: dict[str, Any]) -> None:
    assert found["many"]["equal"] == 50


def test_a_killed_replica_fails_only_the_requests_that_it_had(found: dict[str, Any]) -> None:
    killed = found["killed"]
    assert (killed["before"], killed["after"]) == (2, 2)
    whole, others, failed = outcomes(killed)
    assert len(whole) > 10
    assert others == []
    # Those that were sent before the end of the replica, which get an error at once instead of waiting.
    assert len(failed) <= 8
    assert all(one["began"] < killed["at"] and one["ended"] < killed["at"] + 20 for one in failed)
    assert any(one["began"] > killed["at"] + 1 for one in killed["sent"])


def test_a_newer_checkpoint_replaces_the_old_one_without_a_failed_request(found: dict[str, Any]) -> None:
    updated = found["updated"]
    old, new = updated["expected"]
    assert old != new
    whole, others, failed = outcomes(updated)
    assert (others, failed) == ([], [])
    assert (whole[0], whole[-1]) == (old, new)
    assert len(whole) > 10


def test_a_trained_model_is_served_on_this_machine(exported: list[Path], tmp_path: Path) -> None:
    """With 50 clients at once. When the server is killed, each of them gets its whole answer or an error."""
    command, asked = Launcher(tmp_path / "home", tmp_path), {"model": "tiny", "max_tokens": 24, "temperature": 0}
    with serving(command, str(exported[1]), "--name", "tiny", env={"SLIPWAY_API_KEY": "key"}) as server:
        client = server.client("key")

        def completion() -> str:
            parts = [part.choices[0] for part in client.completions.create(**asked, prompt="def main(", stream=True)]
            assert parts[-1].finish_reason == "length"
            return "".join(part.text for part in parts)

        options = ("--temperature", "0", "--max-tokens", "24")
        expected = json.loads(launcher("generate", str(exported[1]), "def main(", *options, "-o", "json"))["text"]
        assert completion() == expected
        messages: Any = [{"role": "user", "content": "hello"}]
        chunks = list(client.chat.completions.create(**asked, messages=messages, stream=True))
        assert len(chunks) > 5
        answer = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert talk(command, "tiny", *options, messages="hello\n") == (0, f"{answer}\n", "")
        with ThreadPoolExecutor(50) as pool:
            assert list(pool.map(lambda _: completion(), range(50))) == [expected] * 50

        answered = threading.Event()

        def until_the_end(_: int) -> list[str]:
            texts = []
            try:
                while True:
                    texts.append(completion())
                    answered.set()
            except (openai.APIError, httpx.TransportError) as error:
                return [*texts, type(error).__name__]

        with ThreadPoolExecutor(50) as pool:
            results = pool.map(until_the_end, range(50))
            assert answered.wait(60)
            for child in psutil.Process(server.process.pid).children(recursive=True):
                child.kill()
            lists = list(results)
        assert {text for texts in lists for text in texts[:-1]} == {expected}
        assert {texts[-1] for texts in lists} <= {"APIConnectionError", "RemoteProtocolError", "ReadError", "APIError"}
        assert server.process.wait(20) == 1
    assert server.err[-2].startswith("Error: python -m trainer.serve was killed, most likely because this machine ran")
