"""python -m trainer.generate: text from a real model with random weights, run by MLX."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import trainer_output
from launcher.products.models.inference import chat
from tests import huggingface_model
from trainer import generate, serve
from trainer.errors import ConfigError
from trainer.inference.generation import Generation, Options
from trainer.inference.model import Model, load
from trainer.inference.text import StopTexts, TextStream
from trainer.serving import openai_api

PYTHON = shlex.quote(sys.executable)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return huggingface_model.write(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(folder)


def test_greedy_text_is_that_of_a_full_forward_pass_for_each_token(model: Model) -> None:
    """Without a KV cache, each token is the most likely one after all tokens before it."""
    prompt = model.encode("def main(")
    tokens = list(prompt)
    for _ in range(24):
        logits = np.array(model.network(mx.array([tokens]))[0, -1])
        tokens.append(int(logits.argmax()))
    assert 1 not in tokens  # the model does not end the text
    expected = model.tokenizer.decode(tokens)[len(model.tokenizer.decode(prompt)) :]
    generation = Generation(model, prompt, Options(max_tokens=24, temperature=0))
    assert "".join(generation) == expected
    assert (generation.tokens, generation.prompt_tokens, generation.ended) == (24, len(prompt), "length")
    assert len(set(tokens)) > 8  # the text is not one repeated token


def test_a_seed_determines_the_text(model: Model) -> None:
    def text(**options: Any) -> str:
        return "".join(Generation(model, model.encode("import"), Options(max_tokens=20, **options)))

    assert text(seed=7) == text(seed=7)
    assert len({text(seed=seed) for seed in range(4)}) == 4
    assert text(seed=7, top_p=1e-6) == text(seed=8, top_p=1e-6) == text(temperature=0)
    assert text(seed=7, temperature=1e-3) == text(temperature=0)


def test_the_models_end_and_its_context_end_the_text(model: Model, tmp_path: Path) -> None:
    prompt = model.encode("def main(")
    generation = Generation(model, prompt, Options(max_tokens=1000, temperature=0))
    list(generation)
    assert (generation.tokens, generation.ended) == (huggingface_model.CONTEXT - len(prompt), "context")
    first = int(np.array(model.network(mx.array([prompt]))[0, -1]).argmax())
    ending = load(huggingface_model.write(tmp_path / "ending", eos_token_id=[1, first]))
    generation = Generation(ending, prompt, Options(temperature=0))
    assert (list(generation), generation.tokens, generation.ended) == ([], 0, "end")


def test_a_stop_text_ends_the_text_before_it(model: Model) -> None:
    prompt = model.encode("def main(")
    whole = "".join(Generation(model, prompt, Options(max_tokens=30, temperature=0)))
    stop = whole[10:13]
    generation = Generation(model, prompt, Options(max_tokens=30, temperature=0, stop=(stop, "not in the text")))
    assert ("".join(generation), generation.ended) == (whole[: whole.index(stop)], "stop")
    assert generation.tokens < 30


@pytest.mark.parametrize("text", ["héllo", "☃ snow", "a\U0001f600b", "naïve \u2013 \u201cquoted\u201d", "日本語 text"])
def test_no_piece_ends_within_a_character(text: str, model: Model) -> None:
    stream = TextStream(model.tokenizer, model.encode("snow"))
    pieces = [stream.add(token) for token in model.tokenizer.encode(text, add_special_tokens=False)]
    assert "".join(pieces) + stream.rest() == text
    assert "\ufffd" not in "".join(pieces)
    assert "" in pieces  # a token that is a part of a character


def test_bytes_that_are_no_character_do_not_stop_the_text(model: Model) -> None:
    tokens = [model.tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "ÿ☃"] * 5
    stream = TextStream(model.tokenizer, model.encode("a"))
    text = "".join(map(stream.add, tokens)) + stream.rest()
    assert text.count("\ufffd") >= 5


@given(st.lists(st.text("ab", max_size=4), max_size=8), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3))
def test_a_text_in_parts_is_cut_like_the_whole(parts: list[str], stops: list[str]) -> None:
    cut = StopTexts(stops)
    found = "".join(map(cut.add, parts)) + cut.rest()
    whole = "".join(parts)
    # The first stop text that is complete ends the text, at its beginning.
    ends = [(at + len(stop), at) for stop in stops if (at := whole.find(stop)) >= 0]
    assert cut.found == bool(ends)
    if ends:
        assert whole.startswith(found)
        assert not any(stop in found for stop in stops)
        assert any(whole.startswith(stop, len(found)) for stop in stops)
    else:
        assert found == whole


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (lambda path: (path / "config.json").unlink(), "is not a Hugging Face model: it has no config.json."),
        (lambda path: (path / "config.json").write_text("{"), "config.json is damaged: it is not valid JSON."),
        (lambda path: (path / "config.json").write_text("[]"), "config.json is damaged: it is not a JSON object."),
        (lambda path: (path / "model.safetensors").unlink(), "is incomplete: it has no model.safetensors."),
        (
            lambda path: (path / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "model-2.safetensors"}}'
            ),
            "is incomplete: it has no model-2.safetensors.",
        ),
        (lambda path: os.truncate(path / "model.safetensors", 5000), "cannot be loaded as a model: "),
        (lambda path: [each.unlink() for each in path.glob("tokenizer*")], "has no tokenizer: none of "),
        (lambda path: _change(path, model_type="unheard"), "Model type unheard not supported."),
        (
            lambda path: _change(path, num_hidden_layers=3),
            "cannot be loaded as a model: Missing 9 parameters: model.layers.2.",
        ),
        (lambda path: _change(path, model_type="gpt2"), "config.json does not have the keys 'n_ctx', 'n_embd', "),
    ],
)
def test_a_folder_that_is_not_a_whole_model(break_it: Any, sentence: str, tmp_path: Path) -> None:
    path = huggingface_model.write(tmp_path / "model")
    break_it(path)
    with pytest.raises(ConfigError) as error:
        load(path)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def _change(path: Path, **keys: Any) -> None:
    file = path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


# --- the command ---


def _main(monkeypatch: pytest.MonkeyPatch, prompt: bytes, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(prompt)))
    return generate.main(arguments)


@pytest.mark.parametrize(
    ("prompt", "arguments", "sentence"),
    [
        (b"", (), "The prompt is empty: it has no characters."),
        (b"\xff", (), "The prompt is not valid UTF-8: byte 1 is not part of a character."),
        (b"def" * 100, (), "but the model's context has 64; shorten the prompt."),
        (b"a", ("--max-tokens", "0"), "--max-tokens must be at least 1, not 0."),
        (b"a", ("--temperature", "-1"), "--temperature must be 0 or more, not -1."),
        (b"a", ("--temperature", "nan"), "--temperature must be 0 or more, not nan."),
        (b"a", ("--top-p", "0"), "--top-p must be more than 0 and at most 1, not 0."),
    ],
)
def test_what_cannot_work_is_one_sentence(
    prompt: bytes,
    arguments: tuple[str, ...],
    sentence: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _main(monkeypatch, prompt, "--model", str(folder), *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("Error: ") and printed.err.endswith(f"{sentence}\n") and printed.err.count("\n") == 1


def test_a_folder_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(monkeypatch, b"a", "--model", "/nowhere/model") == 2
    assert capsys.readouterr().err == "Error: There is no folder /nowhere/model.\n"


def test_the_text_is_on_stdout_while_it_is_generated(tmp_path: Path) -> None:
    """The first characters arrive long before the process ends, and the numbers are on stderr."""
    path = huggingface_model.write(
        tmp_path / "slow", max_position_embeddings=4096, hidden_size=256, intermediate_size=1024, num_hidden_layers=6
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "trainer.generate", "--model", str(path), "--max-tokens", "400", "--seed", "3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"def main(")
    process.stdin.close()
    chunks, times = [], []
    while chunk := os.read(process.stdout.fileno(), 1 << 16):
        chunks.append(chunk)
        times.append(time.monotonic())
    numbers = json.loads(process.stderr.read().splitlines()[-1])
    assert process.wait() == 0
    process.stdout.close()
    process.stderr.close()
    assert len(chunks) > 50
    # At most a tenth of the text arrives at once.
    assert max(map(len, chunks)) < len(b"".join(chunks)) / 10
    assert times[-1] - times[0] > 0.5 * numbers["seconds"]
    assert numbers["tokens"] == 400
    assert numbers["ended"] == "length"


def test_a_reader_that_has_enough_is_not_an_error(folder: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"printf def | {PYTHON} -m trainer.generate --model {folder} --max-tokens 50 | head -c 1"],
        capture_output=True,
        check=True,
    )
    assert len(done.stdout) == 1
    assert b"Traceback" not in done.stderr


def test_a_full_disk_is_one_sentence(folder: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"printf def | {PYTHON} -m trainer.generate --model {folder} > /dev/full"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == b"Error: The text cannot be written to stdout: No space left on device.\n"


def test_both_know_the_same_lines() -> None:
    assert (generate.TEXT_PREFIX, generate.DONE_PREFIX, serve.SERVING_PREFIX) == (
        trainer_output.TEXT_PREFIX,
        trainer_output.GENERATED_PREFIX,
        trainer_output.SERVING_PREFIX,
    )
    assert openai_api.NO_CHAT_TEMPLATE == chat.NO_CHAT_TEMPLATE
