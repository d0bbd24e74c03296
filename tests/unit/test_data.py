"""Files, folders and globs are divided into units, and units into documents."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer import data
from trainer.data import corpus as corpora
from trainer.data import text as text_files
from trainer.errors import ConfigError


def read_all(units: list[data.Unit], field: str = "text") -> list[str]:
    return [text for unit in units for text in data.documents(unit, field)]


def corpus(*files: Path | str, **more: object) -> data.Corpus:
    return data.open_corpus({"files": [str(file) for file in files], "heldOut": {"fraction": 0}, **more})


@settings(deadline=None, max_examples=200)
@given(
    text=st.text(st.sampled_from("ab\n é中𝄞\r"), min_size=1, max_size=400),
    length=st.integers(min_value=1, max_value=50),
)
def test_units_of_text_join_to_the_file(tmp_path_factory: pytest.TempPathFactory, text: str, length: int) -> None:
    """No text is lost, duplicated or damaged, even if a unit ends within a character."""
    path = tmp_path_factory.mktemp("text") / "a.txt"
    raw = text.encode()
    path.write_bytes(raw)
    units = [data.Unit(str(path), at, min(at + length, len(raw))) for at in range(0, len(raw), length)]
    with path.open("rb") as file:
        pieces = [text_files._read_range(file, unit, lines_only=False)[0] for unit in units]
    assert b"".join(pieces) == raw
    for piece in pieces:
        piece.decode()


@settings(deadline=None, max_examples=100)
@given(rows=st.lists(st.text(max_size=30), min_size=1, max_size=30), length=st.integers(min_value=1, max_value=80))
def test_units_of_json_lines_hold_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], length: int
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    path.write_text("".join(json.dumps({"body": row}) + "\n" for row in rows))
    size = path.stat().st_size
    units = [data.Unit(str(path), at, min(at + length, size)) for at in range(0, size, length)]
    assert read_all(units, "body") == [row.replace("\0", "") for row in rows]


def test_a_json_line_longer_than_a_read_is_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "_NEWLINE_WINDOW", 8)  # a real window needs lines of 64 KiB
    path = tmp_path / "a.jsonl"
    rows = ["short", "long " * 20, "é" * 30, "the last line has no newline"]
    path.write_text("\n".join(json.dumps({"body": row}) for row in rows))
    size = path.stat().st_size
    units = [data.Unit(str(path), at, min(at + 25, size)) for at in range(0, size, 25)]
    assert read_all(units, "body") == [row.replace("\0", "") for row in rows]


def test_parquet_rows_are_documents_whatever_the_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [f"document {index}" for index in range(50)]
    pq.write_table(pa.table({"text": rows, "id": list(range(50))}), path, row_group_size=20)
    found = corpus(path)
    assert read_all(list(found.train)) == rows
    assert len(found.train) > 3


def test_a_folder_gives_its_files_of_all_kinds_sorted(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.md").write_text("two")
    (tmp_path / "one.txt").write_text("one")
    (tmp_path / "three.jsonl").write_text('{"text": "three"}\n')
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    assert read_all(list(corpus(tmp_path).train)) == ["two", "one", "three"]
    assert read_all(list(corpus(tmp_path / "*.txt").train)) == ["one"]
    assert read_all(list(corpus(str(tmp_path / "**" / "*.md")).train)) == ["two"]


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert read_all(list(corpus(tmp_path).train)) == ["hello"]


def test_what_is_held_out_is_not_trained_on_and_nothing_is_lost(tmp_path: Path) -> None:
    for index in range(40):
        (tmp_path / f"{index:02}.txt").write_text(f"text {index}")
    found = data.open_corpus({"files": [str(tmp_path)], "heldOut": {"fraction": 0.1}})
    train, held_out = read_all(list(found.train)), read_all(list(found.held_out))
    assert len(held_out) == 4
    assert sorted([*train, *held_out]) == sorted(f"text {index}" for index in range(40))
    assert not set(train) & set(held_out)


def test_one_small_file_can_be_split_over_hosts_and_held_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one line of text\n" * 4000)
    found = data.open_corpus({"files": [str(tmp_path)], "heldOut": {"fraction": 0.05}})
    assert len(found.train) > 16
    assert len(found.held_out) >= 2


def test_a_large_file_is_listed_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.txt"
    with path.open("wb") as file:
        file.write(b"x")
        file.truncate(200 << 30)  # 200 GiB of holes
    found = corpus(path)
    assert found.size == 200 << 30
    assert {unit.stop - unit.start for unit in found.train} == {1 << 20}


def test_hosts_share_the_documents_and_the_position_can_be_restored(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / f"{index:02}.txt").write_text(f"text {index}")
    found = corpus(tmp_path)

    def stream(host: int, epochs: int | None = 1) -> Any:
        return data.train_dataset(
            found, held_out=False, host_index=host, host_count=2, shuffle=True, seed=7, epochs=epochs
        )

    shares = [[element["text"] for element in stream(host)] for host in (0, 1)]
    assert sorted(shares[0] + shares[1]) == sorted(f"text {index}" for index in range(20))
    assert shares[0] != sorted(shares[0])

    first = iter(stream(0, epochs=None))
    for _ in range(13):
        next(first)
    state = first.get_state()
    expected = [next(first)["text"] for _ in range(9)]
    again = iter(stream(0, epochs=None))
    again.set_state(json.loads(json.dumps(state)))
    assert [next(again)["text"] for _ in range(9)] == expected


def test_the_corpus_of_every_machine_is_the_standard_library() -> None:
    found = data.open_corpus({"corpus": "python", "heldOut": {"fraction": 0.02}})
    assert found.size > 5_000_000
    assert found.held_out
    data.check_corpus(found)


def write_invalid(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "{path} is empty"),
        ("a.txt", b" \n \n", "{path}: the training part of the data contains no text"),
        ("a.txt", b"good\n\xff\xfe bad", "{path} is not UTF-8 text: byte 0xff at offset 5, in line 2; convert"),
        (
            "a.jsonl",
            b'{"text": "x"}\nnot json\n',
            "{path}: line 2 is not valid JSON (Expecting value); write each line as",
        ),
        ("a.jsonl", b"{}", '{path}: line 1 has no field "text" (it has none); set data.field.'),
        ("a.jsonl", b'{"body": "x"}\n', '{path}: line 1 has no field "text" (it has body)'),
        (
            "a.jsonl",
            b'{"messages": []}\n',
            "(it has messages); set data.field, or for conversations tuning.method: sft.",
        ),
        ("a.jsonl", b'{"chosen": 1, "rejected": 2}\n', "; set data.field, or for pairs tuning.method: dpo."),
        ("a.jsonl", b"[1]\n", '{path}: line 1 is not a JSON object; write each line as {{"text": "..."}}.'),
        (
            "a.jsonl",
            '{"text": "a"}\n'.encode("utf-16-le"),
            "{path}: line 1 contains NUL bytes; convert the file to UTF-8.",
        ),
        ("a.jsonl", b'{"text": "a"}\n{"text": ["a"]}', '{path}: line 2: the field "text" is a list, not text'),
        ("a.jsonl", b'{"text": 1}', '{path}: line 1: the field "text" is a number, not text'),
        pytest.param(
            "a.jsonl",
            b'{"text": "a", "n": ' + b"1" * 5000 + b"}",
            "{path}: line 1 contains a number of thousands of digits; remove",
            id="long number",
        ),
        pytest.param(
            "a.jsonl", b"[" * 100_000, "{path}: line 1 contains lists or objects that are nested too deeply", id="deep"
        ),
        ("a.parquet", b"no parquet", "{path} is not a Parquet file: "),
        ("a.csv", b"a,b", "{path} is not a .txt, .md, .jsonl or .parquet file"),
        ("a.jsonl.gz", b"a", "{path} is not a .txt, .md, .jsonl or .parquet file. It is compressed; decompress it."),
        (
            "a.md",
            "\u0436 of a text of windows".encode("utf-16-le"),
            "{path} seems to be UTF-16; convert the file to UTF-8",
        ),
        ("a.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "{path} is a pointer of Git LFS"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = write_invalid(tmp_path, name, content)
    with pytest.raises(ConfigError) as error:
        data.check_corpus(corpus(path))
    assert message.format(path=path) in str(error.value)


def test_a_parquet_column_that_is_missing_or_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), path)
    with pytest.raises(ConfigError, match=r'has no column "text" \(it has id\)'):
        data.check_corpus(corpus(path))
    with pytest.raises(ConfigError, match=r'the column "id" has the type int64, not text'):
        data.check_corpus(corpus(path, field="id"))
    pq.write_table(pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), path)
    with pytest.raises(ConfigError, match=r'has two columns "text" \(it has text, text\)'):
        data.check_corpus(corpus(path))
    with pytest.raises(ConfigError, match=r'a\.parquet has two columns "text"; rename or remove one\.$'):
        list(data.rows(corpus(path).train[0]))


def test_a_parquet_file_without_rows_or_with_damaged_pages_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with pytest.raises(ConfigError, match=r"a\.parquet has no rows; remove the file, or fill it"):
        corpus(path)
    pq.write_table(pa.table({"text": [f"document {index}" for index in range(500)]}), path, compression="zstd")
    raw = path.read_bytes()
    path.write_bytes(raw[:40] + bytes(len(raw) // 3) + raw[40 + len(raw) // 3 :])  # the footer is intact
    with pytest.raises(ConfigError, match=r"Cannot read .*a\.parquet: .*; write it again\.$"):
        data.check_corpus(corpus(path))


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    ],
    ids=str,
)
def test_a_parquet_column_of_any_type_of_text_is_read_without_its_nulls(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(["one", None, "three"]).cast(kind)}), path)
    assert read_all(list(corpus(path).train)) == ["one", "three"]


def test_the_held_out_part_of_a_parquet_file_has_text_although_its_last_rows_have_none(tmp_path: Path) -> None:
    rows = [f"document {number} with some text" for number in range(60)] + [None] * 5
    pq.write_table(pa.table({"text": rows}), tmp_path / "a.parquet")
    for hosts in (1, 2):
        found = data.open_corpus({"files": [str(tmp_path / "a.parquet")], "heldOut": {"fraction": 0.02}}, hosts)
        data.check_corpus(found)
        assert len(found.held_out) == hosts


def test_a_parquet_column_of_nulls_has_no_text(tmp_path: Path) -> None:
    """Polars writes one if no row of a file has text."""
    pq.write_table(pa.table({"text": pa.nulls(3)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["one"]}), tmp_path / "b.parquet")
    assert read_all(list(corpus(tmp_path).train)) == ["one"]


@pytest.mark.parametrize("suffix", data.SUFFIXES)
def test_nul_characters_are_no_text(tmp_path: Path, suffix: str) -> None:
    """Blocks of a file that a crash left unwritten contain zeros."""

    def write(name: str, *rows: str) -> Path:
        path = tmp_path / f"{name}{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.table({"text": list(rows)}), path)
        elif suffix == ".jsonl":
            path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows) + "\0" * 9)
        else:
            path.write_text("".join(rows))
        return path

    path = write("part", "one\0\0", "\0" * 5000)
    assert "".join(read_all(list(corpus(path).train))) == "one"
    with pytest.raises(ConfigError, match="contains no text; add files with text"):
        data.check_corpus(corpus(write("whole", "\0" * 5000)))


def test_rows_of_parquet_have_no_nulls_of_other_rows_and_no_times(tmp_path: Path) -> None:
    """Arrow gives the arguments of each tool the keys of all tools. Python cannot have each of its dates."""
    path = tmp_path / "a.parquet"
    calls = [{"name": "add", "arguments": {"a": 1}}, {"name": "find", "arguments": {"word": "b\0"}}]
    far = pa.array([10**7], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"calls": [calls], "day": far, "id": pa.nulls(1)}), path)
    found = data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0}}, whole_rows=True)
    calls[1]["arguments"] = {"word": "b"}
    assert [row for unit in found.train for row, _ in data.rows(unit)] == [{"calls": calls}]
    assert json.loads(read_all(list(found.train), data.ROWS)[0]) == {"calls": calls}


def test_rows_of_cut_text_are_read_without_halves_of_characters(tmp_path: Path) -> None:
    path = write_invalid(tmp_path, "a.jsonl", b'{"messages": [{"content": "cut \\ud83d\\u0000"}], "n": 1}\n')
    found = data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0}}, whole_rows=True)
    rows = [row for unit in found.train for row, _ in data.rows(unit)]
    assert rows == [{"messages": [{"content": "cut \ufffd"}], "n": 1}]


def test_json_of_cut_text_is_read_without_nulls_and_halves_of_characters(tmp_path: Path) -> None:
    (tmp_path / "A.JSONL").write_text(
        '{"text": "one"}\n{"text": null}\n{"text": "cut \\ud83d"}\n{"text": "\\ud83d\\ude00"}\n'
    )
    assert read_all(list(corpus(tmp_path).train)) == ["one", "cut \ufffd", "\U0001f600"]


def test_what_joins_of_files_leave_between_lines_is_no_text(tmp_path: Path) -> None:
    """A byte order mark in the middle, and the end-of-file character of DOS."""
    line = b'\xef\xbb\xbf{"text": "one"}\n'
    path = write_invalid(tmp_path, "a.jsonl", line * 2 + b"\x1a")
    assert read_all(list(corpus(path).train)) == ["one", "one"]


def test_names_and_kinds_of_files_do_not_stop_a_folder(tmp_path: Path) -> None:
    """A name that is not UTF-8, a pipe without a writer, a link to a folder."""
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("text")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "link").symlink_to(tmp_path)
    found = corpus(tmp_path)
    assert read_all(list(found.train)) == ["text"]
    assert found.left_out == "1 file is read; 1 empty file, 1 linked folder are left out."


def test_files_of_a_folder_that_are_not_read_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    assert corpus(tmp_path).left_out == ""
    for name in ("b.jsonl.gz", "c.jsonl.gz", "d.csv", "README", ".hidden.md", ".git/config.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "empty.md").touch()
    found = corpus(tmp_path)
    assert [Path(unit.path).name for unit in found.train] == ["a.txt"]
    assert found.summary()["left_out"] == (
        "1 file is read; 2 .gz files, 1 file without an ending, 1 .csv file, 1 empty file, 1 hidden file are left out."
    )


def test_a_glob_leaves_out_what_a_folder_leaves_out(tmp_path: Path) -> None:
    for name in ("a.txt", ".hidden.txt", ".git/b.txt", "spark.txt/part.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "empty.txt").touch()
    found = corpus(tmp_path / "*.txt")
    assert [unit.path for unit in found.train] == [str(tmp_path / "a.txt")]
    assert found.left_out == "1 file is read; 1 empty file, 1 folder, 1 hidden file are left out."
    assert len(corpus(tmp_path / "**" / "*.txt").train) == 2
    assert len(corpus(tmp_path / ".git" / "*.txt").train) == 1
    assert len(corpus(tmp_path / ".*.txt").train) == 1
    with pytest.raises(ConfigError, match=r'no file matches ".*/s\*" \(1 folder is left out\); check the pattern'):
        corpus(tmp_path / "s*")


def test_a_file_with_two_paths_is_read_once_and_not_held_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.txt").symlink_to("a.txt")
    found = corpus(tmp_path, tmp_path / "." / ".." / tmp_path.name / "a.txt")
    assert [unit.path for unit in found.train] == [str(tmp_path / "a.txt")]
    assert found.left_out == "1 file is read; 2 repeated files are left out."
    with pytest.raises(ConfigError, match=r"a\.txt is in both data.files and data.heldOut.files"):
        corpus(tmp_path / "a.txt", heldOut={"files": [str(tmp_path / "b.txt")]})


def test_a_file_that_was_removed_or_is_a_broken_link_is_named(tmp_path: Path) -> None:
    path = write_invalid(tmp_path, "a.txt", b"text")
    found = corpus(tmp_path)
    path.unlink()
    with pytest.raises(ConfigError, match=r"Cannot read .*a\.txt: No such file or directory"):
        data.check_corpus(found)
    path.symlink_to(tmp_path / "nowhere.txt")
    with pytest.raises(ConfigError, match=r"data\.files: cannot read .*a\.txt: No such file or directory"):
        corpus(tmp_path)


def test_a_path_that_the_system_refuses_is_named(tmp_path: Path) -> None:
    """A mount that is gone has the same result, with another reason."""
    with pytest.raises(ConfigError, match=r"data\.files: cannot read .*: File name too long"):
        corpus(tmp_path / ("a" * 300 + ".txt"))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet"])
def test_an_error_that_a_restart_may_fix_does_not_end_the_run(tmp_path: Path, name: str) -> None:
    """A ConfigError would: nothing restarts a run that can never work."""
    path = tmp_path / name
    path.symlink_to("/proc/self/mem")  # its first byte cannot be read: EIO, as of a mount that fails
    with pytest.raises(OSError, match="Input/output error"):
        corpus(tmp_path)
    if not name.endswith("parquet"):  # pyarrow finds the file empty
        with pytest.raises(OSError, match="Input/output error"):
            list(data.documents(data.Unit(str(path), 1, 9), "text"))


def test_a_large_corpus_is_checked_at_the_ends_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "_CHECK_WHOLE", 10)
    good = write_invalid(tmp_path, "a.txt", b"good text\n" * 2000)
    assert len(corpus(good).train) > 2
    for at, refused in ((0, True), (10_000, False), (19_990, True)):
        path = write_invalid(tmp_path, "b.txt", b"good text\n" * 2000)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\xff\xfe")
        check = pytest.raises(ConfigError, match=f"not UTF-8 text: byte 0xff at offset {at}")
        with check if refused else contextlib.nullcontext():
            data.check_corpus(corpus(good, path))


def test_missing_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        corpus(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"~nobody-here/a\.txt does not exist"):
        corpus("~nobody-here/a.txt")
    with pytest.raises(ConfigError, match=r"hf:TinyStories is not a data set of Hugging Face; write hf:ORG/NAME,"):
        corpus(Path("hf:TinyStories"))
    with pytest.raises(ConfigError, match=r'no file matches ".*/\*.txt"'):
        corpus(tmp_path / "*.txt")
    with pytest.raises(ConfigError, match=r"has no \.txt, \.md, \.jsonl or \.parquet file"):
        corpus(tmp_path)
    with pytest.raises(ConfigError, match='the only corpus on every machine is "python"'):
        data.open_corpus({"corpus": "wikipedia"})


def test_other_files_can_be_held_out(tmp_path: Path) -> None:
    train, held_out = (write_invalid(tmp_path, name, name.encode()) for name in ("train.txt", "held-out.txt"))
    found = data.open_corpus({"files": [str(train)], "heldOut": {"files": [str(held_out)]}})
    assert (read_all(list(found.train)), read_all(list(found.held_out))) == (["train.txt"], ["held-out.txt"])
    assert (found.files, found.size) == (2, 21)
    held_out.write_bytes(b" \n")
    with pytest.raises(ConfigError, match=r"held-out\.txt: the held-out part of the data contains no text"):
        data.check_corpus(data.open_corpus({"files": [str(train)], "heldOut": {"files": [str(held_out)]}}))


def test_text_that_is_trained_on_and_held_out_is_refused(tmp_path: Path) -> None:
    path = write_invalid(tmp_path, "a.txt", b"text")
    with pytest.raises(ConfigError, match=r"is in both data.files and data.heldOut.files"):
        data.open_corpus({"files": [str(path)], "heldOut": {"files": [str(path)]}})


def write_lines(folder: Path, size: int, files: int = 1) -> list[Path]:
    paths = [folder / f"{index:02}.txt" for index in range(files)]
    for path in paths:
        path.write_text("a line of text that is neither long nor short\n" * (size // files // 46))
    return paths


@pytest.mark.parametrize(("size", "files"), [(30_000, 1), (1_400_000, 1), (1_400_000, 30), (58_000_000, 1)])
def test_every_host_has_text_to_train_on_and_held_out_text(tmp_path: Path, size: int, files: int) -> None:
    write_lines(tmp_path, size, files)
    found = data.open_corpus({"files": [str(tmp_path)], "heldOut": {"fraction": 0.02}}, hosts=2)
    assert len(found.held_out) >= 2
    assert not set(found.train) & set(found.held_out)
    assert sum(unit.stop - unit.start for unit in [*found.train, *found.held_out]) == found.size
    share = sum(unit.stop - unit.start for unit in found.held_out) / found.size
    assert share < (0.03 if size > 1_000_000 else 0.08)
    assert all(read_all([unit]) for unit in [*found.train, *found.held_out])


def test_text_with_enough_pieces_is_cut_as_before(tmp_path: Path) -> None:
    """A run that resumes has its position in the list of pieces, which must therefore never change."""
    (path,) = write_lines(tmp_path, 1_400_000)
    found = data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0.02}}, hosts=1)
    length = path.stat().st_size // 64
    assert found.held_out == [data.Unit(str(path), 49 * length, 50 * length)]
    assert len(found.train) == 64
    found = data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0.05}}, hosts=2)
    assert [unit.start // length for unit in found.held_out] == [19, 39, 59]


def test_every_host_has_text_even_if_the_lines_are_longer_than_the_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"{index} " + "long " * 600}) + "\n" for index in range(12)))
    found = data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0.02}}, hosts=4)
    assert len(found.held_out) == 4
    assert all(read_all([unit]) for unit in [*found.train, *found.held_out])
    assert len(read_all([*found.train, *found.held_out])) == 12


@pytest.mark.parametrize(
    ("lines", "size", "hosts"), [(55, 8_000, 1), (20, 200_000, 1), (5, 20_000, 1), (2, 500_000, 1), (40, 20_000, 4)]
)
def test_whole_lines_are_held_out_although_they_are_long(tmp_path: Path, lines: int, size: int, hosts: int) -> None:
    path = tmp_path / "a.jsonl"
    documents = [f"{index} {'long ' * (size // 5)}" for index in range(lines)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    found = data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0.02}}, hosts=hosts)
    data.check_corpus(found)
    for part in (found.train, found.held_out):
        assert all(read_all(list(part[host::hosts])) for host in range(hosts))
    assert sorted(read_all([*found.train, *found.held_out])) == sorted(documents)


def test_one_long_line_cannot_be_split(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "long " * 100_000}) + "\n")
    with pytest.raises(ConfigError, match=r"too short to hold out .*: it has 1 piece .*, and needs two; add text, or"):
        data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0.02}})


def test_rows_of_parquet_are_cut_for_many_hosts(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"document {index}" for index in range(500)]}), path)
    found = data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0.02}}, hosts=8)
    assert len(found.held_out) == 8
    assert len(read_all([*found.train, *found.held_out])) == 500


@pytest.mark.parametrize("line", ['{"text": null}', '{"text": ""}', '{"text": " \\n"}'])
def test_lines_without_text_are_not_text_that_is_too_short(tmp_path: Path, line: str) -> None:
    path = write_invalid(tmp_path, "a.jsonl", f"{line}\n".encode() * 5000)
    with pytest.raises(
        ConfigError, match=r"a\.jsonl \(.* bytes\) contains no text; add files with text, or set data\.field"
    ):
        data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0.02}})


def test_text_that_is_too_short_names_its_size_and_what_to_do(tmp_path: Path) -> None:
    path = write_invalid(tmp_path, "a.txt", b"text\n")
    with pytest.raises(ConfigError) as error:
        data.open_corpus({"files": [str(path)], "heldOut": {"fraction": 0.02}})
    assert str(error.value) == (
        f"data.files: the text in {path} (5 bytes) is too short to hold out a part of it for evaluation: it has 1 "
        "piece of at least 1,024 bytes, and needs two; add text, or set data.heldOut.fraction: 0."
    )
    files = write_lines(tmp_path, 2000, 2)
    path.unlink()
    with pytest.raises(ConfigError, match=r"2 files \(.* bytes\) .* it has 2 pieces .*, and 4 hosts need 8, one to"):
        data.open_corpus({"files": [str(tmp_path)], "heldOut": {"fraction": 0.02}}, hosts=4)
    with pytest.raises(ConfigError, match=r"data\.files: .* but each of the 4 hosts needs one; add text, or lower"):
        data.open_corpus({"files": list(map(str, files)), "heldOut": {"fraction": 0}}, hosts=4)
