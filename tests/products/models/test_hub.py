"""Uploads to Hugging Face's hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from launcher.errors import LauncherError, UsageError
from launcher.products.models.weights import hub as client
from tests.hub import TOKEN, Hub, hub

# huggingface_hub passes an open file to httpx, which deprecates that.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
FILES = {"config.json": b"{}", "model.safetensors": b"weights" * 100, "README.md": b"# base\n"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with hub() as state:
        # huggingface_hub reads its variables when it is imported.
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", state.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    for name, content in FILES.items():
        (made / name).write_bytes(content)
    return made


def test_a_new_repository_is_private_and_has_one_commit(server: Hub, folder: Path) -> None:
    said: list[str] = []
    client.check("hf:example/base", public=False)
    url = client.upload(folder, "hf:example/base", private=True, say=said.append)
    assert url.startswith(f"{server.url}/example/base/commit/")
    assert server.files["example/base"] == FILES
    assert (server.private["example/base"], server.commits["example/base"]) == (True, 1)
    assert said == ["Uploading to hf:example/base."]
    with pytest.raises(LauncherError, match=r"^hf:example/base already has a model \(config\.json\)\.$"):
        client.check("hf:example/base", public=False)


def test_a_public_repository(server: Hub, folder: Path) -> None:
    client.upload(folder, "hf:example/base", private=False, say=lambda _: None)
    assert server.private["example/base"] is False
    server.files["example/base"].clear()
    with pytest.raises(LauncherError, match=r"^hf:example/base already exists and is public; to publish the model"):
        client.check("hf:example/base", public=False)
    client.check("hf:example/base", public=True)


def test_an_upload_that_fails_leaves_an_empty_repository(server: Hub, folder: Path) -> None:
    server.fail_uploads = True
    with pytest.raises(LauncherError, match=r"^hf:example/base cannot be written: Error while uploading 'model.safe"):
        client.upload(folder, "hf:example/base", private=True, say=lambda _: None)
    assert server.files["example/base"] == {}
    client.check("hf:example/base", public=False)  # it can be repeated


def test_a_token_that_the_hub_rejects(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(LauncherError) as error:
        client.check("hf:example/base", public=False)
    assert str(error.value) == ("You may not write hf:example/base: the hub accepts no token of this machine for it.")
    assert error.value.hint == "Log in with a token that may write it: hf auth login, or set HF_TOKEN."
    monkeypatch.delenv("HF_TOKEN")
    assert "HF_TOKEN" not in os.environ
    with pytest.raises(LauncherError, match=r"^You may not write hf:example/base: "):
        client.check("hf:example/base", public=False)


def test_a_hub_that_does_not_answer(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        LauncherError, match=r"^hf:example/base cannot be written: http://127\.0\.0\.1:9 does not answer"
    ):
        client.check("hf:example/base", public=False)


@pytest.mark.parametrize("text", ["hf:", "hf:base", "hf:a/b/c", "hf:a b/c", "hf:../x"])
def test_names(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not the name of a model on Hugging Face; write hf:ORG/NAME\.$"):
        client.repository(text)
