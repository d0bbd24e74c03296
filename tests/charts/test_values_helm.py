"""The launcher reads and merges values as real Helm does: both get the same scalars, texts and trees."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.config.values import files as values
from launcher.config.values.writer import dumps
from launcher.errors import LauncherError
from tests.charts.helm import HelmError, dump_chart, dumped, read_texts, template

YAML = Path(__file__).parent / "yaml"
PLAIN_SCALARS = (YAML / "words.txt").read_text().split()
"""Plain scalars that YAML parsers read differently: booleans, octals, floats, dates …"""
TAGGED = (YAML / "tagged.txt").read_text().splitlines()
"""Values with tags."""
TEXTS: list[str] = json.loads((YAML / "files.json").read_text())
"""Whole files, one feature each: tabs, escapes, merge keys, anchors, block scalars, folding, unusual keys."""
DROPPED = ("duplicate key", "Helm would drop")
"""Texts of the errors for what Helm drops silently: the first value of a duplicate key, and text after a document."""
STRICTER = re.compile(r"!!str,|\\'|:[],}]")
"""Only go-yaml reads these: a tag before a comma, an escaped ', and a colon at the end of a text."""


def read_by_launcher(text: str) -> Any:
    """Return what the launcher reads: None if it rejects the text, ... if it does so because Helm would drop a part."""
    try:
        return values.read_text(text.encode(), "values.yaml").tree
    except LauncherError as error:
        return ... if any(text in error.message for text in DROPPED) else None


def as_floats(tree: Any) -> Any:
    """Return the tree with every number as a float64, which it is for Helm."""
    if isinstance(tree, dict):
        return {key: as_floats(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [as_floats(value) for value in tree]
    if isinstance(tree, (int, float)) and not isinstance(tree, bool):
        return float(tree) + 0.0  # -0.0 is "-0" in Go's JSON, and that is 0 in Python's
    return tree


def same(a: Any, b: Any) -> bool:
    return json.dumps(as_floats(a), sort_keys=True) == json.dumps(as_floats(b), sort_keys=True)


def compare(helm: Path, folder: Path, texts: list[str]) -> None:
    read = [read_by_launcher(text) for text in texts]
    for text, launcher_tree, helm_tree in zip(texts, read, read_texts(helm, folder, texts), strict=True):
        stricter = launcher_tree is None and STRICTER.search(text)
        assert launcher_tree is ... or stricter or same(launcher_tree, helm_tree), (text, launcher_tree, helm_tree)


def test_ambiguous_scalars_as_values_and_as_keys(helm: Path, tmp_path: Path) -> None:
    texts = [f"v: {scalar}\n" for scalar in PLAIN_SCALARS + TAGGED]
    texts += [f"{scalar}: 1\n" for scalar in PLAIN_SCALARS if scalar[0] not in "!"]
    texts += [f"v: {{{scalar}: 1}}\n" for scalar in PLAIN_SCALARS if scalar[0] not in "!"]
    compare(helm, tmp_path, texts)


def test_whole_files(helm: Path, tmp_path: Path) -> None:
    compare(helm, tmp_path, TEXTS)


PIECES = [
    *("a", "b", "k: ", "b: ", "<<: ", "&x ", "*x", "*x ", "!!str ", "!!int ", "1", "010", "1e3", "yes", "é", "x y"),
    *(": ", ": ", ":", "\n", "\n", "\n  ", "\n  ", "\n    ", "\n- ", "- ", "? ", "[", "]", "{", "}", ", ", "'", '"'),
    *("\\", "#", " #", "|\n", "|-\n", "|+\n", ">\n", "|2\n", "\t", "  ", "\n \t", "1:30", "\n\n", "{b: ", "~", "%"),
]  # fmt: skip
yaml_texts = st.lists(st.sampled_from(PIECES), max_size=14).map(lambda pieces: "k: " + "".join(pieces) + "\n")


@settings(max_examples=25)
@given(st.lists(yaml_texts, min_size=40, max_size=60))
def test_random_text_is_read_alike_or_rejected_by_both(helm4: Path, texts: list[str]) -> None:
    # libyaml ends anchors and tags at other characters than Helm's parser, and so rejects more texts.
    texts = [text for text in texts if "---" not in text]
    read = [read_by_launcher(text) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        for text, launcher_tree, helm_tree in zip(texts, read, read_texts(helm4, Path(folder), texts), strict=True):
            assert (
                launcher_tree is ...
                or same(launcher_tree, helm_tree)
                or (launcher_tree is None and ("&" in text or "!" in text or STRICTER.search(text)))
            ), (
                text,
                launcher_tree,
                helm_tree,
            )


KEYS = st.sampled_from(["a", "b", "c", "yes", "1", "x.y", ""])
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([scalar for scalar in PLAIN_SCALARS if scalar[0] not in "!'\""]),
    TEXT,
)


def trees(scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[str] = KEYS) -> st.SearchStrategy[dict[str, Any]]:
    inner = st.recursive(
        scalars, lambda node: st.lists(node, max_size=3) | st.dictionaries(keys, node, max_size=4), max_leaves=12
    )
    return st.dictionaries(keys, inner, max_size=5)


def without_nulls(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    return tree


@settings(max_examples=60)
@given(st.lists(trees(SCALARS), min_size=1, max_size=3), trees(SCALARS).map(without_nulls))
def test_layers_and_defaults_merge_as_in_helm(
    helm: Path, layers: list[dict[str, Any]], defaults: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chart = dump_chart(folder / "chart", dumps(defaults))
        files = []
        for number, layer in enumerate(layers):
            files.append(str(folder / f"{number}.yaml"))
            Path(files[-1]).write_text(dumps(layer))
        user = values.load(files)
        launcher_tree = values.with_defaults(user, values.read_file(str(chart / "values.yaml"))).tree
        assert same(launcher_tree, dumped(template(helm, chart, files)))


@settings(max_examples=60)
@given(st.lists(trees(SCALARS, KEYS | TEXT), min_size=1, max_size=20))
def test_helm_reads_back_the_tree_that_dumps_wrote(helm4: Path, many: list[dict[str, Any]]) -> None:
    texts = [dumps(tree) for tree in many]
    with tempfile.TemporaryDirectory() as folder:
        for tree, helm_tree in zip(many, read_texts(helm4, Path(folder), texts), strict=True):
            assert same(tree, helm_tree)
            assert same(tree, read_by_launcher(dumps(tree)))


SETS = [
    "a=1", "a.b=c", "a.b.c=true", "a=1,b=2", "a.b=1,a.c=2", "a\\.b=1", "a={p,q}", "a={p\\,z,q}", "a={1,yes}", "a=",
    "a=null", "a.b=null", "a[0]=x", "a[2]=x", "a[0].b=1", "a[0].b=1,a[0].c=2", "a[1][0]=x", "a=x\\,y", "a=x=y",
    "a.b={}", "a=1,", "list[0]=z", "list[1]=z", "maps[0].p=2", "map.x=5", "map.y=5", "map=null", "a=hello world",
    "a={p,q},b=1", "a= x", "a.b[0].c.d=1", "list=null", "map={a}", "scalar=", "yes=1", "a=/x/y:z",
    "", "a", "a.b", "=1", "a..b=1", ".a=1", "a[x]=1", "a[-1]=1", "a[0=1", "a[0]b=1", "a={x", "scalar.b=1",
    "map[0]=1", "list.x=1", "a,b=1", "a=1,,b=2", "a[99999999]=1", "scalar[0]=1",
]  # fmt: skip
SILENT = {"", "=1", ".a=1", "a[0=1"}
"""Helm ignores these; the launcher reports that a key is missing."""


@pytest.mark.parametrize("option", SETS)
def test_set_accepts_helms_paths(helm4: Path, tmp_path: Path, option: str) -> None:
    chart = dump_chart(tmp_path / "chart")
    file = tmp_path / "v.yaml"
    file.write_text("list: [p, q]\nmaps: [{p: 1, q: 1}]\nmap: {x: 1}\nscalar: s\n")
    helm_tree: dict[str, Any] | None
    try:
        helm_tree = dumped(template(helm4, chart, [file], "--set", option))
    except HelmError:
        helm_tree = None
    launcher_tree: dict[str, Any] | None
    try:
        launcher_tree = values.load([str(file)], [option]).tree
    except LauncherError:
        launcher_tree = None
    if option in SILENT:
        assert launcher_tree is None
    elif option == "a={1,yes}":  # the only difference: the launcher reads values as in a file
        assert (launcher_tree or {})["a"] == [1, True]
    else:
        assert same(launcher_tree, helm_tree)


def test_a_null_restores_defaults_if_a_later_file_writes_the_map_again(helm: Path, tmp_path: Path) -> None:
    chart = dump_chart(tmp_path / "chart", "k: {a: 1, b: 2}\n")
    (tmp_path / "a.yaml").write_text("k: null\n")
    (tmp_path / "b.yaml").write_text("k: {a: 5}\n")
    files = [str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]
    assert dumped(template(helm, chart, files)) == {"k": {"a": 5, "b": 2}}
    defaults = values.read_file(str(chart / "values.yaml"))
    assert values.with_defaults(values.load(files), defaults).tree == {"k": {"a": 5, "b": 2}}
