"""The site of `make site`: every page as Markdown defines it, with search, in Chromium, and without other hosts."""

from __future__ import annotations

import functools
import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import TIMEOUT_MS
from tests.docs import site
from tests.docs.pages import CHECKOUT, page

# Tokens of markdown-it, and the HTML elements that they become.
ELEMENTS = {
    "list_item_open": "li",
    "table_open": "table",
    "tr_open": "tr",
    "fence": "pre",
    "blockquote_open": "blockquote",
}
HEADINGS = {"h1", "h2", "h3", "h4"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    site.build(out)
    return out


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Elements(HTMLParser):
    """Counts the elements of a page's text."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._inside |= tag == "article"
        if self._inside and tag in {*ELEMENTS.values(), *HEADINGS}:
            self.count[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._inside &= tag != "article"


def test_each_page_has_the_parts_of_its_markdown(folder: Path) -> None:
    """The site's parser is not a CommonMark parser: a list without a blank line before it becomes text."""
    files = [file for file in site.linked_files() if file.suffix == ".md"]
    assert len(files) > 50
    for file in files:
        name = file.relative_to(CHECKOUT).with_suffix("")
        seen = _Elements()
        seen.feed((folder / (name.parent if name.name in ("README", "index") else name) / "index.html").read_text())
        wanted = Counter(ELEMENTS[token.type] for token in page(file).tokens if token.type in ELEMENTS)
        wanted.update(token.tag for token in page(file).tokens if token.type == "heading_open")
        assert (file, seen.count) == (file, wanted)


def test_it_opens_and_finds_pages_without_other_hosts(browser: Browser, address: str) -> None:
    requests, problems = [], []
    shown = browser.new_context().new_page()
    shown.on("request", lambda request: requests.append(request.url))
    shown.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    shown.on("pageerror", lambda error: problems.append(str(error)))
    shown.goto(address, timeout=TIMEOUT_MS)
    shown.get_by_role("button", name="Search").first.click()
    shown.get_by_role("dialog").get_by_role("combobox").fill("preemtion")  # a typo
    shown.get_by_role("option").first.click(timeout=TIMEOUT_MS)
    shown.wait_for_url("**/docs/how-to/priorities-and-preemption/**", timeout=TIMEOUT_MS)
    assert shown.get_by_role("heading", level=1).inner_text().startswith("Priorities and preemption")
    shown.context.close()
    assert problems == []
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []


def test_a_dead_link_or_anchor_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checkout"
    (folder / "docs").mkdir(parents=True)
    readme, index = folder / "README.md", folder / "docs/index.md"
    for name, value in {"CHECKOUT": folder, "DOCS": folder / "docs", "README": readme}.items():
        monkeypatch.setattr(site, name, value)
    index.write_text("# Pages\n\n## All\n\n[Start](../README.md#start)\n")
    readme.write_text("# Start\n\n[Pages](docs/index.md)\n\n[Gone](docs/gone.md)\n")
    page.cache_clear()
    with pytest.raises(RuntimeError, match=r"README\.md: .*gone\.md is not a file of the checkout"):
        site.build(tmp_path / "out")
    readme.write_text("# Start\n\n[Pages](docs/index.md#other)\n")
    page.cache_clear()
    with pytest.raises(RuntimeError, match=r"(?s)Zensical failed.*anchor does not exist.*README.md:3:23"):
        site.build(tmp_path / "out")
    readme.write_text("# Start\n\n[Pages](docs/index.md#all)\n")
    page.cache_clear()
    site.build(tmp_path / "out")
    assert (tmp_path / "out/index.html").exists()
