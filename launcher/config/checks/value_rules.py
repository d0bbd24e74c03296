"""The rules of charts/_rules.json, with file and line.

A rule is written once: the launcher evaluates the table here, and `make charts` writes it as JSON Schema into the
values.schema.json of each chart, which Helm evaluates (tests/charts/rule_schemas.py). The rules that JSON Schema cannot
express are in charts/common/templates/_rules*.tpl, too. A rule has these fields:

rule        its id in the output of `launcher check -o json`
keys        the keys that it checks; `*` is every entry of a map or a list
kinds       the kinds that it applies to, as a list or as a name of `kinds`; by default "objects", those that create
            Kubernetes objects. `cluster` is a release of charts/ray-cluster, `ray-cluster` a run in such a cluster, and
            `serve` a release of charts/serve
when        conditions on other keys, all of which must hold: a value that the key must have, true (set and not empty),
            false (absent or empty), {"given": ...} (present, even if empty) or {"not": ...}. A key that starts with a
            dot is below the entry that `*` matches; {name} is its name, and {value} what is checked. KEY.0 is the first
            item of a list; accelerator.kind is the kind of slice.accelerator (tpu, gpu or cpu), and accelerator.label,
            .labelKey, .machineType and .chipsPerHost are those of the nodes
else        apply the rule only if the rules above it, back to one without `else`, found nothing wrong with the entry
each        the rule applies to each group of hosts: to slice, and in charts/ray-cluster to each of cluster.groups
of          name: check the name of the entry instead of its value
named       the rule applies to the entries with these names
optional    the value may be an empty text
$comment    the reason, and the group of the rules from here

and at most one test. Without a test, the conditions alone make the value wrong.

matches     a regular expression, or the name of one in `patterns`, that the value must match
forbids     one that it must not match, except for texts that match `allows`
longest     the maximum number of characters, or of entries of a list or a map
outside     ranges of numbers, inclusive, that it must not be in
includes    names that its list must have, such as those of containers
equals      another key, whose value it must have, unless that is empty

A long message, pattern or comment is a list of its parts. In a message, {key} is the dotted key, {parent} the key above
the entry, {name} the entry's name, {value} what was checked, in quotes, {length} its length, {slice} the
key of the group of hosts, and {a.b} the value of the key a.b; Helm prints {value} as <value>. Regular expressions must
mean the same in Go and in Python; `^` and `$` are the ends of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from launcher.config import accelerators
from launcher.config.checks.problems import CheckContext, Problem, Rule, table_of
from launcher.config.kinds import RunKind
from launcher.config.values.tree import dotted
from launcher.paths import charts_dir

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
def table(charts: Path | None = None) -> dict[str, Any]:
    """Return the table: `kinds`, `patterns` and `rules`, with the list of kinds of each rule, and each text as one."""
    content: dict[str, Any] = json.loads(((charts or charts_dir()) / "_rules.json").read_bytes())
    for entry in (content["patterns"], *content["rules"]):
        fields = ("message", "matches", "forbids") if "rule" in entry else [*entry]
        entry |= {key: "".join(entry[key]) for key in fields if key in entry}
    for rule in content["rules"]:
        rule["kinds"] = content["kinds"].get(str(rule.get("kinds", "objects")), rule.get("kinds"))
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
        if not set(RunKind) <= set(rule["kinds"]):
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
            if not _applies(rule, case):
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


def _applies(rule: Mapping[str, Any], case: CheckContext) -> bool:
    """Return whether the rule applies. One for every kind of run does so even if run.kind is invalid."""
    kinds = rule["kinds"]
    return case.release in kinds if case.release else set(RunKind) <= set(kinds) or case.kind in kinds


def _items(tree: Mapping[str, Any], key: str) -> Iterator[_Item]:
    if "*" not in key:
        path = tuple(key.split("."))
        given, value = _at(tree, key)
        yield _Item(path, path, key, (), None, given, value)
        return
    above, _, below = key.partition(".*")
    if "*" in below:
        for name in _at(tree, above)[1] or ():
            yield from _items(tree, f"{above}.{name}{below}")
        return
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
        except (accelerators.SliceError, KeyError):  # another rule reports a table that contradicts itself
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
    if not item.given or (rule.get("optional") and checked == ""):
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
        "length": str(len(checked)) if isinstance(checked, Sized) else "",
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
