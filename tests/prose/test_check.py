"""The extraction of texts, and the marks that Vale finds in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prose.check import CHECKOUT, Text, check, of_page, of_python, of_template, texts

PYTHON = '''"""A module.

It tells the time.
"""

# The first line
# of a comment.
LIMIT = 3  # characters


def hello(name: str) -> str:
    """Return a greeting."""
    return f"Hello {name}, where there is " "no other."
'''


def test_the_texts_of_a_python_file() -> None:
    assert [(text.kind, text.line, text.text) for text in of_python("a.py", PYTHON)] == [
        ("comments", 6, "The first line\nof a comment."),
        ("comments", 8, "characters"),
        ("comments", 1, "A module.\n\nIt tells the time."),
        ("comments", 12, "Return a greeting."),
        ("messages", 13, "Hello X, where there is no other."),
    ]
    assert {text.kind for text in of_python("a.py", PYTHON, messages=False)} == {"comments"}


def test_the_sentences_of_a_page_without_its_code() -> None:
    page = "# A short title\n\nFirst comes this. Then that follows.\n\n```sh\nit tells the time\n```\n"
    assert [(text.line, text.text) for text in of_page("a.md", page)] == [
        (1, "# A short title"),
        (3, "First comes this."),
        (3, "Then that follows."),
    ]


def test_the_texts_of_a_template() -> None:
    template = '{{- /*\nA comment.\n*/ -}}\n# Another one\n{{- fail (printf "%s: %q is no name." $key $name) }}\n'
    assert [(text.kind, text.line, text.text.strip()) for text in of_template("charts/a.tpl", template)] == [
        ("comments", 4, "Another one"),
        ("comments", 1, "A comment."),
        ("messages", 5, "%s: %q is no name."),
    ]


def test_each_text_has_the_marks_of_its_own_line() -> None:
    items = list(of_python("a.py", PYTHON))
    found = {(mark.where, mark.message.partition(" [")[0]) for mark in check(items)}
    assert found == {
        ("a.py:3", "Write 'report, print, return or show' instead of 'tells'."),
        ("a.py:13", "Write 'if' for a condition instead of 'where there'."),
    }


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ('"My Run" is not a valid name.', False),
        ("The run is no name.", True),
        ("There is no run with this name.", False),
        ("The run is no longer there.", False),
        ("Nobody may read it.", True),
        ("The folder where the run writes.", False),
        ("Where there is none, it stops.", True),
        ("Where is a pending run explained?", False),
        ("Of a JobSet, the first pod.", True),
        ("What Kueue reads is the label.", True),
        ("What is a slice?", False),
        ("The standing Ray cluster.", True),
        ("The key `told` is data.", False),
    ],
)
def test_marks(text: str, marked: bool) -> None:
    assert bool(check([Text("pages", "a.md", 1, text)])) == marked


def test_all_kinds_of_text_of_the_project_are_read() -> None:
    found = texts(CHECKOUT)
    assert {text.kind for text in found} == {"comments", "messages", "pages"}
    assert {Path(text.file).parts[0] for text in found} >= {"charts", "docs", "launcher", "tests", "trainer", "values"}
