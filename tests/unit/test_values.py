"""Values files: origins, layers, --set, and one sentence for each possible error in a file."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.config.values import files as values
from launcher.config.values.files import Origin, Values
from launcher.config.values.writer import dumps
from launcher.errors import LauncherError


def read(text: str, file: str = "v.yaml") -> Values:
    return values.read_text(text.encode(), file)


def test_every_key_has_its_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("# first\nrun:\n  name: x\n\n  kind: local\ndata: {files: [a,\n  b]}\n")
    Path("b.yaml").write_text("run:\n  name: z\nempty: {}\n")
    merged = values.load(["a.yaml", "b.yaml"], ["train.steps=3", "run.kind=ray-job"])
    assert merged.tree == {
        "run": {"name": "z", "kind": "ray-job"},
        "data": {"files": ["a", "b"]},
        "empty": {},
        "train": {"steps": 3},
    }
    assert list(merged.leaves()) == [
        (("run", "name"), "z", Origin("b.yaml", 2)),
        (("run", "kind"), "ray-job", Origin("--set", 2)),
        (("data", "files"), ["a", "b"], Origin("a.yaml", 6)),
        (("empty",), {}, Origin("b.yaml", 3)),
        (("train", "steps"), 3, Origin("--set", 1)),
    ]
    assert merged.origins[("run",)] == Origin("b.yaml", 1)
    assert merged.origin(("run", "nmae")) == Origin("b.yaml", 1)  # the origin of the nearest key above it
    assert merged.origin(("nowhere", "x")) is None


def test_aliases_and_merge_keys_point_to_where_a_value_is_written() -> None:
    tree = read("base: &b\n  x: 1\nk:\n  <<: *b\n  z: 2\nother: *b\n")
    assert tree.tree == {"base": {"x": 1}, "k": {"x": 1, "z": 2}, "other": {"x": 1}}
    assert tree.origins[("k", "x")].line == 2
    assert tree.origins[("other",)].line == 6


def test_defaults_fill_up_and_a_null_removes() -> None:
    user = read("a: {x: null, z: 1}\nb: null\nnew: null\nc: 5\n", "user")
    defaults = read("a: {x: 1, w: 2}\nb: {deep: 1}\nc: {was: map}\nd: 4\n", "chart")
    effective = values.with_defaults(user, defaults)
    assert effective.tree == {"a": {"z": 1, "w": 2}, "new": None, "c": 5, "d": 4}
    assert effective.origins[("a", "w")].file == "chart"
    assert effective.origins[("a", "z")].file == "user"


def test_set_value_makes_a_new_tree() -> None:
    before = read("run: {kind: local}\n")
    after = values.set_value(before, ("run", "name"), "x", Origin("--name", 1))
    assert after.tree == {"run": {"kind": "local", "name": "x"}}
    assert str(after.origin(("run", "name"))) == "--name"
    assert before.tree == {"run": {"kind": "local"}}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("3e-4", 0.0003), ("010", 8), ("yes", True), ("1:30", "1:30"), ('"010"', "010"), ("'yes'", "yes"), ("", ""),
        ("[]", []), ("[1\\,2]", [1, 2]), ("~", None), ("*x", "*x"), ("a: b", "a: b"), ("{1,a}", [1, "a"]),
    ],
)  # fmt: skip
def test_set_reads_a_value_as_in_a_file(option: str, value: Any) -> None:
    found = values.load([], [f"k={option}"]).tree["k"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n  b: 1\n  b: 2\n", 'v.yaml:3: duplicate key "b": it is already set on line 2; keep one of the two.'),
        ("y: 1\ntrue: 2\n", 'v.yaml:2: duplicate key "true": it is already set on line 1; keep one of the two.'),
        ("- a\n", "v.yaml:1: the file contains a list; a values file must be a map of keys to values."),
        ("hello\n", "v.yaml:1: the file contains a single value; a values file must be a map of keys to values."),
        ("a: 1\n---\nb: 2\n", "v.yaml:3: a second document begins here, which Helm 3 drops and Helm 4 merges;"
         " move it to its own file."),
        ("a: 1\n--- b\n", 'v.yaml:2: only a comment may follow "---" on its line.'),
        ("a:\n\tb: 1\n", "v.yaml:2: this is not valid YAML: a tab is not allowed here; indent with spaces."),
        ("a: b: c\n", 'v.yaml:1: this is not valid YAML: a ":" is not allowed here; quote the text,'
         " or fix the indentation."),
        ("  a: 1\nb: 2\n", "v.yaml:2: this is not valid YAML: this does not continue the text above it"
         " (Helm would drop it); fix the indentation."),
        ("a: .inf\n", "v.yaml:1: inf is not a valid number in JSON, and so not in Helm."),
        ("~: 1\n", 'v.yaml:1: the key "~" is empty.'),
        ("18446744073709551615: 1\n", 'v.yaml:1: the key "18446744073709551615" is too large.'),
        ("? [a]\n: 1\n", "v.yaml:1: the key is a map or a list; a key must be text."),
        ("a: *x\n", "v.yaml:1: the alias *x has no anchor above it."),
        ("a: &x {b: *x}\n", "v.yaml:1: an alias is inside the value that it refers to."),
        ("a: {<<: 1}\n", "v.yaml:1: the merge key << requires a map, an alias of a map, or a list of those."),
        ("a: !!int x\n", 'v.yaml:1: "x" is not a valid int, which its tag !!int requires.'),
        ("a: 1\nb: \x07\n", "v.yaml:2: the character U+0007 is not allowed here; write it as an escape."),
        ("a: 1\nb: x\u2028y\n", "v.yaml:2: the character U+2028 is not allowed here; write it as an escape."),
        ("a: " + "[" * 200 + "]" * 200 + "\n", "v.yaml:1: the file is nested deeper than 100 levels."),
    ],
)  # fmt: skip
def test_each_error_in_a_file_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(LauncherError) as raised:
        read(text)
    assert raised.value.message == message


def test_aliases_that_expand_to_the_whole_memory_are_rejected() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(LauncherError, match="too large once its aliases are expanded"):
        read("\n".join(lines) + "\n")


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.yaml").write_bytes("a: 1\nb: é\n".encode("latin-1"))
    Path("utf16.yaml").write_bytes("a: 1\n".encode("utf-16"))
    Path("folder").mkdir()
    for name, message in {
        "latin.yaml": "latin.yaml:2: the file is not UTF-8 text; save it as UTF-8.",
        "utf16.yaml": "utf16.yaml:1: the file is not UTF-8 text; save it as UTF-8.",
        "folder": '"folder" is a folder, but -f requires a values file.',
        "nothing.yaml": 'The values file "nothing.yaml" was not found, neither here nor among the presets.',
        "latin": 'The values file "latin" was not found. Did you mean latin.yaml?',
        "./lattin.yml": 'The values file "./lattin.yml" was not found. Did you mean latin.yaml?',
    }.items():
        with pytest.raises(LauncherError) as raised:
            values.load([name])
        assert raised.value.message == message


def test_a_file_without_permission_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> BinaryIO:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "a.yaml"
    file.write_text("a: 1\n")
    monkeypatch.setattr(Path, "open", refuse)  # tests may run as root, which may read every file
    with pytest.raises(LauncherError, match=r'The values file ".*a\.yaml" cannot be read: Permission denied\.'):
        values.load([str(file)])


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    assert values.read_text(b"\xef\xbb\xbfa: 1\r\nb: |\r\n  x\r\n  z\r\n", "v.yaml").tree == {"a": 1, "b": "x\nz\n"}


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: 1\na: 2\n")))
    with pytest.raises(LauncherError, match=r'^standard input:2: duplicate key "a"'):
        values.load(["-"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("a", '--set "a": the key "a" has no value.'),
        ("=1", '--set "=1": a key is missing.'),
        ("a..b=1", '--set "a..b=1": a key is missing.'),
        ("", '--set "": there is nothing to set.'),
        ("a[x]=1", '--set "a[x]=1": "[x" is not a valid index; an index is a number in brackets, from 0 to 65536.'),
        ("a={x", '--set "a={x": the list is not closed: a "}" is missing at its end.'),
        ("a=1,a.b=2", '--set "a=1,a.b=2": "b" cannot be set, because the value above it is not a map.'),
        ("a=1,a[0]=2", '--set "a=1,a[0]=2": [0] is the index of a list, but the value is not a list.'),
        ('a="x', '--set "a="x": "x is not valid YAML.'),
        ('a=[x,"1"]', '--set "a=[x,"1"]": [x is not valid YAML; as in Helm, a comma ends a value here.'),
    ],
)
def test_a_bad_set_is_one_sentence(option: str, message: str) -> None:
    with pytest.raises(LauncherError) as raised:
        values.load([], [option])
    assert raised.value.message == message


def test_dumps_quotes_what_yaml_would_read_otherwise() -> None:
    tree = {
        "yes": "yes",
        "a": "010",
        "b": "1e3",
        "c": "2024-01-01",
        "d": "plain text",
        "e": [],
        "f": {"g": ["x: y", {}]},
    }
    assert dumps(tree) == (
        '"yes": "yes"\na: "010"\nb: "1e3"\nc: "2024-01-01"\nd: plain text\ne: []\nf:\n  g:\n    - "x: y"\n    - {}\n'
    )


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_cause_anything_but_a_sentence(data: bytes) -> None:
    try:
        values.read_text(data, "v.yaml")
    except LauncherError as error:
        assert error.message.startswith("v.yaml:")


@given(st.text(max_size=30))
def test_no_set_causes_anything_but_a_sentence(option: str) -> None:
    try:
        values.load([], [option])
    except LauncherError as error:
        assert error.message.startswith("--set")


def test_spell_quotes_keys_with_dots() -> None:
    assert values.dotted(("worker", "env", "A.B")) == 'worker.env."A.B"'
