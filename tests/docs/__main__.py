"""`make docs`: write the reference pages, the picture of the architecture, and the schemas for editors."""

from __future__ import annotations

from tests.docs import overlay_schema, picture
from tests.docs.pages import DOCS
from tests.docs.reference import PAGES


def main() -> None:
    for name, text in PAGES.items():
        (DOCS / "reference" / f"{name}.md").write_text(text(), encoding="utf-8")
    picture.write()
    overlay_schema.write()


if __name__ == "__main__":
    main()
