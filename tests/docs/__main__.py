"""`make docs`: write the reference pages and the picture of the architecture."""

from __future__ import annotations

from tests.docs import picture
from tests.docs.pages import DOCS
from tests.docs.reference import PAGES


def main() -> None:
    for name, text in PAGES.items():
        (DOCS / "reference" / f"{name}.md").write_text(text(), encoding="utf-8")
    picture.write()


if __name__ == "__main__":
    main()
