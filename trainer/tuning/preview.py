"""python -m trainer.tuning.preview --config run.json: show examples as the trainer reads them, as JSON on stdout."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from trainer import config as run_config
from trainer import data, maxtext_keys
from trainer.errors import ConfigError, DownloadError
from trainer.tuning import pipeline, reading
from trainer.tuning.template import LostText, Tokens

_ROWS = 20_000
"""The rows that the sums include at most: a tokenizer reads some thousand per second."""


def preview(config: run_config.RunConfig, count: int, rows: int = _ROWS) -> dict[str, Any]:
    """Return the first `count` examples, and the sums over at most `rows` of them.

    Raises ConfigError with the place of a row that is not an example.
    """
    corpus = config.corpus
    if corpus is None or not config.tuning.applies:
        raise ConfigError("tuning.method is pretrain; set it to a method that reads examples, such as sft.")
    reader = reading.reader(config)
    lost = LostText(reader.template)
    shown: list[dict[str, Any]] = []
    lengths: list[int] = []
    counted = longest = 0
    complete = True
    for row, place in _rows(corpus):
        if reader.counts["examples"] >= rows:
            complete = False
            break
        tokens = reader.whole(row, place)
        with pipeline.placed(place):
            lost.add(pipeline.conversations(row, config.tuning), place)
        kept = reader.fitted(tokens, place)
        longest = max(longest, sum(len(each.ids) for each in tokens))
        if kept is not None:
            lengths.append(sum(len(each.ids) for each in kept))
            counted += sum(sum(each.counted[1:]) for each in kept)
        if reader.counts["examples"] <= count:
            names = (" (chosen)", " (rejected)") if config.tuning.reads_pairs else ("",)
            for name, whole, left in zip(names, tokens, kept or [Tokens([], [])] * len(tokens), strict=True):
                shown.append(_shown(whole, left, f"{place}{name}"))
    length = maxtext_keys.sequence_length(config)
    return {
        "examples": shown,
        "read": reader.counts["examples"],
        "complete": complete,
        "tokens": sum(lengths),
        "counted": counted,
        "longest": longest,
        "cut": reader.counts["cut"],
        "dropped": reader.counts["dropped"],
        "left_out": lost.sentence(),
        "length": length,
        "sequences": _sequences(lengths, length) if config.train.get("packing", True) else len(lengths),
    }


def _rows(corpus: data.Corpus) -> Iterator[tuple[dict[str, Any], data.Place]]:
    for unit in corpus.train:
        yield from data.rows(unit)


def _shown(whole: Tokens, kept: Tokens, place: str) -> dict[str, Any]:
    """Return an example: its texts in turn, each with whether it counts, and its tokens that are left and cut off."""
    parts = []
    for counts, group in groupby(range(len(kept.ids)), key=kept.counted.__getitem__):
        first, *others = group
        after = first + 1 + len(others)
        stop = whole.starts[after] if after < len(whole.ids) else len(whole.text)
        parts.append((whole.text[whole.starts[first] : stop], bool(counts)))
    tokens = {"tokens": len(kept.ids), "counted": sum(kept.counted[1:]), "cut": len(whole.ids) - len(kept.ids)}
    return {"place": place, "parts": parts, **tokens}


def _sequences(lengths: Sequence[int], length: int) -> int:
    """Return about how many sequences of `length` tokens the examples fill."""
    sequences, free = 0, 0
    for each in lengths:
        if each > free:
            sequences, free = sequences + 1, length
        free -= each
    return sequences


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code. 2: the config or a row cannot work; stderr has the sentence."""
    parser = argparse.ArgumentParser(prog="python -m trainer.tuning.preview", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the run config, JSON")
    parser.add_argument("--count", type=int, default=3, help="the number of examples to show")
    arguments = parser.parse_args(argv)
    try:
        print(json.dumps(preview(run_config.read(arguments.config), arguments.count)))  # noqa: T201 - the data
    except (ConfigError, DownloadError) as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)  # noqa: T201 - the message
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
