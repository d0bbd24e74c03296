from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from tests.trainer.runs import Lab, Run


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A folder for runs, and a tokenizer of 512 pieces made from the standard library's own text."""
    import sentencepiece

    root = tmp_path_factory.mktemp("lab")
    text = root / "tokenizer.txt"
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-h]*.py"))
    text.write_text("\n".join(path.read_text(encoding="utf-8") for path in modules))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(root / "tokenizer"),
        vocab_size=512,
        model_type="bpe",
        byte_fallback=True,
        input_sentence_size=4000,
        max_sentence_length=8192,
        minloglevel=2,
    )
    runs = root / "runs"
    runs.mkdir()
    return Lab(runs, root / "tokenizer.model")


@pytest.fixture(scope="session")
def undisturbed(lab: Lab) -> Run:
    """Two hosts under Ray, from start to end with nothing in the way: what every disturbed run must equal."""
    run = lab.train(lab.config("undisturbed"))
    assert run.process.returncode == 0, run.output()[-4000:]
    return run
