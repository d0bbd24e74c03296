"""The comparison of shown and printed output."""

from __future__ import annotations

import pytest

from tests.docs.pages import CHECKOUT, Block, Page
from tests.docs.shown import differs


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nb", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("a\n...\nc\n", "a\nc\n", True),
        ("...\nc\n", "a\nb\n", False),
        ("loss 10.9...\n", "loss 10.923\n", True),
        ("loss 10.9...\n", "loss 11.923\n", False),
        ("one  two\n", "one     two  \n", True),
        ("one two\n", "one  two\n", False),
        ("  - x\n", "    - x\n", False),
        ("", "an output\n", False),
    ],
)
def test_wildcards(shown: str, printed: str, same: bool) -> None:
    assert (differs(shown, printed) == "") is same


def test_a_page_is_read() -> None:
    text = """\
# A page: `launcher`, and *more*

See [there](other.md#part) and ![a picture](p.svg); `run.name`.

## Part

## Part

```console replay=x until=8
$ launcher list \\
    --local
a line
$ launcher status x
```

```yaml
# mine.yaml
run: {name: x}
```
"""
    page = Page(CHECKOUT / "docs" / "x.md", text)
    assert page.anchors == {"a-page-launcher-and-more", "part", "part-1"}
    assert page.links == ["other.md#part", "p.svg"]
    assert page.words == ["launcher", "run.name"]
    console, values = page.blocks
    assert (console.language, console.options, console.line) == ("console", {"replay": "x", "until": "8"}, 9)
    assert [(e.command, e.shown) for e in console.examples] == [
        ("launcher list \\\n    --local", "a line\n"),
        ("launcher status x", ""),
    ]
    assert (values.file, Block("yaml", {}, "run: {}\n", 1).file) == ("mine.yaml", "")
