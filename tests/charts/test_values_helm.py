"""Values are read and merged as real Helm does it: the same words, texts and trees go through both."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.config.values import files as values
from launcher.errors import LauncherError
from tests.charts.helm import HelmError, dump_chart, dumped, read_texts, template

YAML = Path(__file__).parent / "yaml"
WORDS = (YAML / "words.txt").read_text().split()
"""Plain scalars that parsers read differently: booleans, octals, floats, dates …"""
TAGGED = (YAML / "tagged.txt").read_text().splitlines()
"""Values with tags."""
TEXTS: list[str] = json.loads((YAML / "files.json").read_text())
"""Whole files, one idea each: tabs, escapes, merge keys, anchors, block scalars, folding, odd keys."""
DROPPED = ("is there already", "Helm would drop")
"""In the errors for what Helm drops without a word: a key's first value, and what stands behind a document."""


def ours(text: str) -> Any:
    """What we read, None for what we refuse, or ... where Helm would drop something."""
    try:
        return values.read_text(text.encode(), "values.yaml").tree
    except LauncherError as error:
        return ... if any(words in error.message for words in DROPPED) else None


def as_floats(tree: Any) -> Any:
    """Every number as the float64 that it is for Helm, whatever its spelling in JSON."""
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
    read = [ours(text) for text in texts]
    for text, mine, theirs in zip(texts, read, read_texts(helm, folder, texts), strict=True):
        assert mine is ... or same(mine, theirs), (text, mine, theirs)


def test_awkward_words_as_values_and_as_keys(helm: Path, tmp_path: Path) -> None:
    texts = [f"v: {word}\n" for word in WORDS + TAGGED]
    texts += [f"{word}: 1\n" for word in WORDS if word[0] not in "!"]
    texts += [f"v: {{{word}: 1}}\n" for word in WORDS if word[0] not in "!"]
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
def test_random_text_is_read_alike_or_refused_by_both(helm4: Path, texts: list[str]) -> None:
    # An anchor's or a tag's end is drawn differently by ruamel.yaml, which only ever refuses more.
    texts = [text for text in texts if "---" not in text]
    read = [ours(text) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        for text, mine, theirs in zip(texts, read, read_texts(helm4, Path(folder), texts), strict=True):
            assert mine is ... or same(mine, theirs) or (mine is None and ("&" in text or "!" in text)), (
                text,
                mine,
                theirs,
            )


KEYS = st.sampled_from(["a", "b", "c", "yes", "1", "x.y", ""])
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([word for word in WORDS if word[0] not in "!'\""]),
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
        chart = dump_chart(folder / "chart", values.dumps(defaults))
        files = []
        for number, layer in enumerate(layers):
            files.append(str(folder / f"{number}.yaml"))
            Path(files[-1]).write_text(values.dumps(layer))
        user = values.load(files)
        mine = values.with_defaults(user, values.read_file(str(chart / "values.yaml"))).tree
        assert same(mine, dumped(template(helm, chart, files)))


@settings(max_examples=60)
@given(st.lists(trees(SCALARS, KEYS | TEXT), min_size=1, max_size=20))
def test_helm_reads_back_the_very_tree_that_dumps_wrote(helm4: Path, many: list[dict[str, Any]]) -> None:
    texts = [values.dumps(tree) for tree in many]
    with tempfile.TemporaryDirectory() as folder:
        for tree, theirs in zip(many, read_texts(helm4, Path(folder), texts), strict=True):
            assert same(tree, theirs)
            assert same(tree, ours(values.dumps(tree)))


SETS = [
    "a=1", "a.b=c", "a.b.c=true", "a=1,b=2", "a.b=1,a.c=2", "a\\.b=1", "a={p,q}", "a={p\\,z,q}", "a={1,yes}", "a=",
    "a=null", "a.b=null", "a[0]=x", "a[2]=x", "a[0].b=1", "a[0].b=1,a[0].c=2", "a[1][0]=x", "a=x\\,y", "a=x=y",
    "a.b={}", "a=1,", "list[0]=z", "list[1]=z", "maps[0].p=2", "map.x=5", "map.y=5", "map=null", "a=hello world",
    "a={p,q},b=1", "a= x", "a.b[0].c.d=1", "list=null", "map={a}", "scalar=", "yes=1", "a=/x/y:z",
    "", "a", "a.b", "=1", "a..b=1", ".a=1", "a[x]=1", "a[-1]=1", "a[0=1", "a[0]b=1", "a={x", "scalar.b=1",
    "map[0]=1", "list.x=1", "a,b=1", "a=1,,b=2", "a[99999999]=1", "scalar[0]=1",
]  # fmt: skip
SILENT = {"", "=1", ".a=1", "a[0=1"}
"""Helm ignores these; we say that a key is missing."""


@pytest.mark.parametrize("option", SETS)
def test_set_takes_helms_paths(helm4: Path, tmp_path: Path, option: str) -> None:
    chart = dump_chart(tmp_path / "chart")
    file = tmp_path / "v.yaml"
    file.write_text("list: [p, q]\nmaps: [{p: 1, q: 1}]\nmap: {x: 1}\nscalar: s\n")
    theirs: dict[str, Any] | None
    try:
        theirs = dumped(template(helm4, chart, [file], "--set", option))
    except HelmError:
        theirs = None
    mine: dict[str, Any] | None
    try:
        mine = values.load([str(file)], [option]).tree
    except LauncherError:
        mine = None
    if option in SILENT:
        assert mine is None
    elif option == "a={1,yes}":  # the one difference: values are read as in a file
        assert (mine or {})["a"] == [1, True]
    else:
        assert same(mine, theirs)


def test_a_null_brings_defaults_back_where_a_later_file_writes_the_map_anew(helm: Path, tmp_path: Path) -> None:
    chart = dump_chart(tmp_path / "chart", "k: {a: 1, b: 2}\n")
    (tmp_path / "a.yaml").write_text("k: null\n")
    (tmp_path / "b.yaml").write_text("k: {a: 5}\n")
    files = [str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]
    assert dumped(template(helm, chart, files)) == {"k": {"a": 5, "b": 2}}
    defaults = values.read_file(str(chart / "values.yaml"))
    assert values.with_defaults(values.load(files), defaults).tree == {"k": {"a": 5, "b": 2}}
