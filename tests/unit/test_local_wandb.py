"""Whether a local run can send its metrics to Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher import api
from launcher.backends.local import weights_and_biases


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without an API key."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_CONFIG_DIR", "WANDB_IDENTITY_TOKEN_FILE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def config(mode: str = "online", **more: Any) -> dict[str, Any]:
    return {"tracking": {"wandb": {"project": "llama", "mode": mode}}, **more}


def test_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = weights_and_biases.problem(config())
    assert sentence.startswith("tracking.wandb.project is set, but this machine has no API key of Weights & Biases.")
    assert "wandb login" in sentence and "tracking.wandb.mode: offline" in sentence
    [found] = api.check("quickstart", {"tracking.wandb.project": "llama"})
    assert str(found) == f"--set tracking.wandb.project: {sentence}"
    for good in (
        config(mode="offline"),
        config(run={"command": ["sh"]}),
        config(worker={"env": {"WANDB_API_KEY": "secret"}}),
        {"tracking": {"wandb": {"project": ""}}},
        {},
    ):
        assert weights_and_biases.problem(good) == ""
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert api.check("quickstart", {"tracking.wandb.project": "llama"}) == []


def test_a_key_of_wandb_login(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password secret\n")
    assert weights_and_biases.problem(config()) == ""
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.com")
    assert weights_and_biases.problem(config()) != ""
    monkeypatch.delenv("WANDB_BASE_URL")
    settings = home / ".config" / "wandb" / "settings"
    settings.parent.mkdir(parents=True)
    settings.write_text("[default]\nbase_url = https://wandb.example.com\n")
    assert weights_and_biases.problem(config()) != ""
    (home / ".netrc").write_text("machine wandb.example.com login user password secret\n")
    assert weights_and_biases.problem(config()) == ""
    (home / ".netrc").write_text("not a netrc file")
    assert weights_and_biases.problem(config()) != ""
