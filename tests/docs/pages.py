"""The parts of Markdown pages that tests read: headings, links, and fenced blocks with their info strings.

The info string of a block defines how it is tested:

    console                  commands after "$ " and their output; they run on this machine, from top to bottom. With
                             after=PAGE, they run on a machine on which the commands of that page have run
    console background       a command that runs until the end of the page. It has then printed the output, and Ctrl-C
                             ends it
    console cluster          the same with an API server, in the namespace of a team; see tests/docs/cluster.py
    console replay=… run=… until=…   the same, for a run whose status a recording sets
    console served=…         the same, for a served model whose status a stand-in sets
    sh                       commands that need a real cluster, a cloud or a registry. They do not run, but every
                             option, file, key and make target in them must exist (commands.py)
    yaml                     values that must match the schemas. With "# NAME.yaml" as the first line, a file that the
                             commands of the page use. With the word `wrong`, values that must not match
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"
README = CHECKOUT / "README.md"
CONTRIBUTING = CHECKOUT / "CONTRIBUTING.md"
_FILE = re.compile(r"# (?P<name>[\w./-]+\.(ya?ml|py))\b")


@dataclass(frozen=True)
class Example:
    """A command and its output on the page."""

    command: str
    shown: str


@dataclass(frozen=True)
class Block:
    """A fenced block: `language` is the first word of its info string, `options` the rest, `line` counts from 1."""

    language: str
    options: dict[str, str]
    text: str
    line: int

    @property
    def file(self) -> str:
        """The file name in the first line of a YAML block, or ""."""
        match = _FILE.match(self.text) if self.language in ("yaml", "python") else None
        return match["name"] if match else ""

    @property
    def examples(self) -> list[Example]:
        """The commands of a console block. A command that ends with a backslash continues on the next line."""
        found = []
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            while command.endswith("\\"):
                more, _, shown = shown.partition("\n")
                command += "\n" + more
            found.append(Example(command, shown))
        return found


@dataclass(frozen=True)
class Page:
    path: Path
    text: str = field(repr=False)

    @property
    def name(self) -> str:
        """The path in the checkout, such as docs/index.md."""
        return self.path.relative_to(CHECKOUT).as_posix()

    @cached_property
    def tokens(self) -> list[Token]:
        return MarkdownIt("commonmark").enable("table").parse(self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        found = []
        for token in self.tokens:
            if token.type == "fence":
                language, *rest = token.info.split() or [""]
                options = {key: value for key, _, value in (word.partition("=") for word in rest)}
                found.append(Block(language, options, token.content, (token.map or [0])[0] + 1))
        return found

    @cached_property
    def anchors(self) -> set[str]:
        """The anchors of the headings, by GitHub's rule."""
        seen: Counter[str] = Counter()
        found = set()
        for at, token in enumerate(self.tokens):
            if token.type == "heading_open":
                children = self.tokens[at + 1].children or ()
                text = "".join(child.content for child in children if child.type in ("text", "code_inline"))
                slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
                found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
                seen[slug] += 1
        return found

    @cached_property
    def links(self) -> list[str]:
        """The targets of all links and pictures."""
        inline = [child for token in self.tokens for child in token.children or ()]
        found = [
            child.attrGet("href") or child.attrGet("src") for child in inline if child.type in ("link_open", "image")
        ]
        return [unquote(str(link)) for link in found if link]

    @cached_property
    def words(self) -> list[str]:
        """The texts in backticks, in sentences and tables."""
        inline = [child for token in self.tokens for child in token.children or ()]
        return [child.content for child in inline if child.type == "code_inline"]


@cache
def page(path: Path) -> Page:
    return Page(path, path.read_text(encoding="utf-8"))


def pages() -> list[Page]:
    """Return the README, CONTRIBUTING.md and all pages of docs/, in this order."""
    return [page(README), page(CONTRIBUTING), *(page(path) for path in sorted(DOCS.rglob("*.md")))]


def runs_here(block: Block) -> bool:
    return block.language == "console" and not runs_in_cluster(block)


def runs_in_cluster(block: Block) -> bool:
    return block.language == "console" and bool({"cluster", "replay", "served"} & block.options.keys())
