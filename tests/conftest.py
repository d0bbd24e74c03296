"""What all tests share."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

import pytest
from hypothesis import settings

from tests.tools import tool
from tests.trainer.runs import Lab

# Whoever runs the tests may have a kubeconfig, and must not find runs of theirs in a real cluster.
if os.environ.get("SLIPWAY_TEST_CLUSTER") != "1":
    os.environ["KUBECONFIG"] = os.devnull
    os.environ.pop("KUBERNETES_SERVICE_HOST", None)

# The same examples on every machine: a failure that a colleague cannot repeat helps nobody. `--hypothesis-seed`
# and `--hypothesis-profile=search` look further.
settings.register_profile("slipway", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("slipway")


# Two processes run the tests side by side (make test). Trainings take turns, for two on two cores disturb each other's
# Rays and times; so do the tests of the one control plane.
_TRAIN = re.compile(
    r"tests/(trainer/|docs/|test_|cli/test_(training|sweep|submit|runs|terminal)|cluster/test_standing)"
)
_CLUSTER = re.compile(r"tests/(cluster/|charts/test_queues_live)")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for group, pattern in (("training", _TRAIN), ("cluster", _CLUSTER)):
            if pattern.match(item.nodeid):
                item.add_marker(pytest.mark.xdist_group(group))
                break


@pytest.fixture(scope="session", params=["helm", "helm3"])
def helm(request: pytest.FixtureRequest) -> Path:
    """Both supported Helms, one after the other."""
    return tool(request.param)


@pytest.fixture(scope="session")
def helm4() -> Path:
    return tool("helm")


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
