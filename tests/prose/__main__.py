"""`python -m tests.prose` prints each mark that Vale finds, and the part of the text that has one."""

from __future__ import annotations

import sys

from tests.prose.check import CHECKOUT, check, texts

if __name__ == "__main__":
    items = texts(CHECKOUT)
    marks = check(items)
    for mark in marks:
        print(mark)
    kinds = sorted({item.kind for item in items})
    for kind in kinds:
        total = sum(item.kind == kind for item in items)
        marked = len({mark.item for mark in marks if items[mark.item].kind == kind})
        print(f"{kind}: {marked} of {total} have a mark ({marked / total:.1%})", file=sys.stderr)
    sys.exit(1 if marks else 0)
