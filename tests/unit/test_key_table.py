"""launcher/config/maxtext/keys.json matches the installed MaxText, and the launcher's checks agree with MaxText."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.config.checks.rules import OWNED, OWNED_WITH_DATA, maxtext, out_of_bounds, takes

SAMPLES: list[Any] = [None, True, 1, 0, -1, 7, 1.5, "x", "none", [], ["a"], {}]


@pytest.fixture(scope="module")
def from_maxtext() -> dict[str, Any]:
    """The text of the table and the values that pydantic accepts, from a new process that imports MaxText."""
    program = f"""
import json
from typing import Annotated
from tests.maxtext_tables.keys import as_text, key_table
from trainer.deferred_imports import defer_unused_imports

defer_unused_imports()
from maxtext.configs import pyconfig, types
from pydantic import TypeAdapter, ValidationError

def accepts(adapter, key, value):
    if isinstance(value, str) and value.lower() == "none":
        value = None
    if key in ("train_data_columns", "eval_data_columns", "trainable_parameters_mask", "adamw_mask"):
        value = pyconfig._coerce_to_list(value)
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True

samples = json.loads({json.dumps(json.dumps(SAMPLES))})
fields = types.MaxTextConfig.model_fields
adapters = {{
    key: TypeAdapter(Annotated[(field.annotation, *field.metadata, None)]) for key, field in fields.items()
}}
print(json.dumps({{
    "text": as_text(key_table()),
    "takes": {{key: [accepts(adapter, key, value) for value in samples] for key, adapter in adapters.items()}},
}}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_table_has_not_drifted_from_the_installed_maxtext(from_maxtext: dict[str, Any]) -> None:
    file = Path(__file__).parents[2] / "launcher" / "config" / "maxtext" / "keys.json"
    assert from_maxtext["text"] == file.read_text(), "run `python -m tests.maxtext_tables.keys`"


def test_values_are_accepted_if_maxtext_accepts_them(from_maxtext: dict[str, Any]) -> None:
    for key, row in maxtext()["keys"].items():
        for value, maxtext_accepts in zip(SAMPLES, from_maxtext["takes"][key], strict=True):
            accepted = takes(row["types"], value) and ("values" not in row or value in (None, "none", *row["values"]))
            accepted = accepted and not out_of_bounds(row, value)
            if key == "model_name":  # checked against the models, not as text
                continue
            if key in ("attention", "remat_policy") and isinstance(value, str):
                continue  # MaxText's config accepts every text, and its layers do not
            if isinstance(value, list) and value and "list" in row["types"]:
                continue  # only MaxText checks the types of the items
            if value is True and "bool" not in row["types"]:
                assert (
                    not accepted or "any" in row["types"]
                )  # the launcher is stricter on purpose: true is not a number
            else:
                assert accepted == maxtext_accepts, (key, row, value)


def test_owned_keys_are_keys_of_maxtext() -> None:
    assert set(OWNED) | set(OWNED_WITH_DATA) <= set(maxtext()["keys"])


def test_the_table_has_the_models() -> None:
    assert {"llama3-8b", "llama3.1-8b-Instruct", "gemma2-2b"} <= set(maxtext()["models"])
