"""The schemas for editors: generated, valid, and true of every preset."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from launcher import paths
from launcher.config.values.files import read_file, read_text
from tests.docs import overlay_schema

PRESETS = sorted(paths.presets_dir().rglob("*.yaml"))


def _validator(preset: Path) -> jsonschema.Draft202012Validator:
    """Return the validator of the schema that a preset names."""
    named = preset.read_text(encoding="utf-8").rpartition("# yaml-language-server: $schema=")[2].splitlines()[0]
    return _validator_of((preset.parent / named).resolve())


@cache
def _validator_of(file: Path) -> jsonschema.Draft202012Validator:
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_schemas_are_as_generated() -> None:
    for file, text in overlay_schema.files().items():
        assert file.read_text(encoding="utf-8") == text, "run `make docs`"


def test_every_preset_names_its_schema_and_is_valid() -> None:
    for preset in PRESETS:
        assert overlay_schema.modeline(preset) in preset.read_text(encoding="utf-8"), f"{preset}: run `make docs`"
        found = _validator(preset).iter_errors(read_file(str(preset)).tree)
        errors = [f"{error.json_path}: {error.message}" for error in found]
        assert errors == [], preset


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("runs: {}", "$"),
        ("run: {kinds: local}", "$.run"),
        ("train: {stepz: 5}", "$.train"),
        ("train: {steps: many}", "$.train.steps"),
        ("train: {model_name: llama9}", "$.train.model_name"),
        ("train: {run_name: x}", "$.train"),
        ("slice: {provisioning: cheap}", "$.slice.provisioning"),
    ],
)
def test_a_mistake_is_an_error_of_its_key(text: str, path: str) -> None:
    (error,) = _validator(paths.presets_dir() / "quickstart.yaml").iter_errors(read_text(text.encode(), "x").tree)
    assert error.json_path == path


def test_null_and_single_keys_are_valid() -> None:
    validator = _validator(paths.presets_dir() / "quickstart.yaml")
    for text in ("run: {name: null}", "train: null", "worker: {env: null}", "train: {learning_rate: 3e-4}"):
        assert list(validator.iter_errors(read_text(text.encode(), "x").tree)) == []
    queues = _validator(paths.presets_dir() / "queues" / "one-team.yaml")
    assert list(queues.iter_errors({"teams": {"a": None}})) == []
    assert list(queues.iter_errors({"run": {}})) != []
