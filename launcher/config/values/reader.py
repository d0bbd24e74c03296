"""Read a values file to a tree, exactly as Helm reads it.

Helm reads YAML with sigs.k8s.io/yaml: go-yaml v2 builds a tree (YAML 1.1 booleans, octal numbers, merge keys), the
tree is converted to JSON (keys become strings), and the JSON is read back (numbers become float64). The functions here
follow those sources step by step, on top of the events of libyaml, of which go-yaml is a translation; tests/charts
compares them with real Helm.

Content that Helm drops silently is an error here: a duplicate key in one map, text after the end of a document, and a
second document in one file (Helm 3 drops it, Helm 4 merges it).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.reader import ReaderError

from launcher.config.values.scalars import Uint, float32, json_number, resolve
from launcher.config.values.tree import Node, Origin, Values, plain
from launcher.errors import LauncherError
from launcher.safe_yaml import safe_loader

MAX_BYTES = 1_000_000  # about ten seconds of reading; an object in Kubernetes can have 1.5 MB
_MAX_DEPTH = 100  # levels of nesting; Helm's limit is 10,000, a values file has about six
_MAX_NODES = 50_000  # limit on expanded aliases: otherwise ten lines of YAML can fill the memory. go-yaml: 400,000


class InvalidFile(LauncherError):
    """A values file that cannot be read: `origin` is the file and the line, `sentence` the message without them."""

    def __init__(self, origin: Origin, sentence: str) -> None:
        super().__init__(f"{origin}: {sentence}")
        self.origin = origin
        self.sentence = sentence


def missing_space(value: Any) -> str:
    """Return a hint if the text looks like a key and its value without the space between them, or ""."""
    if not (isinstance(value, str) and _KEY_AND_VALUE.match(value)):
        return ""
    return f' A key needs a space after its colon: "{value.replace(":", ": ", 1)[:40]}".'


def read_text(data: bytes, file: str) -> Values:
    """Return the values in `data`; `file` is the name used in origins and errors."""
    if len(data) > MAX_BYTES:
        limit = f"{MAX_BYTES / 1e6:.0f} MB"
        raise InvalidFile(Origin(file, 1), f"the file is too large; a values file can have at most {limit}.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidFile(Origin(file, line), "the file is not UTF-8 text; save it as UTF-8.") from error
    root: Node | None = None
    for first_line, document in _documents(text, file):
        node = Reader(file, first_line).read(document)
        if node is None or node.value is None:
            continue
        if not isinstance(node.value, dict):
            what = "a list" if isinstance(node.value, list) else "a single value"
            says = f"the file contains {what}; a values file must be a map of keys to values."
            raise InvalidFile(node.origin, says + missing_space(node.value))
        if root is not None:
            raise InvalidFile(
                node.origin,
                "a second document begins here, which Helm 3 drops and Helm 4 merges; move it to its own file.",
            )
        root = node
    return Values(root or Node({}, Origin(file, 1)))


def _documents(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Yield the documents of a file as Helm 4 splits it, each with the number of its first line, counted from 0.

    Helm splits at each line that begins with three dashes, even inside a string (k8s.io/apimachinery, YAMLReader).
    """
    lines: list[str] = []
    start = 0
    for number, raw in enumerate(text.removesuffix("\n").split("\n") if text else []):
        line = raw.removesuffix("\r")
        if line.startswith("---"):
            rest = line[3:].strip()
            if rest and not rest.startswith("#"):
                raise InvalidFile(Origin(file, number + 1), 'only a comment may follow "---" on its line.')
            if lines:
                yield start, "\n".join(lines) + "\n"
                lines, start = [], number + 1
                continue
        lines.append(line)
    if lines:
        yield start, "\n".join(lines) + "\n"


_TAG = "tag:yaml.org,2002:"
_RESOLVABLE = {"", *(_TAG + name for name in ("str", "bool", "int", "float", "null", "timestamp"))}
_ANCHOR = re.compile(r"[0-9A-Za-z_-]+")
_SLASH = re.compile(r"(?<!\\)(?:\\\\)*\\/")
# go-yaml reads the first three as line breaks, which is never intended. The others are halves of a surrogate pair.
_NEVER = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
_KEY_AND_VALUE = re.compile(r"[A-Za-z_][\w.-]*:[^\s/]")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")


@dataclass(slots=True)
class _Yaml:
    """A node of the file, before aliases and merge keys are expanded. kind: scalar, map, list, alias."""

    kind: str
    line: int
    value: Any
    tag: str = ""
    implicit: bool = True


class Reader:
    """Read one document: events to nodes (like go-yaml's parser), nodes to values with origins (like its decoder)."""

    def __init__(self, file: str, first_line: int) -> None:
        self.file = file
        self.first_line = first_line
        self.anchors: dict[str, _Yaml] = {}
        self.open_aliases: set[int] = set()
        self.count = 0
        self.text = ""

    def fail(self, line: int, sentence: str) -> LauncherError:
        return InvalidFile(Origin(self.file, line), sentence)

    def bad_character(self, line: int, code: int) -> LauncherError:
        return self.fail(
            self.first_line + line + 1, f"the character U+{code:04X} is not allowed here; write it as an escape."
        )

    def read(self, text: str) -> Node | None:
        """Return the document's value, or None if it is empty (only comments)."""
        if match := _NEVER.search(text):
            raise self.bad_character(text.count("\n", 0, match.start()), ord(match[0]))
        try:
            node = self.parse(text)
        except ReaderError as error:
            raise self.bad_character(text.encode()[: error.position].count(b"\n"), error.character) from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = self.first_line + (mark.line if mark else 0) + 1
            raise self.fail(line, f"this is not valid YAML: {_problem(error, text, self.first_line)}.") from error
        if node is None:
            return None
        return self.node(node, 0)

    # Events to nodes.

    def parse(self, text: str) -> _Yaml | None:
        self.text = text
        events: Iterator[Any] = yaml.parse(text, Loader=safe_loader())
        next(events)  # the start of the stream
        if isinstance(start := next(events), yaml.StreamEndEvent):
            return None
        if start.version or start.tags:
            raise self.fail(self.first_line + 1, "a line begins with %, but Helm does not support directives.")
        node = self.compose(events, next(events), 0)
        next(events)  # the end of the document
        if not isinstance(event := next(events), yaml.StreamEndEvent):
            line = self.first_line + event.start_mark.line + 1
            raise self.fail(line, "Helm would drop this text after the end of the document; remove it.")
        return node

    def compose(self, events: Iterator[Any], event: Any, depth: int, *, flow: bool = False) -> _Yaml:
        start, end = event.start_mark, event.end_mark
        line = self.first_line + start.line + 1
        if depth > _MAX_DEPTH:
            raise self.fail(line, f"the file is nested deeper than {_MAX_DEPTH} levels.")
        if isinstance(event, yaml.AliasEvent):
            target = self.anchors.get(str(event.anchor))
            if target is None:
                raise self.fail(line, f"the alias *{event.anchor} has no anchor above it.")
            return _Yaml("alias", line, target)
        if event.anchor and not _ANCHOR.fullmatch(event.anchor):
            raise self.fail(line, f"&{event.anchor} is not a valid anchor; use only letters, digits, - and _.")
        tag = event.tag or ""
        if isinstance(event, yaml.ScalarEvent):
            if event.style == '"' and _SLASH.search(self.text[start.index : end.index]):
                raise self.fail(line, 'Helm rejects the escape "\\/"; write "/".')
            if flow and not event.style and "?" in event.value:
                raise self.fail(line, 'Helm rejects a "?" within brackets; put the text in quotes.')
            node = _Yaml("scalar", line, event.value, tag, event.implicit[0])
            if event.anchor:
                self.anchors[event.anchor] = node
            return node
        children: list[_Yaml] = []
        node = _Yaml("map" if isinstance(event, yaml.MappingStartEvent) else "list", line, children, tag)
        flow = flow or event.flow_style
        if event.anchor:
            self.anchors[event.anchor] = node
        while not isinstance(event := next(events), yaml.CollectionEndEvent):
            children.append(self.compose(events, event, depth + 1, flow=flow))
        return node

    # Nodes to values.

    def node(self, yaml: _Yaml, depth: int) -> Node:
        self.count += 1
        if self.count > _MAX_NODES or depth > _MAX_DEPTH:
            raise self.fail(yaml.line, "the file is too large once its aliases are expanded.")
        if yaml.kind == "alias":
            if id(yaml.value) in self.open_aliases:
                raise self.fail(yaml.line, "an alias is inside the value that it refers to.")
            self.open_aliases.add(id(yaml.value))
            node = self.node(yaml.value, depth + 1)
            self.open_aliases.discard(id(yaml.value))
            return node
        origin = Origin(self.file, yaml.line)
        if yaml.kind == "map":
            return Node(self.mapping(yaml, {}, depth), origin)
        if yaml.kind == "list":
            return Node([plain(self.node(child, depth + 1)) for child in yaml.value], origin)
        return Node(json_number(self.scalar(yaml), origin), origin)

    def mapping(self, yaml: _Yaml, out: dict[str, Node], depth: int) -> dict[str, Node]:
        """Fill `out` key by key, as go-yaml does: a merge key overrides the keys above it."""
        lines: dict[str, int] = {}
        children = iter(yaml.value)
        for key_yaml, value_yaml in zip(children, children, strict=True):
            if (
                key_yaml.kind == "scalar"
                and key_yaml.value == "<<"
                and (key_yaml.implicit or key_yaml.tag == _TAG + "merge")
            ):
                self.merge_key(value_yaml, out, depth)
                continue
            key = self.key(key_yaml)
            if key in lines:
                raise self.fail(
                    key_yaml.line,
                    f'duplicate key "{key}": it is already set on line {lines[key]}; keep one of the two.',
                )
            lines[key] = key_yaml.line
            value = self.node(value_yaml, depth + 1).value
            out.pop(key, None)
            out[key] = Node(value, Origin(self.file, key_yaml.line))
        return out

    def merge_key(self, yaml: _Yaml, out: dict[str, Node], depth: int) -> None:
        sources = reversed(yaml.value) if yaml.kind == "list" else [yaml]
        for source in sources:
            target = source.value if source.kind == "alias" else source
            if target.kind != "map" or id(target) in self.open_aliases:
                raise self.fail(yaml.line, "the merge key << requires a map, an alias of a map, or a list of those.")
            self.open_aliases.add(id(target))
            self.mapping(target, out, depth + 1)
            self.open_aliases.discard(id(target))

    def key(self, yaml: _Yaml) -> str:
        target = yaml.value if yaml.kind == "alias" else yaml
        if target.kind != "scalar":
            raise self.fail(yaml.line, "the key is a map or a list; a key must be text.")
        value = self.scalar(target)
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if value is None or isinstance(value, Uint):
            raise self.fail(yaml.line, f'the key "{target.value}" is {"empty" if value is None else "too large"}.')
        return str(value) if isinstance(value, int) else float32(value)

    def scalar(self, yaml: _Yaml) -> Any:
        """Resolve a scalar as go-yaml's resolve does."""
        text, tag = yaml.value, yaml.tag
        if not tag:
            return resolve(text) if yaml.implicit else text
        if tag == _TAG + "binary":
            try:
                return base64.b64decode("".join(text.split()), validate=True).decode()
            except (binascii.Error, ValueError) as error:
                raise self.fail(yaml.line, "the !!binary value is not base64 of UTF-8 text.") from error
        if tag not in _RESOLVABLE or tag == _TAG + "str":
            return text
        value = resolve(text)
        kind = tag.removeprefix(_TAG)
        if kind == "float" and isinstance(value, int) and not isinstance(value, (bool, Uint)):
            value = float(value)
        fits = {
            "bool": isinstance(value, bool),
            "int": isinstance(value, int) and not isinstance(value, bool),
            "float": isinstance(value, float),
            "null": value is None,
            "timestamp": isinstance(value, str) and _DATE.fullmatch(value) is not None,
        }
        if not fits[kind]:
            raise self.fail(yaml.line, f'"{text}" is not a valid {kind}, which its tag !!{kind} requires.')
        return value


def _problem(error: Any, text: str, first_line: int) -> str:
    """Describe a parse error on one line, with libyaml's terms replaced by plain ones."""
    problem, context = str(error.problem or error.context or "it cannot be read"), str(error.context or "")
    opened = first_line + (error.context_mark.line if error.context_mark else 0) + 1
    at = text[error.problem_mark.index : error.problem_mark.index + 1] if error.problem_mark else ""
    if "quoted scalar" in context and "end of stream" in problem:
        return f"the quote that opens on line {opened} is not closed"
    if "expected ',' or" in problem:
        bracket = "{" if "mapping" in context else "["
        return f'the "{bracket}" that opens on line {opened} is not closed here; a "," or its end is missing'
    if at == "\t" or "tab character" in problem:
        return "a tab is not allowed here; indent with spaces"
    if "cannot start any token" in problem:
        return f"{at} cannot begin a key or a value; put the text in quotes"
    if at in ("]", "}"):
        return f'there is one "{at}" too many'
    if context in ("while parsing a block mapping", "while parsing a block collection"):
        return f"this does not continue the block that begins on line {opened}; fix the indentation"
    if "directive" in context:
        return "a line begins with %, but Helm does not support directives"
    if "expected <document start>" in problem:
        return "this does not continue the text above it (Helm would drop it); fix the indentation"
    if "mapping values are not allowed" in problem or "unexpected ':'" in problem:
        return 'a ":" is not allowed here; quote the text, or fix the indentation'
    return problem
