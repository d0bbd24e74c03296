"""A trained model under the real Ray Serve, with the config that charts/serve renders, as OpenAI's package sees it.

The engine is MLX, or vLLM if you have one for CPUs: see serving_run.py.
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
import mlx.core as mx
import numpy as np
import openai
import psutil
import pytest

from tests.cli.conftest import Launcher
from tests.products.models.cli.test_serve import serving, talk
from tests.trainer.runs import CHECKOUT, Run
from tests.trainer.serving_run import RANDOM_CONTEXT, VLLM, random_models, serve
from trainer.inference.model import load

STEPS = (4, 16)
"""The checkpoint that is served, and the one that replaces it."""
CONTEXT = RANDOM_CONTEXT if VLLM else 64
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
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the model that is served first, and the one that replaces it."""
    if VLLM:
        return random_models(tmp_path_factory.mktemp("random"))
    exported: list[Path] = request.getfixturevalue("exported")
    return exported


@pytest.fixture(scope="module")
def found(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the program found."""
    return serve(tmp_path_factory.mktemp("serving"), models)


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


class Greedy:
    """Compares texts with the tokens that the model itself rates highest, computed by MLX without a KV cache.

    tests/trainer/test_weights.py compares these logits with MaxText's. An answer is a text, which does not determine
    its tokens. So the tokens are searched: at each position, those whose logit in one forward pass over all tokens
    before is at most TOLERANCE below the highest. Two tokens qualify only if rounding decides between them, because the
    cache and other libraries add in another order.
    """

    TOLERANCE = 1e-3

    def __init__(self, folder: Path) -> None:
        self.model = load(folder)

    def explains(self, prompt: list[int], text: str, count: int, *, ended: bool = False) -> bool:
        """Return whether `count` tokens exist that have the text, and of which each has the highest logit.

        `ended`: the last of them is the token that ends a text.
        """
        candidates: list[list[int]] = [[]]
        for number in range(count):
            last = ended and number == count - 1
            longer = [[*tokens, token] for tokens in candidates for token in self._highest(prompt + tokens)]
            candidates = [
                tokens
                for tokens in longer
                # A token can end within a character, which is decoded as U+FFFD until the rest follows.
                if (tokens[-1] in self.model.end_tokens) == last
                and text.startswith(self._text(prompt, tokens).rstrip("\ufffd"))
            ]
        return any(self._text(prompt, tokens) == text for tokens in candidates)

    def _highest(self, tokens: list[int]) -> list[int]:
        logits = np.array(self.model.network(mx.array([tokens]))[0, -1].astype(mx.float32))
        (highest,) = (logits >= logits.max() - self.TOLERANCE).nonzero()
        return list(map(int, highest))

    def _text(self, prompt: list[int], tokens: list[int]) -> str:
        decode = self.model.tokenizer.decode
        before, whole = (decode(all_, skip_special_tokens=True) for all_ in (prompt, prompt + tokens))
        return str(whole).removeprefix(str(before))


def test_an_answer_has_the_most_likely_tokens(found: dict[str, Any], models: list[Path]) -> None:
    answers = found["answers"]
    assert answers["usage"]["completion_tokens"] == answers["stream_usage"]["completion_tokens"] == 24
    bare, prompt, whole = Greedy(models[0]), answers["prompt"], answers["whole"]
    assert bare.explains(prompt, whole, 24)
    ended = answers["chat_reason"] == "stop"
    assert bare.explains(answers["question"], answers["chat"], answers["chat_tokens"], ended=ended)
    # These have other tokens, and show that the comparison can fail.
    assert not bare.explains(prompt, whole[::-1], 24)
    assert not bare.explains(prompt, whole, 23)
    if not VLLM:
        options = ("--temperature", "0", "--max-tokens", "24", "-o", "json")
        generated = json.loads(launcher("generate", str(models[0]), "def main(", *options))
        assert generated["tokens"] == 24
        assert bare.explains(prompt, generated["text"], 24)
    assert answers["streamed"] == answers["whole"]
    assert answers["parts"] > 5
    assert answers["chat_streamed"] == answers["chat"] != ""
    assert answers["reason"] in ("length", "stop")


def test_the_numbers_of_tokens(found: dict[str, Any]) -> None:
    answers = found["answers"]
    prompt = len(answers["prompt"])
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
