"""The rules of the charts' table, with file and line.

charts/common/templates/_value_rules.tpl contains the rules and defines their fields; charts and launcher read it, so a
rule is written once. The charts evaluate it in _rules_evaluate.tpl.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from launcher.config import accelerators
from launcher.config.checks.problems import CheckContext, Problem, Rule, table_of
from launcher.config.kinds import RunKind
from launcher.config.values.tree import dotted
from launcher.paths import charts_dir

_COMMENT = re.compile(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", re.DOTALL)
_START, _END = '{{- define "common.valueRules" -}}', "{{- end -}}"
_PLACEHOLDER = re.compile(r"\{([a-z]\w*(?:\.\w+)*)\}")
_TESTS = ("matches", "forbids", "longest", "outside", "equals", "includes")


@dataclass(frozen=True)
class _Item:
    """The part of the values that a rule's key names: an entry that `*` matches, or the key itself."""

    path: tuple[str, ...]
    parent: tuple[str, ...]
    name: str
    base: tuple[str, ...]
    entry: Any
    given: bool
    value: Any


@cache
def table() -> dict[str, Any]:
    """Return the table: `kinds`, `patterns` and `rules`."""
    text = (charts_dir() / "common" / "templates" / "_value_rules.tpl").read_text(encoding="utf-8")
    text = text.split(_START)[1].rsplit(_END)[0]
    content: dict[str, Any] = json.loads(_COMMENT.sub("", text))
    for entry in (content["patterns"], *content["rules"]):  # long texts are lists of their parts
        fields = ("message", "matches", "forbids") if "rule" in entry else [*entry]
        entry |= {key: "".join(entry[key]) for key in fields if key in entry}
    return content


@cache
def value_rules() -> tuple[tuple[tuple[str, ...], Rule], ...]:
    """Return the rules, each with the keys that it reads. A rule and the `else` rules that follow it are one."""
    chains: list[list[Mapping[str, Any]]] = []
    for rule in table()["rules"]:
        if rule.get("else"):
            chains[-1].append(rule)
        else:
            chains.append([rule])
    return tuple((_reads(chain), _evaluator(chain)) for chain in chains)


def _reads(chain: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    reads: set[str] = set()
    for rule in chain:
        if not _is_for_every_run(rule):
            reads.add("run.kind")
        reads.update(key.split(".*")[0] for key in rule["keys"])
        reads.update(_conditions(rule))
        read = [*_PLACEHOLDER.findall(rule["message"]), rule.get("equals", "")]
        reads.update(key for key in read if "." in key and not key.startswith("accelerator."))
        if rule.get("each"):
            reads.update(("run.kind", "slice", "common"))
        if any(key.startswith("accelerator.") for key in rule.get("when", {})):
            reads.add("common")
    return tuple(sorted(reads))


def _conditions(rule: Mapping[str, Any], name: str = "") -> list[str]:
    """Return the keys of the values on which the conditions of a rule depend; `name` is the entry's name."""
    keys = [key for key in rule.get("when", {}) if not key.startswith(".")]
    keys = ["slice.accelerator" if key.startswith("accelerator.") else key.removesuffix(".0") for key in keys]
    return [key.replace("{name}", name).replace("{value}", "").rstrip(".") for key in keys]


def _evaluator(chain: Sequence[Mapping[str, Any]]) -> Rule:
    def evaluate(case: CheckContext) -> Iterator[Problem]:
        failed: set[tuple[str, ...]] = set()
        for rule in chain:
            if not (_is_for_every_run(rule) or case.kind in _kinds(rule)):
                continue
            if rule.get("each") and case.ignores_slice:
                continue
            items = [item for key in rule["keys"] for item in _items(case.tree, key)]
            items = [item for item in items if item.name in rule.get("named", [item.name])]
            broken = [item for item in items if item.base not in failed and _is_broken(rule, item, case.tree)]
            failed.update(item.base for item in broken)
            for item in broken:
                yield from _problem(case, rule, item)

    return evaluate


def _kinds(rule: Mapping[str, Any]) -> Sequence[str]:
    kinds = rule.get("kinds", "objects")
    names: Sequence[str] = table()["kinds"][kinds] if isinstance(kinds, str) else kinds
    return names


def _is_for_every_run(rule: Mapping[str, Any]) -> bool:
    """Return whether the rule applies to every kind of run, and thus even if run.kind is invalid."""
    return set(RunKind) <= set(_kinds(rule))


def _items(tree: Mapping[str, Any], key: str) -> Iterator[_Item]:
    if "*" not in key:
        path = tuple(key.split("."))
        given, value = _at(tree, key)
        yield _Item(path, path, key, (), None, given, value)
        return
    above, _, below = key.partition(".*")
    parent = tuple(above.split("."))
    _, entries = _at(tree, above)
    named = isinstance(entries, Mapping)
    for name, entry in entries.items() if isinstance(entries, Mapping) else enumerate(entries or ()):
        base = (*parent, str(name))
        given, value = _at(entry, below.removeprefix(".")) if below else (True, entry)
        path = (*base, *below.removeprefix(".").split(".")) if below else base
        yield _Item(path if named else parent, parent, str(name), base, entry, given, value)


def _at(tree: Any, key: str) -> tuple[bool, Any]:
    """Return whether the dotted key is in the tree, and its value; "" if it is not. `0` is the first item of a list."""
    for part in key.split("."):
        if isinstance(tree, Mapping) and part in tree:
            tree = tree[part]
        elif isinstance(tree, list) and tree and part == "0":
            tree = tree[0]
        else:
            return False, ""
    return True, tree


def lookup(tree: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    if key in ("accelerator.machineType", "accelerator.chipsPerHost"):
        try:
            resolved = accelerators.resolve(tree["slice"], table_of(tree))
        except accelerators.SliceError:
            return False, ""
        return True, resolved.machine_type if key.endswith("machineType") else str(resolved.chips_per_host)
    if key.startswith("accelerator."):
        return _at(table_of(tree).get(tree["slice"]["accelerator"], {}), key.removeprefix("accelerator."))
    return _at(tree, key)


def _is_broken(rule: Mapping[str, Any], item: _Item, tree: Mapping[str, Any]) -> bool:
    checked = _checked(rule, item)
    for condition, wanted in rule.get("when", {}).items():
        key = condition.replace("{name}", item.name).replace("{value}", str(checked))
        given, value = _at(item.entry, key[1:]) if key.startswith(".") else lookup(tree, key)
        if isinstance(wanted, bool):
            holds = bool(value) == wanted
        elif not isinstance(wanted, Mapping):
            holds = value == (item.name if wanted == "{name}" else wanted)
        elif "given" in wanted:
            holds = given == wanted["given"]
        else:
            holds = value != wanted["not"]
        if not holds:
            return False
    if not any(test in rule for test in _TESTS):
        return True
    if not item.given or (rule.get("optional") and not checked):
        return False
    if "matches" in rule:
        return not _regex(rule["matches"]).search(str(checked))
    if "forbids" in rule:
        allowed = "allows" in rule and _regex(rule["allows"]).search(str(checked))
        return bool(_regex(rule["forbids"]).search(str(checked)) and not allowed)
    if "longest" in rule:
        return len(checked) > int(rule["longest"])
    if "includes" in rule:
        entries = checked if isinstance(checked, list) else []
        return not {*rule["includes"]} <= {_at(entry, "name")[1] for entry in entries}
    if "equals" in rule:
        wanted = lookup(tree, rule["equals"])[1]
        return bool(wanted) and wanted != checked
    return any(low <= checked <= high for low, high in rule["outside"])


def _checked(rule: Mapping[str, Any], item: _Item) -> Any:
    return item.name if rule.get("of") == "name" else item.value


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """Return a pattern of the table for Python, whose `$` also matches before a newline at the end."""
    return re.compile(table()["patterns"].get(pattern, pattern).replace("$", r"\Z"))


def _problem(case: CheckContext, rule: Mapping[str, Any], item: _Item) -> Iterator[Problem]:
    checked = _checked(rule, item)
    texts = {
        "slice": "slice",
        "key": dotted(item.path),
        "parent": dotted(item.parent),
        "name": item.name,
        "length": str(len(checked)) if isinstance(checked, str) else "",
        "value": json.dumps(str(checked), ensure_ascii=False),
    }

    def text(match: re.Match[str]) -> str:
        return texts[match[1]] if match[1] in texts else str(lookup(case.tree, match[1])[1])

    message = _PLACEHOLDER.sub(text, rule["message"])
    # An unknown key can be a mistyped form of a key that decides: a condition if there is no test, run.kind for the
    # length.
    if not any(test in rule for test in _TESTS):
        problems = list(case.across(rule["rule"], item.path, message, *_conditions(rule, item.name)))
    elif "longest" in rule:
        problems = list(case.across(rule["rule"], item.path, message, "run.kind"))
    else:
        problems = [case.problem(rule["rule"], item.path, message)]
    for problem in problems:
        yield replace(problem, key=dotted(item.parent)) if "{parent}" in rule["message"] else problem
