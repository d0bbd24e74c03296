"""values.yaml, values.schema.json, Chart.yaml and README.md of every chart agree."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from launcher.config.checks import schema
from launcher.config.values import files as values
from launcher.config.values.files import Values
from tests.charts import docs, schemas
from tests.charts.helm import template

CHARTS = docs.CHECKOUT / "charts"
PARENTS = [chart.name for chart in docs.parents(CHARTS)]
LIBRARY_KEYS = {"common", "global"}
Path_ = tuple[str, ...]


def load_schema(chart: str) -> dict[str, Any]:
    """Return a chart's schema, without the keys that belong to other charts and only have x-charts here."""
    found: dict[str, Any] = without_others(json.loads((CHARTS / chart / "values.schema.json").read_text()))
    return found


def without_others(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {
        key: without_others(child)
        for key, child in node.items()
        if not (isinstance(child, dict) and "x-charts" in child)
    }


def default_values(chart: str) -> Values:
    return values.read_file(str(CHARTS / chart / "values.yaml"))


def leaves(chart: str) -> Iterator[tuple[Path_, dict[str, Any]]]:
    """Yield every documented key of values.yaml with its schema: the keys without keys below them, the maps that are
    written on one line, and the empty maps, whose keys may be those of another section."""
    origins = default_values(chart).origins

    def walk(node: dict[str, Any], path: Path_) -> Iterator[tuple[Path_, dict[str, Any]]]:
        for key, child in node["properties"].items():
            here = (*path, key)
            if not path and key in LIBRARY_KEYS:
                continue
            inner = [origins[*here, name].line for name in child.get("properties", {}) if (*here, name) in origins]
            if "properties" in child and child.get("default") != {} and {*inner} != {origins[here].line}:
                yield from walk(child, here)
            else:
                yield here, child

    return walk(load_schema(chart), ())


def maps(node: Any, path: Path_ = (), *, default_values: bool = True) -> Iterator[tuple[Path_, dict[str, Any], bool]]:
    """Yield the path and schema of every map with named keys, and whether values.yaml has it.

    Other maps are in what users add: the item of a list, the entry of a map, or a key of an empty map.
    """
    default_values = default_values and node.get("default") != {}
    if "properties" in node:
        yield path, node, default_values
        for key, child in node["properties"].items():
            yield from maps(child, (*path, key), default_values=default_values)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from maps(node[key], (*path, key), default_values=False)


def at(tree: Any, path: Path_) -> Any:
    for key in path:
        tree = tree[key]
    return tree


@pytest.mark.parametrize("chart", PARENTS)
def test_the_schema_is_valid_and_accepts_the_defaults(chart: str) -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema(chart))
    # The rules refuse the defaults, which have no image; tests/charts/test_bad_values.py has each rule.
    kinds = {key: node for key, node in load_schema(chart).items() if key not in ("allOf", "if", "then")}
    jsonschema.Draft202012Validator(kinds).validate(default_values(chart).tree)
    assert list(schema.violations(load_schema(chart), default_values(chart).tree)) == []


@pytest.mark.parametrize("chart", PARENTS)
def test_values_yaml_and_schema_have_the_same_keys_in_the_same_order(chart: str) -> None:
    keys = [path for path, _ in leaves(chart)]
    named = {path[:length] for path in keys for length in range(1, len(path) + 1)}
    below = [
        path for path in default_values(chart).origins if any(path[:length] in keys for length in range(1, len(path)))
    ]
    in_values_yaml = [path for path in default_values(chart).origins if path not in below]
    assert set(in_values_yaml) == named
    assert [path for path in in_values_yaml if path in keys] == keys


@pytest.mark.parametrize("chart", PARENTS)
def test_values_yaml_describes_every_key_as_the_schema_does(chart: str) -> None:
    lines = (CHARTS / chart / "values.yaml").read_text().splitlines()
    origins = default_values(chart).origins
    for path, node in leaves(chart):
        assert lines[origins[path].line - 2].strip() == f"# -- {node['description']}", ".".join(path)
    described = [line for line in lines if line.strip().startswith("# --")]
    assert len(described) == len(list(leaves(chart))), "a description stands above no key"


@pytest.mark.parametrize("chart", PARENTS)
def test_the_schemas_defaults_are_those_of_values_yaml(chart: str) -> None:
    tree = default_values(chart).tree
    for path, node in leaves(chart):
        value = at(tree, path)
        assert value is not None, f"{'.'.join(path)} is null: Helm 3 keeps it, Helm 4 drops it"
        if "properties" in node and node.get("default") != {}:
            defaults = {key: child["default"] for key, child in node["properties"].items()}
            assert json.dumps(defaults) == json.dumps(value), ".".join(path)
        elif "default" in node or not isinstance(value, dict):
            # Compared as JSON, 1 is not true, and 1.0 is not 1.
            assert json.dumps(node.get("default", "none")) == json.dumps(value), ".".join(path)


@pytest.mark.parametrize("chart", PARENTS)
def test_every_level_is_closed_described_and_required(chart: str) -> None:
    for path, node, in_values_yaml in maps(load_schema(chart)):
        assert node["additionalProperties"] is False, path
        assert all("description" in child for key, child in node["properties"].items()), path
        # Otherwise `slice: null` ends in a nil pointer. The charts set the empty ones again (test_null_entries.py).
        empty = {key for key, child in node["properties"].items() if child.get("default") in ("", [], {})}
        if in_values_yaml:
            assert {*node.get("required", ()), *LIBRARY_KEYS, *empty} >= set(node["properties"]), path


@pytest.mark.parametrize("chart", PARENTS)
def test_the_readme_is_what_helm_docs_writes(chart: str, tmp_path: Path) -> None:
    assert (CHARTS / chart / "README.md.gotmpl").is_file()
    written = (CHARTS / chart / "README.md").read_text()
    shutil.copytree(CHARTS, tmp_path / "charts")
    docs.write(tmp_path / "charts")
    assert (tmp_path / "charts" / chart / "README.md").read_text() == written, "run `make docs`"


@pytest.mark.parametrize("chart", PARENTS)
def test_the_readme_has_every_key_in_the_order_of_values_yaml(chart: str) -> None:
    rows = re.findall(r"^\| (\S+) \| \w+ \| (.*) \| (.*) \|$", (CHARTS / chart / "README.md").read_text(), re.M)
    rows = rows[1:]  # without the head of the table
    documented = [key for key, _, description in rows if description]
    assert documented == [".".join(path) for path, _ in leaves(chart)]
    assert len(rows) == len(documented), "a key has no description"


@pytest.mark.parametrize("chart", PARENTS)
def test_the_supported_versions_are_those_that_are_checked(chart: str, helm4: Path) -> None:
    about = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text())
    readme = (CHARTS / chart / "README.md").read_text()
    stated = {key.removeprefix("slipway.dev/"): versions_text for key, versions_text in about["annotations"].items()}
    ranges = {}
    for project, versions in schemas.supported().items():
        low, high = (".".join(version.split(".")[:2]) for version in versions)
        ranges[project] = f"{low} - {high}"
        if project.lower() in stated:
            assert stated[project.lower()] == ranges[project]
            assert f"| {project} | {ranges[project]} |" in readme
    assert set(stated) <= {project.lower() for project in ranges}
    oldest = about["kubeVersion"].removeprefix(">=").removesuffix(".0-0")  # tests/cluster/test_oldest_kubernetes.py
    assert oldest == schemas.supported()["Kubernetes"][0]
    rendered = "".join(template(helm4, CHARTS / chart, [file]) for file in (CHARTS / chart / "ci").glob("*.yaml"))
    needed = {"Kubernetes", *(project for group, project in schemas.PROJECTS.items() if f"{group}/" in rendered)}
    assert {project.lower() for project in needed} <= set(stated)


@pytest.mark.parametrize("chart", [*PARENTS, "common"])
def test_files_are_short_enough_to_read(chart: str) -> None:
    for file in (CHARTS / chart / "templates").rglob("*.*"):
        lines = file.read_text().splitlines()
        assert file.name == "NOTES.txt" or max(map(len, lines)) <= 140, file  # NOTES.txt is text for users
        assert len(lines) <= 150, file


def test_few_templates_return_json_as_text() -> None:
    """A template prints YAML, or sets a key of a dict that it is given; to parse what it prints hides its result."""
    texts = [file.read_text() for chart in (*PARENTS, "common") for file in (CHARTS / chart / "templates").rglob("*.*")]
    assert sum(len(re.findall(r"\bfrom(?:Json|Yaml)", text)) for text in texts) <= 20


@pytest.mark.parametrize("chart", PARENTS)
def test_values_are_short_enough_to_read(chart: str) -> None:
    lines = (CHARTS / chart / "values.yaml").read_text().splitlines()
    keys = [line for line in lines if not line.strip().startswith("#") or line.strip().startswith("# --")]
    assert len(keys if chart == "queues" else lines) < 240


@pytest.mark.parametrize("chart", PARENTS)
def test_the_readmes_examples_render(chart: str, helm: Path, tmp_path: Path) -> None:
    """Every YAML block in a chart's README is a complete values file."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", (CHARTS / chart / "README.md").read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        (tmp_path / "values.yaml").write_text(block)
        for obj in (rendered := schemas.objects(template(helm, CHARTS / chart, [tmp_path / "values.yaml"]))):
            assert schemas.validate(obj) == []
        assert rendered


# --- The examples in values.yaml of queues --------------------------------------------------------------------------


def with_examples() -> str:
    """Return values.yaml of queues with the examples, whose lines have two spaces after their #."""
    text = (CHARTS / "queues" / "values.yaml").read_text()
    text = re.sub(r"^( *)(\w+): \{\}\n(?=\1#  )", r"\1\2:\n", text, flags=re.M)
    return re.sub(r"^( *)#(?=  )", r"\1", text, flags=re.M)


def keys_of_entries(node: dict[str, Any], path: Path_ = ()) -> Iterator[tuple[Path_, dict[str, Any]]]:
    """Yield the keys of the entries of each map. `*` is the name of an entry."""
    for key, child in node.get("properties", {}).items():
        if "*" in path:
            yield (*path, key), child
        yield from keys_of_entries(child, (*path, key))
    if isinstance(node.get("additionalProperties"), dict):
        yield from keys_of_entries(node["additionalProperties"], (*path, "*"))


def test_the_examples_of_queues_have_every_key_with_its_description() -> None:
    keys = dict(keys_of_entries(load_schema("queues")))
    # The same entries as elsewhere have an example there.
    again = (("cohorts", "*", "quota", "*"), ("teams", "*", "limitRange", "*"))
    text = with_examples()
    lines = [line.strip() for line in text.splitlines()]
    seen, described, in_a_line = set(), set(), set()
    for path, origin in values.read_text(text.encode(), "values.yaml").origins.items():
        same = next((key for key in keys if matches(key, path)), None)
        if same is None:
            continue
        seen.add(same)
        start = origin.line - 1
        while lines[start - 1].startswith("# "):
            start -= 1
        above = " ".join(line.removeprefix("# ") for line in lines[start : origin.line - 1])
        if not lines[origin.line - 1].startswith(f"{path[-1]}:"):
            in_a_line.add(same)  # that of its entry
        elif above:
            assert above == keys[same]["description"], path
            described.add(same)
    assert [key for key in keys if key not in seen and key[:4] not in again] == []
    assert seen - described <= in_a_line


def matches(key: Path_, path: Path_) -> bool:
    return len(key) == len(path) and all(part in ("*", name) for part, name in zip(key, path, strict=True))


def test_the_examples_of_queues_render(helm: Path, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(with_examples())
    rendered = schemas.objects(template(helm, CHARTS / "queues", [tmp_path / "values.yaml"]))
    assert {"Namespace", "ClusterQueue", "Cohort", "ResourceFlavor", "LimitRange"} <= {obj["kind"] for obj in rendered}
    for obj in rendered:
        assert schemas.validate(obj) == []
