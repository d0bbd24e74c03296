"""`make charts`: the rules of charts/_rules.json as JSON Schema, which Helm evaluates.

Helm prints the value of a `const` that a value does not equal, and no other text of a schema, so the sentence of a
rule is such a const: if a value breaks the rule, then it must be the sentence. Helm adds the key.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

type Node = dict[str, Any]
type Rule = Mapping[str, Any]

KINDS = {"run": ("ray-job", "job-set"), "ray-cluster": ("cluster",), "serve": ("serve",)}
"""The kinds in the table that each chart renders."""

IN_TEMPLATES = ("kubernetesName", "secretVariable", "plainVariable", "quantity", "bytes", "zero")
"""The patterns that templates use, too."""

TESTS = {"matches", "forbids", "longest", "outside", "equals", "includes"}

_EMPTY: Node = {"$ref": "#/$defs/empty"}
_PLACEHOLDER = re.compile(r"\{([a-z][\w.]*)\}")
_NUMBERS: Mapping[str, Node] = {
    "quantity": {"exclusiveMaximum": 0},
    "moreThanZero": {"maximum": 0},
    "bytes": {"exclusiveMaximum": 1e6},
    "zero": {"const": 0},
    "manyCores": {"minimum": 1e4},
    "manyBytes": {"minimum": 1e14},
}
"""The numbers that break a rule on a quantity (or meet `zero`), by the name of its pattern."""


def in_templates(rule: Rule) -> bool:
    """Return whether JSON Schema cannot express a rule, so that charts/common/templates/_rules.tpl has it.

    A schema cannot compare two keys or look up a row of a table, does not see the name of a release, and counts the
    keys of an entry that null removes.
    """
    of_row = any(key.startswith("accelerator.") or "{" in key for key in rule.get("when", {}))
    compares = "equals" in rule or "{name}" in rule.get("when", {}).values()
    counts = "longest" in rule and "*" in rule["keys"][0]
    return of_row or compares or counts or rule.get("each", False) or rule["keys"] == ["run.name"]


def with_rules(chart: str, schema: Node, table: Rule) -> Node:
    """Return a chart's schema with a schema for each key of each rule that applies to the chart."""
    trees: dict[str, Node] = {}
    for conditions, checks in _rules(chart, schema, table):
        _merge(trees.setdefault(json.dumps(conditions), {}), checks)
    rules: Node = {"allOf": [_if(json.loads(conditions), tree) for conditions, tree in trees.items()]}
    if chart == "run":  # the chart has a sentence of its own about other kinds
        rules = {"if": _holds(schema, "run.kind", [*KINDS[chart]]), "then": rules}
    used = {name: {"pattern": text} for name, text in table["patterns"].items() if f'/{name}"' in json.dumps(rules)}
    # What is empty in a template.
    return {**schema, **rules, "$defs": {"empty": {"enum": [None, "", 0, False, [], {}]}, **used}}


def template_patterns(table: Rule) -> str:
    """Return the templates common.pattern.NAME of the patterns that templates use."""
    head = "{{- /* Patterns of charts/_rules.json. `make charts` writes this file. */ -}}"
    texts = []
    for name in IN_TEMPLATES:
        text = table["patterns"][name]
        if len(text) > 90:
            text = "".join(f"\n  {{{{- `{part}` -}}}}" for part in re.findall(".{1,120}", text)) + "\n"
        texts.append(f'{{{{- define "common.pattern.{name}" }}}}{text}{{{{- end -}}}}\n')
    return f"{head}\n{''.join(texts)}"


def _rules(chart: str, schema: Node, table: Rule) -> Iterator[tuple[list[Node], Node]]:
    """Yield, for each key of each rule, the conditions on other keys, and the schema of the values if they are met."""
    above: Rule = {}
    for rule in table["rules"]:
        kinds = [kind for kind in KINDS[chart] if kind in rule["kinds"]]
        if not kinds or in_templates(rule):
            continue
        for key in rule["keys"]:
            needed = [*_conditions(rule, key)]
            if len(kinds) < len(KINDS[chart]):
                needed.append(("run.kind", kinds[0]))
            held = [_holds(schema, *condition) for condition in needed]
            if rule.get("else") and above["keys"] != rule["keys"] and not above.keys() & TESTS and "*" not in key:
                held.append({"not": {"allOf": [_holds(schema, *condition) for condition in above["when"].items()]}})
            if _node(schema, key) is None or False in held:
                continue
            target = key.removesuffix(".*") if "of" in rule or "named" in rule else key
            checks = _at(schema, target, _check(schema, rule, key, table["patterns"]))
            yield [condition for condition in held if isinstance(condition, dict)], checks
        above = rule


def _if(conditions: list[Node], then: Node) -> Node:
    then = _plain(then)
    if not conditions:
        return then
    return {"if": conditions[0] if len(conditions) == 1 else {"allOf": conditions}, "then": then}


def _plain(node: Any) -> Any:
    """Return the tree with each list of a single check as that check."""
    if not isinstance(node, dict):
        return node
    made = {word: _plain(below) for word, below in node.items()}
    return made["allOf"][0] if made.keys() == {"allOf"} and len(made["allOf"]) == 1 else made


def _merge(tree: Node, other: Node) -> None:
    """Add the checks of `other` to those of `tree` at the same keys. With `else`, one follows the check above it."""
    for word, below in other.items():
        if word == "allOf":
            (check,) = below
            checks = tree.setdefault(word, [])
            if check.pop("follows", False) and checks:
                last = checks[-1]
                while "else" in last:
                    last = last["else"]
                last["else"] = check
            else:
                checks.append(check)
        elif word == "properties":
            for key, child in below.items():
                _merge(tree.setdefault(word, {}).setdefault(key, {}), child)
        else:
            _merge(tree.setdefault(word, {}), below)


def _conditions(rule: Rule, key: str) -> Iterator[tuple[str, Any]]:
    """Yield the conditions on other keys than the one that is checked."""
    for name, wanted in rule.get("when", {}).items():
        if name != key and not name.startswith((".", f"{key}.")):
            yield name, wanted


def _check(schema: Node, rule: Rule, key: str, patterns: Mapping[str, str]) -> Node:
    """Return the schema of a key: if it is wrong, it must be the sentence."""
    wrong = list(_tests(rule, patterns, _node(schema, key) or {}))
    for name, wanted in rule.get("when", {}).items():
        below = name.removeprefix(key).removeprefix(".")
        if name == key:
            wrong.append(_value(wanted))
        elif name.startswith((".", f"{key}.")):
            first: Node = {"type": "array", "prefixItems": [_value(wanted)], "minItems": 1}
            wrong += [first] if below == "0" else [_holds({}, below, wanted), {"type": "object"}]
    parent = key.partition(".*")[0]
    is_list = "*" in key and "object" not in (_node(schema, parent) or {}).get("type", ())
    of_lists = key.count("*") > 1 and key.endswith(".*")  # lists of the entries of a map
    known = {"key": parent if is_list else key.replace("*", "<name>"), "parent": parent}
    if of_lists:
        known["key"] = key.removesuffix(".*").replace("*", "<name>")
    sentence = _PLACEHOLDER.sub(lambda match: known.get(match[1], f"<{match[1]}>"), rule["message"])
    check: Node = {"if": {part: value for test in wrong for part, value in test.items()}, "then": {"const": sentence}}
    if any(test[part] != value for test in wrong for part, value in check["if"].items() if part in test):
        check["if"] = {"allOf": wrong}
    check = {"allOf": [(check if check["if"] else check["then"]) | {"follows": rule.get("else", False)}]}
    if "of" in rule:  # null removes an entry
        wrong_name = {"if": {"not": {"type": "null"}}, "then": {"const": sentence}}
        pattern = patterns.get(rule.get("matches", ""), rule.get("matches", ""))
        if pattern:
            check = {"allOf": [{"patternProperties": {pattern: {}}, "additionalProperties": wrong_name}]}
        else:
            check = {"allOf": [{"patternProperties": {patterns.get(rule["forbids"], rule["forbids"]): wrong_name}}]}
    return {"properties": {name: copy.deepcopy(check) for name in rule["named"]}} if "named" in rule else check


def _tests(rule: Rule, patterns: Mapping[str, str], node: Node) -> Iterator[Node]:
    if rule.get("optional"):
        yield {"minLength": 1}
    if name := rule.get("matches") or rule.get("forbids"):
        pattern = {"$ref": f"#/$defs/{name}"} if name in patterns else {"pattern": name}
        if name == "^":
            return
        pattern = {"not": pattern} if rule.get("matches") else {"type": "string", **pattern}
        is_number = name in _NUMBERS and "number" in node.get("type", ())
        yield {"anyOf": [pattern, {"type": "number", **_NUMBERS[name]}]} if is_number else pattern
    if name := rule.get("allows"):
        text: Node = {"type": "string", "$ref": f"#/$defs/{name}"}
        yield {"not": {"anyOf": [text, {"type": "number", **_NUMBERS[name]}]}}
    if "longest" in rule:
        kind = node["type"]
        counted = {"object": "minProperties", "array": "minItems", "string": "minLength"}[kind]
        yield {"type": kind, counted: rule["longest"] + 1}
    if "includes" in rule:
        has = [{"contains": _holds({}, "name", name)} for name in rule["includes"]]
        yield {"not": {"type": "array", "allOf": has}}
    if "outside" in rule:
        yield {"type": "number", "anyOf": [{"minimum": low, "maximum": high} for low, high in rule["outside"]]}


def _value(wanted: Any) -> Node:
    """Return the schema of a value that meets a condition."""
    if isinstance(wanted, bool):
        return {"not": _EMPTY} if wanted else _EMPTY
    if isinstance(wanted, list):
        return {"enum": wanted}
    if isinstance(wanted, Mapping):
        return {"not": _value(wanted["not"])} if "not" in wanted else {}
    return {"const": wanted}


def _holds(schema: Node, key: str, wanted: Any) -> Any:
    """Return the schema of values that meet a condition; a boolean if the key belongs to other charts only."""
    opposite: Any = None
    if wanted is False:
        opposite = True
    elif isinstance(wanted, Mapping):
        opposite = wanted.get("not") or ({"given": True} if wanted.get("given") is False else None)
    if schema and _node(schema, key) is None:
        return opposite is not None
    if opposite is not None:
        return {"not": _holds({}, key, opposite)}
    below = _value(wanted)
    for part in reversed(key.split(".")):
        below = {"required": [part], "properties": {part: below}} if below else {"required": [part]}
    return below


def _at(schema: Node, key: str, check: Node) -> Node:
    """Return a schema with `check` at a key; `*` is every entry of a map or a list."""
    parts = key.split(".")
    for length in reversed(range(len(parts))):
        if parts[length] == "*":
            above = _node(schema, ".".join(parts[:length])) or {}
            check = {"additionalProperties" if "object" in above.get("type", ()) else "items": check}
        else:
            check = {"properties": {parts[length]: check}}
    return check


def _node(schema: Node, key: str) -> Node | None:
    """Return the schema of a key; None if it belongs to other charts; empty if it is not described."""
    for part in key.split("."):
        if "x-charts" in schema:
            return None
        entries = schema.get("items") or schema.get("additionalProperties") or {}
        schema = schema.get("properties", {}).get(part) or (entries if isinstance(entries, dict) else {})
    return None if "x-charts" in schema else schema
