"""Extract the text of the project, and check it with Vale.

Vale reads Markdown. It does not read the messages in Python and in templates, and it needs the code around comments to
be valid. So each text is extracted here with its file and line, and Vale gets all of them as Markdown files.
"""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.charts import copies
from tests.tools import tool

CHECKOUT = Path(__file__).resolve().parents[2]
_PLACEHOLDER = "X"
_TEMPLATE_COMMENT = re.compile(r"\{\{-?\s*/\*(.*?)\*/", re.DOTALL)
_TEMPLATE_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")


@dataclass(frozen=True)
class Text:
    """A text of the project: a comment, a docstring, a message, or a sentence of a page. `line` is its first line."""

    kind: str
    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Mark:
    """A mark that Vale found in the text with the index `item`."""

    item: int
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def texts(root: Path) -> list[Text]:
    """Return the texts of the files that Git knows."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[Text] = []
    for name in listed.stdout.splitlines():
        path = root / name
        if not path.is_file() or name.startswith(("tests/prose/", ".vale")):
            continue
        if name.startswith("charts/") and name.removeprefix("charts/").startswith(tuple(copies.COPIES)):
            continue
        match path.suffix:
            case ".py":
                found += of_python(name, path.read_text(encoding="utf-8"), messages=not name.startswith("tests/"))
            case ".md":
                found += of_page(name, path.read_text(encoding="utf-8"))
            case ".tpl" | ".yaml" | ".yml" | ".txt" | ".gotmpl" if name.startswith(("charts/", "values/", ".github/")):
                found += of_template(name, path.read_text(encoding="utf-8"))
            case "" if name in ("Makefile", "docker/Dockerfile", ".ci/run"):
                found += of_hash_comments(name, path.read_text(encoding="utf-8"))
    return found


def of_python(file: str, source: str, *, messages: bool = True) -> Iterator[Text]:
    """Yield the comments, the docstrings and, with `messages`, the strings of three words or more."""
    yield from _comments(file, source)
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            constant = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                docstrings.add(constant)
                yield Text("comments", file, statement.lineno, _dedented(constant.value))
    if not messages:
        return
    inner = {value for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else _PLACEHOLDER
                for value in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings | inner:
            text = node.value
        else:
            continue
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 and " " in text:
            yield Text("messages", file, node.lineno, text)


def _comments(file: str, source: str) -> Iterator[Text]:
    start, last = 0, -1
    lines: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("# type:", "# noqa", "#!")):
            continue
        line = token.start[0]
        alone = token.line.lstrip().startswith("#")
        if lines and (line != last + 1 or not alone):
            yield Text("comments", file, start, "\n".join(lines))
            lines = []
        if not lines:
            start = line
        lines.append(token.string.lstrip("#").strip())
        last = line
    if lines:
        yield Text("comments", file, start, "\n".join(lines))


def of_page(file: str, source: str) -> Iterator[Text]:
    """Yield the sentences of a Markdown page, without code blocks."""
    code = False
    for number, line in enumerate(source.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and len(line.split()) >= 3:
            for sentence in _SENTENCE.split(line.strip().removeprefix("- ")):
                yield Text("pages", file, number, sentence)


def of_template(file: str, source: str) -> Iterator[Text]:
    """Yield the comments of YAML and of Helm templates, and the sentences in a template's strings."""
    yield from of_hash_comments(file, source)
    for match in _TEMPLATE_COMMENT.finditer(source):
        yield Text("comments", file, source.count("\n", 0, match.start()) + 1, _dedented(match[1]))
    if file.endswith((".tpl", ".txt")):
        without = _TEMPLATE_COMMENT.sub(lambda match: "\n" * match[0].count("\n"), source)
        for number, line in enumerate(without.splitlines(), start=1):
            for match in _TEMPLATE_STRING.finditer(line):
                if len(match[1].split()) >= 4 and not match[1].startswith("^"):
                    yield Text("messages", file, number, match[1])


def of_hash_comments(file: str, source: str) -> Iterator[Text]:
    """Yield the `#` comments; adjacent lines are one text."""
    start = 0
    lines: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], start=1):
        comment = re.match(r"\s*#+ ?(?:--|@\w+)?\s*(.*)", line)
        if comment and not line.startswith("#!"):
            start = start or number
            lines.append(comment[1])
        elif lines:
            yield Text("comments", file, start, "\n".join(lines))
            start, lines = 0, []


def _dedented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def check(items: list[Text]) -> list[Mark]:
    """Return the marks that Vale finds, in the order of the texts. Raises RuntimeError if Vale cannot run."""
    marks: list[Mark] = []
    with tempfile.TemporaryDirectory() as folder:
        owners: dict[str, list[int]] = {}  # of each line of each file that Vale reads: the index of its text
        for file, indexes in _by_file(items).items():
            path = Path(folder) / f"{file.replace('/', '__')}.md"
            lines: list[str] = []
            for index in indexes:
                text = [*re.sub(r"%[qsdv]", _PLACEHOLDER, items[index].text).splitlines(), ""]
                owners.setdefault(path.name, []).extend([index] * len(text))
                lines += text
            path.write_text("\n".join(lines), encoding="utf-8")
        done = subprocess.run(
            [str(tool("vale")), f"--config={CHECKOUT / '.vale.ini'}", "--output=JSON", "--no-exit", folder],
            capture_output=True,
            text=True,
            cwd=CHECKOUT,
        )
        if done.returncode:
            raise RuntimeError(f"Vale cannot check the text: {done.stderr or done.stdout}")
        for name, alerts in json.loads(done.stdout or "{}").items():
            for alert in alerts:
                lines_of = owners[Path(name).name]
                index = lines_of[min(alert["Line"], len(lines_of)) - 1]
                item = items[index]
                line = item.line + alert["Line"] - 1 - lines_of.index(index) if item.kind == "comments" else item.line
                message = f"{alert['Message']} [{alert['Check']}] {item.text.strip()[:100]!r}"
                marks.append(Mark(index, f"{item.file}:{line}", message))
    return sorted(marks, key=lambda mark: mark.item)


def _by_file(items: list[Text]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        found.setdefault(item.file, []).append(index)
    return found
