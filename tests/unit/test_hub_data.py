"""Data sets of Hugging Face's hub as training data."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.hub import TOKEN, DataSet, Hub, hub
from trainer import checks, data
from trainer.config import RunConfig
from trainer.errors import ConfigError, DownloadError

NAME = "example/texts"
CARD = {
    "configs": [
        {
            "config_name": "small",
            "data_files": [{"split": "train", "path": "small/a*"}, {"split": "test", "path": ["small/b.jsonl"]}],
        },
        {"config_name": "large", "default": True, "data_files": "large/**/*.parquet"},
    ]
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub() as state:
        # huggingface_hub reads its variables when it is imported.
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", state.url)
        template = state.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        state.data[NAME] = DataSet()
        yield state


def jsonl(start: int, count: int, **more: str) -> bytes:
    return b"".join(json.dumps({"text": f"text {n}", **more}).encode() + b"\n" for n in range(start, start + count))


def parquet(start: int, count: int, group: int = 100) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"text": [f"text {n}" for n in range(start, start + count)]}), out, row_group_size=group)
    return out.getvalue()


def corpus(*files: str, fraction: float = 0, **more: Any) -> data.Corpus:
    return data.open_corpus({"files": list(files), "heldOut": {"fraction": fraction}}, **more)


def texts(found: data.Corpus) -> list[str]:
    return [text for unit in (*found.train, *found.held_out) for text in data.documents(unit, found.field)]


def names(found: data.Corpus) -> list[str]:
    return sorted({unit.path.split("/", 2)[2] for unit in found.train})


def config(folder: Path, *files: str) -> RunConfig:
    tree = {"run": {"name": "r"}, "storage": {"mountPath": str(folder)}, "slice": {}, "accelerator": {"hosts": 1}}
    return RunConfig(folder / "run.json", {**tree, "data": {"files": list(files), "heldOut": {"fraction": 0}}})


def test_files_are_read_in_parts_and_each_row_once(server: Hub) -> None:
    lines, rows = jsonl(0, 20_000, note="x" * 200), parquet(20_000, 1_000)
    server.data[NAME].commit({"README.md": b"# text", "a.jsonl": lines, "b.parquet": rows, "empty.jsonl": b""})
    found = corpus(f"hf:{NAME}", fraction=0.1)
    assert (found.files, found.size) == (2, len(lines) + len(rows))
    before = len(server.ranges)
    data.check_corpus(found)
    assert 0 < len(server.ranges) - before < 12
    assert sorted(texts(found)) == sorted(f"text {n}" for n in range(21_000))
    assert len([unit for unit in (*found.train, *found.held_out) if unit.row_group < 0]) > 32
    parts = [part.split(" ")[1].split("-") for part in server.ranges if "a.jsonl" in part]
    # A unit is one request, and the first of the file is two.
    assert len(parts) <= 66
    assert all(int(last) - int(first) < 300_000 for first, last in parts)


def test_a_stream_resumes_exactly_and_reads_ahead(server: Hub) -> None:
    server.data[NAME].commit({"a.jsonl": jsonl(0, 3_000, note="x" * 100), "b.parquet": parquet(3_000, 500)})
    found = corpus(f"hf:{NAME}")
    options: Any = {"held_out": False, "host_count": 2, "shuffle": True, "seed": 3, "epochs": 2}
    streams = [data.train_dataset(found, host_index=host, **options) for host in (0, 1)]
    whole = [[each["text"] for each in stream] for stream in streams]
    assert sorted(itertools.chain(*whole)) == sorted(2 * [f"text {n}" for n in range(3_500)])
    for place in (1, 700, 1_900):
        first = iter(streams[0])
        for _ in range(place):
            next(first)
        second = iter(data.train_dataset(corpus(f"hf:{NAME}"), host_index=0, **options))
        second.set_state(first.get_state())
        assert [each["text"] for each in second] == whole[0][place:]


def test_a_run_keeps_the_commit_that_it_has_started_with(server: Hub, tmp_path: Path) -> None:
    server.data[NAME].commit({"a.jsonl": jsonl(0, 10)})
    (tmp_path / "r").mkdir()
    first, other_host = (config(tmp_path, f"hf:{NAME}") for _ in range(2))
    assert first.corpus is not None
    server.data[NAME].commit({"a.jsonl": jsonl(0, 30)})
    assert other_host.corpus is not None
    assert len(texts(other_host.corpus)) == 30
    checks.keep_data_sets(first)
    checks.keep_data_sets(first)
    with pytest.raises(DownloadError, match=rf"^hf:{NAME} has changed while the run started; start again\.$"):
        checks.keep_data_sets(other_host)
    second = config(tmp_path, f"hf:{NAME}")
    assert second.corpus is not None
    assert second.corpus.summary() == first.corpus.summary()
    assert len(texts(second.corpus)) == 10
    # It continues with more data: what it has read stays.
    server.data["example/more"] = DataSet()
    server.data["example/more"].commit({"m.jsonl": jsonl(100, 5)})
    for files in ((f"hf:{NAME}", "hf:example/more"), (f"hf:{NAME}",)):
        more = config(tmp_path, *files)
        checks.keep_data_sets(more)
        assert more.corpus is not None
        assert len(texts(more.corpus)) == 10 + 5 * (len(files) - 1)
    (tmp_path / "r" / "data-sets.json").write_text("{")
    with pytest.raises(DownloadError, match=r"data-sets\.json is not complete; start again\.$"):
        _ = config(tmp_path, f"hf:{NAME}").corpus


def test_a_revision(server: Hub) -> None:
    data_set = server.data[NAME]
    old = data_set.commit({"a.jsonl": jsonl(0, 1)})
    data_set.commit({"a.jsonl": jsonl(0, 2), "b/c.jsonl": jsonl(0, 5)})
    data_set.commit({"a.jsonl": jsonl(0, 3)}, branch="v2")
    data_set.commit({"default/train/0000.parquet": parquet(0, 4)}, branch="refs/convert/parquet")
    for suffix, count in {"": 7, f"@{old}": 1, "@v2": 3, "@refs/convert/parquet/default/train": 4, "/b": 5}.items():
        assert len(texts(corpus(f"hf:{NAME}{suffix}"))) == count
    with pytest.raises(ConfigError, match=rf"^data\.files: hf:{NAME}@v3: the data set has no revision v3\.$"):
        corpus(f"hf:{NAME}@v3")


def test_splits_of_the_card(server: Hub) -> None:
    rows = jsonl(0, 1)
    files = {"small/a1.jsonl": rows, "small/a2.jsonl": rows, "small/b.jsonl": rows, "large/x/1.parquet": parquet(0, 1)}
    server.data[NAME].card = CARD
    server.data[NAME].commit(files)
    for part, expected in {
        "": ["x/1.parquet"],
        "/train": ["x/1.parquet"],
        "/small": ["a1.jsonl", "a2.jsonl"],
        "/small/test": ["b.jsonl"],
        "/large": ["x/1.parquet"],
        "/small/*1.jsonl": ["a1.jsonl"],
        "/small/b.jsonl": ["b.jsonl"],
    }.items():
        assert [name.split("/", 1)[1] for name in names(corpus(f"hf:{NAME}{part}"))] == expected, part
    with pytest.raises(
        ConfigError,
        match=rf"^data\.files: hf:{NAME}/huge: there is no subset or split huge; add one of these after a slash: "
        r"small/train, small/test, large/train\.$",
    ):
        corpus(f"hf:{NAME}/huge")
    server.data[NAME].card = {"configs": [CARD["configs"][0], {"config_name": "x", "data_files": "large/*/*"}]}
    with pytest.raises(ConfigError, match=r"it has several subsets or splits; add one .*: small/train, small/test, x/"):
        corpus(f"hf:{NAME}")


def test_splits_of_names(server: Hub) -> None:
    rows = parquet(0, 1)
    splits = ("train", "train_sft", "test", "validation")
    files = {f"data/{split}-0000{n}-of-00002.parquet": rows for split in splits for n in range(2)}
    server.data[NAME].commit(files)
    for part, split in {"": "train", "/train": "train", "/train_sft": "train_sft", "/data/test": "test"}.items():
        assert names(corpus(f"hf:{NAME}{part}")) == [f"data/{split}-0000{n}-of-00002.parquet" for n in range(2)]
    found = data.open_corpus({"files": [f"hf:{NAME}"], "heldOut": {"files": [f"hf:{NAME}/test"]}})
    assert {unit.path.rpartition("/")[2][:4] for unit in found.held_out} == {"test"}
    with pytest.raises(ConfigError, match="no file is in dev, or of this split; add one of these after a slash: data/"):
        corpus(f"hf:{NAME}/dev")
    server.data[NAME].commit({"test.parquet": rows})
    with pytest.raises(ConfigError, match=r"no file is of the split train; add one of these .*: test\.parquet\.$"):
        corpus(f"hf:{NAME}")


@pytest.mark.parametrize("text", ["hf:", "hf:texts", "hf:a b/c", "hf:../x", "hf:a/b@", "hf:a/b@c@d", "hf:a/b/"])
def test_names(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a data set of Hugging Face; write hf:ORG/NAME, hf:ORG/NAME@REV"):
        corpus(text)


def test_data_sets_that_cannot_be_read(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    private, gated = server.data["example/private"], server.data["example/gated"] = DataSet(), DataSet()
    private.commit({"a.jsonl": jsonl(0, 1)})
    gated.commit({"a.jsonl": jsonl(0, 1)})
    private.private = gated.gated = True
    assert len(texts(corpus("hf:example/private", "hf:example/gated"))) == 2
    monkeypatch.delenv("HF_TOKEN")
    for name in ("private", "nothing"):
        with pytest.raises(
            ConfigError,
            match=rf"^data\.files: hf:example/{name} does not exist or is private; check the name, or set HF_TOKEN to ",
        ):
            corpus(f"hf:example/{name}")
    gated.commit({"a.jsonl": jsonl(0, 2)})
    with pytest.raises(ConfigError, match=r"^hf:example/gated@[0-9a-f]{40}/a\.jsonl is gated; accept its terms \(http"):
        texts(corpus("hf:example/gated"))
    server.data[NAME].commit({"README.md": b"", ".gitattributes": b"", "a.csv": b"1", "b.csv": b"2"})
    with pytest.raises(
        ConfigError,
        match=rf"^data\.files: hf:{NAME} has no \.jsonl or \.parquet file \(it has 2 \.csv, 1 \.md\); the hub converts "
        rf"many data sets: try hf:{NAME}@refs/convert/parquet\.$",
    ):
        corpus(f"hf:{NAME}")
    server.data[NAME].commit({"a.jsonl": b'{"text": "a"}\n{"text"\n', "b.parquet": b"PAR1 no Parquet"})
    with pytest.raises(ConfigError, match=r"/a\.jsonl: line 2 is not valid JSON"):
        texts(corpus(f"hf:{NAME}/a.jsonl"))
    with pytest.raises(ConfigError, match=r"/b\.parquet is not a Parquet file: "):
        corpus(f"hf:{NAME}/b.parquet")


def test_a_hub_that_does_not_answer(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    server.data[NAME].commit({"a.jsonl": jsonl(0, 2)})
    found = corpus(f"hf:{NAME}")
    server.down = True
    with pytest.raises(
        DownloadError, match=rf"^hf:{NAME}@[0-9a-f]{{40}}/a\.jsonl cannot be read: http.* does not answer \("
    ):
        texts(found)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        DownloadError,
        match=rf"^data\.files: hf:{NAME} cannot be read: http://127\.0\.0\.1:9 does not answer \(.* refused\); start ",
    ):
        corpus(f"hf:{NAME}")
