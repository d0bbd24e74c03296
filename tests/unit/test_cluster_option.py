"""The options that a hint adds to a run's name, so that the suggested command finds the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.config.values.writer import dumps
from launcher.k8s.client import connect


@pytest.mark.parametrize(
    ("context", "namespace", "option"),
    [
        (None, None, " -n default"),
        (None, "research", " -n research"),
        ("lab", None, " --context lab -n default"),
        ("lab", "research", " --context lab -n research"),
    ],
)
def test_a_context_is_named_if_one_was_requested(
    context: str | None, namespace: str | None, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(
        dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "prod",
                "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("prod", "lab")],
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert connect(context, namespace).cli_args == option
