"""charts/run: its form and its schema say the same, and both Helms render it from a fresh checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from launcher import schema, values
from launcher.paths import charts_dir
from launcher.values import Values
from tests.charts.helm import HelmError, dump_chart, dumped, template

CHARTS = charts_dir()


def load_schema(chart: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHARTS / chart / "values.schema.json").read_text())
    return found


def chart_values(chart: str) -> Values:
    return values.read_file(str(CHARTS / chart / "values.yaml"))


def objects(node: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    found = [(path, node)] if "properties" in node else []
    for key, child in node.get("properties", {}).items():
        found += objects(child, (*path, key))
    return found


@pytest.mark.parametrize("chart", ["common", "run"])
def test_the_defaults_are_valid_and_so_is_the_schema(chart: str) -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema(chart))
    jsonschema.Draft202012Validator(load_schema(chart)).validate(chart_values(chart).tree)
    assert list(schema.violations(load_schema(chart), chart_values(chart).tree)) == []


def test_form_and_schema_have_the_same_keys() -> None:
    named = {path for path in schema.leaves(load_schema("run")) if path[0] not in ("common", "global")}
    assert named == set(chart_values("run").origins)


@pytest.mark.parametrize("chart", ["common", "run"])
def test_every_level_refuses_unknown_keys_and_requires_its_own(chart: str) -> None:
    for path, node in objects(load_schema(chart)):
        assert node["additionalProperties"] is False, path
        optional = {"common", "global", "coresPerChip", "topologies", "larger", "defaultMachineType"}
        assert set(node["required"]) | optional >= set(node["properties"]), path
        assert all("description" in child for child in node["properties"].values()), path


def test_the_form_describes_every_key_in_the_schemas_words() -> None:
    lines = (CHARTS / "run" / "values.yaml").read_text().splitlines()
    for path, origin in chart_values("run").origins.items():
        node = at(load_schema("run"), path)
        if "properties" not in node:
            assert lines[origin.line - 2].strip() == f"# -- {node['description']}"


def at(node: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        node = node["properties"][key]
    return node


def test_no_default_is_null() -> None:
    """Helm 3 keeps a null of values.yaml, Helm 4 drops it."""
    assert all(value is not None for _, value, _ in values.chart_defaults("run").leaves())


def test_it_renders_from_a_fresh_checkout(helm: Path) -> None:
    assert template(helm, CHARTS / "run").strip() == ""


def test_helm_sees_the_effective_values_that_we_see(helm: Path, tmp_path: Path) -> None:
    chart = dump_chart(tmp_path / "dump", (CHARTS / "run" / "values.yaml").read_text())
    (chart / "charts").mkdir()
    (chart / "charts" / "common").symlink_to((CHARTS / "common").resolve())
    user = tmp_path / "v.yaml"
    user.write_text("run: {name: x}\nworker: {env: {A: b}}\ncommon: {accelerators: {v4: null, v6e: {hbmGiB: 1}}}\n")
    theirs = dumped(template(helm, chart, [user]))
    assert theirs["common"].pop("global") == {}
    theirs.pop("global", None)
    assert theirs == values.with_defaults(values.load([str(user)]), values.chart_defaults("run")).tree


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("run.kind=local", "run.kind local runs on your machine: use launcher submit."),
        ("run.nmae=x", "additional properties 'nmae' not allowed"),
        ("slice=null", "missing property 'slice'"),
        ("run.maxRestarts=-1", "maxRestarts"),
    ],
)
def test_it_refuses(helm: Path, option: str, words: str) -> None:
    with pytest.raises(HelmError) as raised:
        template(helm, CHARTS / "run", [], "--set", option)
    assert words in str(raised.value)
