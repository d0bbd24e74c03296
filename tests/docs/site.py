"""`make site`: build the pages as a static site with search.

The site has README.md as its first page, every page that is reachable from it by links, and the files that the pages
link to (values files, tests), each at its path in the checkout. So the links of the checkout also work in the site.
Zensical reports a link or an anchor that leads nowhere as a warning, and `--strict` makes it an error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.docs.pages import CHECKOUT, DOCS, README, page
from tests.tools.python_tools import python_tool

CONFIG = Path(__file__).with_name("mkdocs.yml")
# The info string of a fenced block has words for the tests (pages.py). The site needs only the language.
_FENCE = re.compile(r"^( *```\w+) .*$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_ELSEWHERE = re.compile(r"(https?|mailto):|#")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.docs.site", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--serve", action="store_true", help="serve the site on loopback")
    arguments = parser.parse_args()
    try:
        build(arguments.out)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
    print(arguments.out / "index.html")
    if arguments.serve:
        command = [
            sys.executable,
            "-m",
            "http.server",
            "--bind",
            "127.0.0.1",
            "--directory",
            str(arguments.out),
            "8000",
        ]
        subprocess.run(command, check=False)


def build(out: Path) -> None:
    """Write the site to the folder `out`, and replace what is there.

    Raises RuntimeError if a page links to something that is not a file of the checkout, or if Zensical warns.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        for file in linked_files():
            target = source / file.relative_to(CHECKOUT)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".md":
                target.write_text(_FENCE.sub(r"\1", file.read_text(encoding="utf-8")), encoding="utf-8")
            else:
                shutil.copy(file, target)
        config = Path(folder) / "mkdocs.yml"
        extra = {"docs_dir": "source", "site_dir": "out", "nav": navigation()}
        config.write_text(CONFIG.read_text(encoding="utf-8") + yaml.safe_dump(extra, sort_keys=False), encoding="utf-8")
        command = [str(python_tool("zensical")), "build", "--strict", "--config-file", str(config)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            output = _COLOUR.sub("", done.stdout + done.stderr).partition("Traceback")[0]
            raise RuntimeError(f"Zensical failed:\n{output.strip()}")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(Path(folder) / "out", out)


def linked_files() -> list[Path]:
    """Return README.md and every file that is reachable from it by the links of pages, sorted.

    Raises RuntimeError if a link leads outside the checkout or to something that is not a file.
    """
    found = {README}
    left = [README]
    while left:
        at = left.pop()
        for target in _targets(at):
            if not (target.is_file() and target.is_relative_to(CHECKOUT)):
                raise RuntimeError(f"{at.relative_to(CHECKOUT)}: {target} is not a file of the checkout.")
            if target not in found:
                found.add(target)
                left += [target] if target.suffix == ".md" else []
    return sorted(found)


def _targets(file: Path) -> Iterator[Path]:
    for link in page(file).links:
        if not _ELSEWHERE.match(link):
            yield Path(os.path.normpath(file.parent / link.partition("#")[0]))  # without following symbolic links


def navigation() -> list[Any]:
    """Return `nav` of mkdocs.yml: README.md, then a section for each heading of docs/index.md with its linked pages.
    The pages that only other pages link to are in the last section."""
    index = page(DOCS / "index.md")
    sections: dict[str, list[str]] = {"Slipway": [_name(README), _name(index.path)]}
    title = ""
    listed = {README, index.path}
    for at, token in enumerate(index.tokens):
        if token.type == "heading_open" and token.tag == "h2":
            title = index.tokens[at + 1].content
        links = [child.attrGet("href") for child in token.children or () if child.type == "link_open"]
        for link in links:
            target = (DOCS / str(link).partition("#")[0]).resolve()
            if target.suffix == ".md" and target not in listed:
                listed.add(target)
                sections.setdefault(title, []).append(_name(target))
    rest = [_name(file) for file in linked_files() if file.suffix == ".md" and file not in listed]
    if rest:
        sections["More"] = rest
    return [{title: pages} for title, pages in sections.items()]


def _name(file: Path) -> str:
    return file.relative_to(CHECKOUT).as_posix()


if __name__ == "__main__":
    main()
