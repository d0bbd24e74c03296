"""Evaluates the expressions of GitHub's workflows: `${{ … }}`, and the conditions after `if:`.

The grammar, the conversions and the functions are those of GitHub's reference, "Evaluate expressions in workflows and
actions". A name or a function that is unknown here raises WorkflowError. GitHub itself evaluates an unknown name to
an empty text, which hides a wrong name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

# A value of an expression: None, a bool, a number, a text, or a mapping or list of these.
Value = Any
Functions = Mapping[str, Callable[..., Value]]

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?))"
    r"|(?P<name>[A-Za-z_][\w-]*)|(?P<sign>&&|\|\||==|!=|<=|>=|[<>!().,\[\]]))"
)
_LITERALS: Mapping[str, Value] = {"true": True, "false": False, "null": None}
_EMBEDDED = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


class WorkflowError(Exception):
    """A workflow, an expression or a step is invalid, or uses something that this package does not know."""


def evaluate(expression: str, contexts: Mapping[str, Value], functions: Functions) -> Value:
    """Return the value of the expression. Raises WorkflowError if it is invalid or has an unknown name."""
    parser = _Parser(expression, contexts, {**_FUNCTIONS, **functions})
    value = parser.either()
    if parser.tokens:
        raise WorkflowError(f'"{expression.strip()}": unexpected "{parser.tokens[0][1]}".')
    return value


def substitute(text: str, contexts: Mapping[str, Value], functions: Functions) -> Value:
    """Return the text with the value of each `${{ … }}`. A text that is one expression keeps the type of its value."""
    whole = re.fullmatch(r"\s*\$\{\{((?:(?!\}\}).)*)\}\}\s*", text, re.DOTALL)
    if whole:
        return evaluate(whole[1], contexts, functions)
    if "${{" in _EMBEDDED.sub("", text):
        raise WorkflowError(f'"{text}" has a "${{{{" without "}}}}".')
    return _EMBEDDED.sub(lambda match: as_text(evaluate(match[1], contexts, functions)), text)


def as_text(value: Value) -> str:
    """Return the value as a text, as GitHub writes it into an environment variable or a script."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return f"{value:g}"
    raise WorkflowError(f"{value!r} is not a text; write one of its keys.")


def as_bool(value: Value) -> bool:
    """Return whether a condition with this value is true: all but false, 0, "" and null."""
    return not (value is None or value is False or value in (0, "") or (isinstance(value, float) and math.isnan(value)))


def _number(value: Value) -> float:
    match value:
        case None:
            return 0.0
        case bool() | int() | float():
            return float(value)
        case str():
            try:
                return float(int(value, 16)) if value.startswith("0x") else float(value.strip() or 0)
            except ValueError:
                return math.nan
    return math.nan


def _equal(left: Value, right: Value) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.lower() == right.lower()
    if type(left) is type(right):
        return bool(left == right)
    return _number(left) == _number(right)


def _contains(search: Value, item: Value) -> bool:
    if isinstance(search, list):
        return any(_equal(each, item) for each in search)
    return as_text(item).lower() in as_text(search).lower()


def _format(template: Value, *values: Value) -> str:
    return as_text(template).format(*map(as_text, values))


_FUNCTIONS: Functions = {
    "contains": _contains,
    "startswith": lambda text, start: as_text(text).lower().startswith(as_text(start).lower()),
    "endswith": lambda text, end: as_text(text).lower().endswith(as_text(end).lower()),
    "format": _format,
}

_COMPARISONS: Mapping[str, Callable[[Value, Value], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": lambda left, right: _number(left) < _number(right),
    "<=": lambda left, right: _number(left) <= _number(right),
    ">": lambda left, right: _number(left) > _number(right),
    ">=": lambda left, right: _number(left) >= _number(right),
}


class _Parser:
    """Parses by recursive descent and evaluates at once. Both sides of an operator are always evaluated."""

    def __init__(self, expression: str, contexts: Mapping[str, Value], functions: Functions) -> None:
        self.expression, self.contexts, self.functions = expression.strip(), contexts, functions
        self.tokens: list[tuple[str, str]] = []
        position = 0
        while self.expression[position:].strip():
            match = _TOKEN.match(self.expression, position)
            if match is None:
                raise self.error(f'"{self.expression[position:]}" is not valid here')
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            position = match.end()

    def error(self, why: str) -> WorkflowError:
        return WorkflowError(f'"{self.expression}": {why}.')

    def take(self, *signs: str) -> str | None:
        """Remove the next token if it is one of the signs, and return it."""
        if self.tokens and self.tokens[0][0] == "sign" and self.tokens[0][1] in signs:
            return self.tokens.pop(0)[1]
        return None

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise self.error(f'"{sign}" is missing')

    def either(self) -> Value:
        value = self.both()
        while self.take("||"):
            other = self.both()
            value = value if as_bool(value) else other
        return value

    def both(self) -> Value:
        value = self.comparison()
        while self.take("&&"):
            other = self.comparison()
            value = other if as_bool(value) else value
        return value

    def comparison(self) -> Value:
        value = self.negation()
        while sign := self.take(*_COMPARISONS):
            value = _COMPARISONS[sign](value, self.negation())
        return value

    def negation(self) -> Value:
        return not as_bool(self.negation()) if self.take("!") else self.term()

    def term(self) -> Value:
        if self.take("("):
            value = self.either()
            self.expect(")")
            return value
        if not self.tokens or self.tokens[0][0] == "sign":
            raise self.error("a value is missing")
        kind, token = self.tokens.pop(0)
        if kind == "text":
            return token[1:-1].replace("''", "'")
        if kind == "number":
            return _number(token)
        if self.take("("):
            return self.call(token)
        if token in _LITERALS:
            return _LITERALS[token]
        if token not in self.contexts:
            raise self.error(f'"{token}" is not a known context')
        return self.keys(token, self.contexts[token])

    def call(self, name: str) -> Value:
        arguments: list[Value] = []
        while not self.take(")"):
            if arguments:
                self.expect(",")
            arguments.append(self.either())
        function = self.functions.get(name.lower())
        if function is None:
            raise self.error(f'"{name}" is not a known function')
        return function(*arguments)

    def keys(self, path: str, value: Value) -> Value:
        while sign := self.take(".", "["):
            if sign == ".":
                if not self.tokens or self.tokens[0][0] != "name":
                    raise self.error(f'a name is missing after "{path}."')
                key = self.tokens.pop(0)[1]
            else:
                key = as_text(self.either())
                self.expect("]")
            path = f"{path}.{key}"
            if value is None:  # a key of an object that the event does not have
                continue
            if not isinstance(value, Mapping) or key not in value:
                raise self.error(f'"{path}" is not known')
            value = value[key]
        return value
