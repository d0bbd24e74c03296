"""`python -m tests.maxtext_tables.keys` writes launcher/config/maxtext/keys.json: the keys of the installed MaxText.

It also writes launcher/config/maxtext/models.json with the models' sizes (tests/maxtext_tables/models.py).

The launcher checks `train:` with that file, so a typing error is found in a fifth of a second; the import of MaxText
takes half a minute. A test generates the table again and fails if it differs from the file.

MaxText accepts the fields of its pydantic config (maxtext.configs.types.MaxTextConfig). For each key the file contains
the types of value (int, float, bool, str, list, map, null, any), the values of an enum (or those that its code compares
with the key), and the bounds of a number: ge, gt, le, lt.
"""

from __future__ import annotations

import ast
import enum
import importlib.metadata
import json
import os
import sys
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainer.deferred_imports import defer_unused_imports

TABLE = Path(__file__).resolve().parents[2] / "launcher" / "config" / "maxtext" / "keys.json"

_BOUNDS = ("ge", "gt", "le", "lt")
# MaxText converts text to a list with one element for these keys (pyconfig._prepare_for_pydantic).
_LISTS_FROM_TEXT = ("adamw_mask", "eval_data_columns", "train_data_columns", "trainable_parameters_mask")

# Keys that are text in MaxText's config and whose choices are in its code: the file, and the name that it compares.
_COMPARED = {
    "attention": ("layers/attention_op.py", "self.attention_kernel"),
    "remat_policy": ("layers/nnx_decoders.py", "remat_policy"),
}


def key_table() -> dict[str, Any]:
    """Return the table: {"maxtext": version, "keys": {key: {"types": […], "values": […]}}, "models": […]}."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    defer_unused_imports()
    from maxtext.configs import types as config

    # MaxText's first check of names accepts the fields of its nested models (lora, dpo) at the top level, too. Its
    # config then rejects them there: they are only keys of the maps `lora` and `dpo`.
    fields = config.MaxTextConfig.model_fields
    keys = {name: describe(field.annotation, field.metadata) for name, field in sorted(fields.items())}
    for name in _LISTS_FROM_TEXT:
        keys[name]["types"] = sorted({*keys[name]["types"], "str"})
    for name, (file, variable) in _COMPARED.items():
        keys[name]["values"] = compared(Path(config.__file__).parents[1] / file, variable)
    # A name is a model only if the wheel contains its architecture. Otherwise MaxText trains its default model.
    shipped = {path.stem for path in (Path(config.__file__).parent / "models").glob("*.yml")}
    models = [name for name in keys["model_name"].pop("values") if name.replace("-Instruct", "") in shipped]
    return {
        "maxtext": importlib.metadata.version("maxtext"),
        "keys": keys,
        "models": sorted(models),
    }


def compared(file: Path, variable: str) -> list[str]:
    """Return the texts that a Python file compares with this variable or attribute, sorted."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and ast.unparse(node.left) == variable:
            texts = [one for other in node.comparators for one in ast.walk(other) if isinstance(one, ast.Constant)]
            found |= {one.value for one in texts if isinstance(one.value, str)}
    return sorted(found)


def describe(annotation: Any, metadata: Iterable[Any] = ()) -> dict[str, Any]:
    """Return the types of value that a field accepts, from its annotation; `values` if it is an enum or a Literal."""
    kinds: set[str] = set()
    values: list[Any] = []
    bounds: dict[str, Any] = {}

    def bound(constraints: Iterable[Any]) -> None:
        for constraint in constraints:
            bounds.update({name: getattr(constraint, name) for name in _BOUNDS if hasattr(constraint, name)})

    def add(kind: Any) -> None:
        origin = typing.get_origin(kind)
        if origin is typing.Annotated:
            add(typing.get_args(kind)[0])
            bound(typing.get_args(kind)[1:])
        elif origin in (typing.Union, types.UnionType):
            for member in typing.get_args(kind):
                add(member)
        elif origin is typing.Literal:
            values.extend(typing.get_args(kind))
        elif isinstance(kind, type) and issubclass(kind, enum.Enum):
            values.extend(member.value for member in kind)
        else:
            kinds.add(_kind(origin or kind))

    add(annotation)
    bound(metadata)
    kinds |= {_kind(type(value)) for value in values}
    described: dict[str, Any] = {"types": sorted(kinds)}
    if values:
        described["values"] = [value for value in values if value is not None]
    return described | bounds


def _kind(kind: Any) -> str:
    if kind is Any:
        return "any"
    if kind is types.NoneType:
        return "null"
    kinds: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (float,), "str": (str,)}
    for name, classes in (kinds | {"list": (list, tuple)}).items():
        if issubclass(kind, classes):
            return name
    return "map"  # dict and nested models


def as_text(table: dict[str, Any]) -> str:
    """Return the table as JSON with one line per key. It is compact, and a new MaxText gives a readable diff."""
    keys = ",\n".join(f"{json.dumps(key)}:{_compact(value)}" for key, value in table["keys"].items())
    head, models = json.dumps(table["maxtext"]), _compact(table["models"])
    return f'{{"maxtext":{head},\n"models":{models},\n"keys":{{\n{keys}\n}}}}\n'


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    from tests.maxtext_tables import models as model_table

    keys = key_table()
    TABLE.write_text(as_text(keys), encoding="utf-8")
    print(f"Wrote {TABLE}; tracing each model takes some minutes.", file=sys.stderr)
    models = model_table.model_table(keys["models"])
    model_table.TABLE.write_text(model_table.as_text(models), encoding="utf-8")
    print(f"Wrote {model_table.TABLE}.", file=sys.stderr)
