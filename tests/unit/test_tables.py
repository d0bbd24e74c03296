"""Tables that are wider than the terminal: nothing is lost, and no line is wider than it if no word is."""

from __future__ import annotations

import random

import pytest

from launcher import formatting

WORDS = ("a", "in", "about", "queue", "research", "held-out", "4x4,", "0.0003", "learning_rate", "succeeded")


def narrow(monkeypatch: pytest.MonkeyPatch, width: int | None) -> None:
    monkeypatch.setattr(formatting, "terminal_columns", lambda: width)


def table_of(chosen: random.Random, columns: int) -> list[list[str]]:
    titles = [f"TITLE-{number}" for number in range(columns)]
    rows = [
        [" ".join(chosen.choices(WORDS, k=chosen.choice((0, 1, 1, 2, 3, 12)))) for _ in titles]
        for _ in range(chosen.randint(1, 6))
    ]
    return [titles, *rows]


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_no_line_is_wider_and_no_word_is_lost(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    narrow(monkeypatch, width)
    for seed in range(150):
        chosen = random.Random(seed)
        rows = table_of(chosen, chosen.randint(1, 7))
        headed, grouped = chosen.random() < 0.7, chosen.random() < 0.3 and len(rows[0]) > 1
        text = formatting.table(rows, headed=headed, grouped=headed and grouped)
        words = [word for row in rows for cell in row for word in cell.split()]
        # With a title before it, or with the indent of a cell below its row, a long word has less room.
        longest = max(map(len, words)) + len("TITLE-0: ") + 2
        assert max(map(len, text.splitlines())) <= max(width, longest), (seed, text)
        printed = text.replace(":", " ").split()
        missing = [word for row in rows[1 if headed else 0 :] for cell in row for word in cell.split()]
        for word in set(missing):
            assert printed.count(word) >= missing.count(word), (seed, word, text)
        assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_a_table_that_fits_is_the_same_with_and_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(50):
        chosen = random.Random(seed)
        rows = table_of(chosen, chosen.randint(1, 4))
        narrow(monkeypatch, None)
        text = formatting.table(rows)
        assert len(text.split("\n")) == len(rows)
        # The last column is not padded, but its width counts.
        width = sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2
        narrow(monkeypatch, width)
        assert formatting.table(rows) == formatting.table(rows, headed=False) == text
        narrow(monkeypatch, 10)
        assert formatting.table(rows, fit=False) == text


def test_as_few_lines_as_possible_and_names_are_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("NAME", "SLICES", "AGE", "STARTS"), ("llama-3-8b", "2 x v6e 4x4, spot", "5 min", "in about 2 h 10 min")]
    narrow(monkeypatch, 50)
    assert formatting.table(rows).splitlines() == [
        "NAME        SLICES             AGE    STARTS",
        "llama-3-8b  2 x v6e 4x4, spot  5 min  in about 2 h",
        "                                      10 min",
    ]
    narrow(monkeypatch, 40)
    assert formatting.table(rows).splitlines() == [
        "NAME        SLICES     AGE    STARTS",
        "llama-3-8b  2 x v6e    5 min  in about",
        "            4x4, spot         2 h 10 min",
    ]
    narrow(monkeypatch, 30)
    assert formatting.table(rows).splitlines() == [
        "NAME:   llama-3-8b",
        "SLICES: 2 x v6e 4x4, spot",
        "AGE:    5 min",
        "STARTS: in about 2 h 10 min",
    ]


def test_a_column_of_prose_may_have_many_lines_if_it_is_not_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("NAME", "ABOUT"), ("slices/v6e", "word " * 30)]
    narrow(monkeypatch, 40)
    assert formatting.table(rows).startswith("NAME        ABOUT\nslices/v6e  word word")
    narrow(monkeypatch, 34)
    assert formatting.table(rows).startswith("NAME:  slices/v6e\nABOUT: word word")


def test_a_path_is_divided_only_within_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "values/tutorials/multislice-v5e.yaml"
    narrow(monkeypatch, 36)
    assert formatting.table([("NAME", "ABOUT"), ("a", f"as in {path}")]).splitlines() == [
        "NAME  ABOUT",
        "a     as in values/tutorials/",
        "      multislice-v5e.yaml",
    ]
    assert formatting.table([("NAME", "FOLDER"), ("a", f"gs://{path}")]) == f"NAME:   a\nFOLDER: gs://{path}"
    assert formatting.table([("NAME", "ABOUT"), ("a", f"see https://{path}")]).endswith(f"see\n       https://{path}")


def test_a_cell_cannot_look_like_another_row(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 20)
    text = formatting.table([("NAME-OF-RUN", "REASON"), ("a", "first words\n\nNAME-OF-RUN: b")])
    assert [line.partition(":")[0] for line in text.splitlines() if line[0] != " "] == ["NAME-OF-RUN", "REASON"]
    assert "\n\n" not in text


def test_a_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 12)
    assert formatting.paragraph("Note: two words") == "Note: two\nwords"
    narrow(monkeypatch, None)
    assert formatting.paragraph("Note: two words") == "Note: two words"
