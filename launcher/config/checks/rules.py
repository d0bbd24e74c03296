"""Every rule about values that needs neither a cluster nor chips; all problems are reported at once.

A rule is a generator that takes a `CheckContext` and yields problems. Each key is checked on its own first. Rules
across keys run only if the keys that they read are valid. While there is an unknown key, nothing that follows from an
absent key is reported: the unknown key may be the absent one, mistyped. So one mistake gives one message.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from launcher.config import accelerators
from launcher.config.checks.cluster_rules import CLUSTER_RULES, contradictions
from launcher.config.checks.data_rules import DATA_RULES
from launcher.config.checks.model_rules import MODEL_RULES
from launcher.config.checks.problems import ERROR as ERROR
from launcher.config.checks.problems import WARNING, CheckContext, Rule, table_of
from launcher.config.checks.problems import Problem as Problem
from launcher.config.checks.problems import has_errors as has_errors
from launcher.config.checks.resource_rules import RESOURCE_RULES
from launcher.config.checks.schema import NO_VALUE, Violation, keys_of_others, leaves, spell_value, value_at, violations
from launcher.config.checks.value_rules import value_rules
from launcher.config.checks.weights_rules import WEIGHTS_RULES
from launcher.config.kinds import RunKind
from launcher.config.maxtext.keys import KINDS, NO_POSITION, SAVES_WITHOUT_POSITION, TEXT_IS_GIVEN, other_training
from launcher.config.maxtext.keys import OWNED as OWNED
from launcher.config.maxtext.keys import OWNED_WITH_DATA as OWNED_WITH_DATA
from launcher.config.maxtext.keys import STRICTER_BOUNDS as STRICTER_BOUNDS
from launcher.config.maxtext.keys import maxtext as maxtext
from launcher.config.maxtext.keys import out_of_bounds as out_of_bounds
from launcher.config.maxtext.keys import takes as takes
from launcher.config.suggest import bare, closest, join_or
from launcher.config.synonyms import CHANGED, SYNONYMS
from launcher.config.values.reader import missing_space
from launcher.config.values.scalars import resolve
from launcher.config.values.tree import SET, Values, dotted
from launcher.paths import CHARTS, charts_dir
from launcher.plugins import hooks

_EXAMPLE_LENGTH = 35  # the shortest limit of a name: that of a ray-job run


def check(user: Values, effective: Values, rules: Rules | None = None) -> list[Problem]:
    """Return all problems, sorted by file and line; problems without a line come last.

    `rules` limits the rules across keys (default: all). Each key is always checked on its own.
    """
    case = CheckContext(user, effective)
    if set(user.origins) <= {("run",), ("run", "name")}:
        return [case.problem("empty", (), "there are no values; name a file with -f, such as the preset quickstart.")]
    violations_ = list(_schema_violations(case))
    problems = [_explain(case, one, suggest=number < _SUGGESTIONS) for number, one in enumerate(violations_)]
    invalid = InvalidPaths(violation.path for violation in violations_)
    if isinstance(case.tree.get("train"), dict):
        of_train = list(_train_keys(case))
        case.train_valid = all(problem.rule == "owned-key" for problem in of_train)
        problems += of_train
    case.has_unknown_keys = any(problem.rule == "unknown-key" for problem in problems)
    more = [rule for hook in hooks("rules") for rule in hook()] if rules in (None, RULES) else []
    for reads, rule in (*(RULES if rules is None else rules), *more):
        if not any(map(invalid.overlap, reads)):
            problems += (_with_example(problem, case) for problem in rule(case))
    return sorted(problems, key=lambda p: (p.file is None, p.file or "", p.line or 0, p.key, p.rule))


class InvalidPaths:
    """The paths of invalid values. A file can have thousands of them."""

    def __init__(self, paths: Iterable[tuple[str, ...]]) -> None:
        self._paths = set(paths)
        self._parents = {path[:length] for path in self._paths for length in range(len(path) + 1)}

    def overlap(self, key: str) -> bool:
        """Return whether the value of `key`, one of its parents or a part of it is invalid."""
        path = tuple(key.split("."))
        return path in self._parents or any(path[:length] in self._paths for length in range(len(path)))


# --- The schema -------------------------------------------------------------------------------------------------


@cache
def schema(chart: str) -> dict[str, Any]:
    """Return a chart's values.schema.json. A key of other charts has the schema of the first of them."""
    return _complete(_schema_file(chart), ())


@cache
def _schema_file(chart: str) -> dict[str, Any]:
    text: dict[str, Any] = json.loads((charts_dir() / chart / "values.schema.json").read_bytes())
    return text


def _complete(node: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    if charts := node.get("x-charts"):
        return {**_node(_schema_file(charts[0]), path), "x-charts": charts}
    below = {key: _complete(child, (*path, key)) for key, child in node.get("properties", {}).items()}
    return node | ({"properties": below} if below else {})


# The most problems for which a similar word is searched: it takes 20 ms for each.
_SUGGESTIONS = 20


def chart_violations(chart: str, tree: dict[str, Any]) -> Iterator[Violation]:
    """Yield the violations of a chart's schema. A key of other charts has no defaults here, so it may be null."""
    others = list(keys_of_others(schema(chart), tree))
    for violation in violations(schema(chart), tree):
        of_others = any(violation.path[: len(path)] == path for path in others)
        if not (of_others and _node(schema(chart), violation.path) and value_at(tree, violation.path) is None):
            yield violation


def own_values(chart: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without those of the library chart and without the keys of other charts."""
    own = copy.deepcopy({key: value for key, value in tree.items() if key not in ("common", "global")})
    for path in list(keys_of_others(schema(chart), own)):
        del value_at(own, path[:-1])[path[-1]]
    return own


def other_charts(chart: str, user: Values) -> Iterator[Problem]:
    """Yield a warning about the keys that only other charts have, for each set of these charts.

    A plan does not have them, because one file can be for several charts.
    """
    by_charts: dict[str, list[tuple[str, ...]]] = {}
    for path in keys_of_others(schema(chart), user.tree):
        names = _node(schema(chart), path)["x-charts"]
        by_charts.setdefault(join_or([f"charts/{name}" for name in names], "and"), []).append(path)
    for names, paths in by_charts.items():
        message = f"charts/{chart} ignores keys of {names}: {join_or([dotted(path) for path in paths], 'and')}."
        yield CheckContext(user, user).problem("other-chart", paths[0], message, WARNING)


def _schema_violations(case: CheckContext) -> Iterator[Violation]:
    yield from chart_violations("run", case.tree)
    if "common" not in case.tree:
        yield Violation(("common",), "missing-key", NO_VALUE)
    elif case.user.origin(("common",)) is not None and isinstance(case.tree["common"], dict):
        yield from violations(schema("common"), case.tree["common"], ("common",))


def _explain(case: CheckContext, violation: Violation, *, suggest: bool) -> Problem:
    path, says = violation.path, violation.says
    key = dotted(path)
    if violation.rule == "unknown-key":
        return case.problem(
            "unknown-key", path, f"unknown key {key}{_unseen(path[-1]) or (_belongs(path) if suggest else '.')}"
        )
    if violation.rule == "type":
        value = value_at(case.tree, path)
        if isinstance(value, str) and _schema_at(path).get("items", {}).get("type") == "string":
            words = [word.strip() for word in value.split(",")]
            if path == ("run", "command"):
                words = [value]
                with suppress(ValueError):  # a quotation mark without its pair
                    words = shlex.split(value)
            says = says.removesuffix(".") + f", such as [{', '.join(map(json.dumps, words))}]."
        if isinstance(value, str) and _schema_at(path).get("type") == "object":
            known = _schema_at(path).get("properties", {})
            says += missing_space(value) if not known or value.partition(":")[0] in known else ""
        origin = case.user.origin(path)
        if origin is not None and origin.file == SET:  # the shell removes quotes
            says = says.replace("put it in quotes.", f"put it in quotes that the shell keeps: --set '{key}=\"…\"'.")
    if violation.rule == "enum":
        members = [str(m) for m in _schema_at(path).get("enum", ())]
        value = value_at(case.tree, path)
        near = closest(value, members) if isinstance(value, str) and suggest else []
        advice = _schema_at(path).get("x-instead", {})
        says += advice.get(str(value)) or (f' Did you mean "{near[0]}"?' if near else "")
    return case.problem(violation.rule, path, f"{key} {says}")


def _unseen(key: str) -> str:
    """Return the end of the message about a key that contains an invisible or space-like character, or ends in one."""
    if key != key.strip(" "):
        return "; there is a space before or after it; remove the space."
    strange = next((char for char in key if char != " " and unicodedata.category(char) in ("Zs", "Cf")), "")
    return f"; it contains the invisible character U+{ord(strange):04X}; write the key again." if strange else ""


_ABBREVIATIONS = {"peft": "PEFT", "grpo": "GRPO"}


def _for_other_training(key: str) -> str:
    """Return the end of the message about a key of a kind of training that other programs have."""
    if method := re.search(r"(?<![a-z])(sft|q?lora)(?![a-z])", key.lower()):
        return f"; for fine-tuning on conversations, set tuning.method: {method[1]}."
    if method := re.search(r"(?<![a-z])(dpo|orpo)(?![a-z])", key.lower()):
        return f"; for training on pairs of answers, set tuning.method: {method[1]}."
    kind = re.search(rf"(?<![a-z])({'|'.join(_ABBREVIATIONS)})(?![a-z])", key.lower())
    return (
        f", and Slipway's trainer does not do {_ABBREVIATIONS[kind[1]]}: it trains all weights on text." if kind else ""
    )


def _schema_at(path: Sequence[str]) -> dict[str, Any]:
    return _node(schema("run"), path)


def _node(schema: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    for key in path:
        schema = schema.get("properties", {}).get(key, {})
    return schema


# Sections of the schema without keys that a run reads.
_NOT_OF_A_RUN = ("common", "global", "serve")


def _called(key: str, paths: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the least nested keys of that name: for `name`, a run's or a team's rather than a Secret's."""
    matching = [path for path in paths if path[-1] == key]
    return [dotted(path) for path in matching if len(path) == min(map(len, matching))]


def _belongs(path: tuple[str, ...]) -> str:
    """Return the end of the message about an unknown key: a suggestion if one is found."""
    *above, key = path
    others = {*_NOT_OF_A_RUN} - {path[0]}
    paths = [p for p in leaves(schema("run")) if p[0] not in others]
    siblings = [p[-1] for p in paths if list(p[:-1]) == above]
    near = closest(key, siblings) or [name for name in siblings if len(key) > 3 and bare(key) in bare(name)]
    if near and bare(near[0]) == bare(key):
        return f"; did you mean {dotted([*above, near[0]])}?"
    if chart := next((name for name in CHARTS if not above and key in schema(name)["properties"]), ""):
        guess = f"; did you mean {near[0]}? It" if near else "; it"
        return f"{guess} is a key of charts/{chart}: launcher check {chart} -f FILE."
    elsewhere = _called(key, paths)
    if key in maxtext()["keys"]:
        owned = OWNED.get(key)
        elsewhere = [f"train.{key}"] if owned is None else [owned.removeprefix("use ").rstrip(".")]
    elsewhere = elsewhere or list(SYNONYMS.get(bare(key), ()))  # words of other trainers
    if not above and bare(key) in CHANGED:
        return f"; {CHANGED[bare(key)]}"
    if elsewhere:
        return f"; did you mean {join_or(elsewhere[:4])}?"
    if near:
        return f"; did you mean {dotted([*above, near[0]])}?"
    by_name = {p[-1]: dotted(p) for p in reversed(paths)}
    by_name |= {name: f"train.{name}" for name in maxtext()["keys"] if name not in by_name and name not in OWNED}
    far = closest(key, by_name)
    if far:
        return f"; did you mean {by_name[far[0]]}?"
    return f"; {dotted(above) if above else 'the top level'} has {join_or(siblings, 'and')}." if siblings else "."


# --- MaxText's keys ---------------------------------------------------------------------------------------------


def _train_keys(case: CheckContext) -> Iterator[Problem]:
    table = maxtext()["keys"]
    unknown = 0
    for key, value in case.tree["train"].items():
        path = ("train", key)
        name = dotted(path)
        if key in OWNED:
            if value is not None:
                yield case.problem("owned-key", path, f"{name} is set by Slipway: {OWNED[key]}")
        elif key not in table:
            unknown += 1
            belongs = (
                _unseen(key) or _for_other_training(key) or (_train_belongs(key) if unknown <= _SUGGESTIONS else ".")
            )
            shown = key if key == key.strip() else f'"{key}"'
            yield case.problem("unknown-key", path, f"MaxText has no key {shown}{belongs}")
        elif value is None:
            pass  # a later layer removed the key; the trainer leaves it to MaxText
        elif f"base_{key}" in table:
            yield case.problem("owned-key", path, f"{name} is calculated by MaxText; set train.base_{key}.")
        elif not takes(table[key]["types"], value):
            kinds = [kind for kind in KINDS if kind in table[key]["types"]]
            wanted = join_or([KINDS[kind] for kind in kinds if kind != "int" or "float" not in kinds])
            unquoted = isinstance(value, str) and takes(table[key]["types"], resolve(value))
            hint = "; remove the quotes" if unquoted else ""
            yield case.problem("type", path, f"{name} is {spell_value(value)}; MaxText requires {wanted}{hint}.")
        elif "values" in table[key] and value not in table[key]["values"]:
            members = [str(member) for member in table[key]["values"]]
            near = closest(str(value), members)
            guess = f' Did you mean "{near[0]}"?' if near else ""
            listed = ", ".join(member or '""' for member in members)
            yield case.problem("enum", path, f"{name} is {json.dumps(value)}; it must be one of {listed}.{guess}")
        elif key == "steps" and value < 1:
            yield case.problem("steps", path, f"train.steps is {value}; it must be at least 1.")
        elif bound := out_of_bounds(STRICTER_BOUNDS.get(key) or table[key], value):
            yield case.problem("minimum", path, f"{name} is {value}; it must be {bound}.")
        elif kind := other_training(key, value):
            message = f"{name} is for {kind} by another program of MaxText, so it has no effect here; remove the key."
            if key == "dpo":
                message += " Use tuning.method: dpo or orpo, and tuning.beta."
            yield case.problem("other-training", path, message)
        else:
            yield from _train_value(case, path, value)


def _train_value(case: CheckContext, path: tuple[str, str], value: Any) -> Iterator[Problem]:
    if path[1] == "model_name" and value not in ("default", *maxtext()["models"]):
        near = closest(value.rpartition("/")[2], maxtext()["models"], 3)  # also of ORG/NAME on Hugging Face
        guess = f"; did you mean {join_or(near)}?" if near else "; docs/reference/maxtext-keys.md lists the models."
        yield case.problem("model-name", path, f'MaxText {maxtext()["maxtext"]} has no model "{value}"{guess}')


def _train_belongs(key: str) -> str:
    if bare(key) in CHANGED:
        return f"; {CHANGED[bare(key)]}"
    near = closest(key, maxtext()["keys"])
    if near and bare(near[0]) == bare(key):
        return f"; did you mean train.{near[0]}?"
    elsewhere = _called(key, [p for p in leaves(schema("run")) if p[0] not in (*_NOT_OF_A_RUN, "train")])
    elsewhere = elsewhere or list(SYNONYMS.get(bare(key), ()))  # words of other trainers
    if elsewhere:
        return f"; did you mean {join_or(elsewhere)}?"
    return f"; did you mean train.{near[0]}?" if near else "."


# --- Rules across keys ------------------------------------------------------------------------------------------


def _name(case: CheckContext) -> Iterator[Problem]:
    if not case.tree["run"]["name"]:
        message = "the run has no name; set it with --name NAME or run.name."
        yield from case.across("name", ("run", "name"), message)


def _with_example(problem: Problem, case: CheckContext) -> Problem:
    """Return the problem with a valid name similar to the invalid one."""
    if problem.key not in ("run.name", "run.cluster") or "is not a valid name" not in problem.message:
        return problem
    ascii_ = unicodedata.normalize("NFKD", case.tree["run"][problem.key.removeprefix("run.")]).encode("ascii", "ignore")
    plain = re.sub(r"[^a-z0-9]+", "-", ascii_.decode().lower()).strip("-")
    plain = (f"run-{plain}" if plain[:1].isdigit() else plain)[:_EXAMPLE_LENGTH].rstrip("-")
    return replace(problem, message=f'{problem.message} For example "{plain}".') if plain else problem


def _data(case: CheckContext) -> Iterator[Problem]:
    tree = case.tree
    data = tree["data"]
    has_data = bool(data["files"] or data["corpus"] or data["mixture"])
    for key in OWNED_WITH_DATA if has_data else ():
        if tree["train"].get(key) is not None:
            yield case.problem("owned-key", ("train", key), f"train.{key} is set by Slipway: {TEXT_IS_GIVEN}")
    for key in SAVES_WITHOUT_POSITION if has_data else ():
        if tree["train"].get(key):
            yield case.problem("no-position", ("train", key), f"With train.{key}, {NO_POSITION}")
    if tree["run"]["command"] and (has_data or tree["train"] or tree["tuning"]["method"] != "pretrain"):
        message = "run.command replaces the trainer; data, train and tuning are ignored."
        yield case.problem("command", ("run", "command"), message, WARNING)


def _slice(case: CheckContext) -> Iterator[Problem]:
    table = case.tree.get("common", {}).get("accelerators", {})
    if case.ignores_slice:
        return
    part = case.tree["slice"]
    if part["hosts"] == 0 and ("slice", "hosts") in case.user.origins and not part["topology"]:
        message = "slice.hosts: 0 means one host; set slice.hosts: 1."
        yield from case.across("slice", ("slice", "hosts"), message, "slice.accelerator", severity=WARNING)
    if next(contradictions(case), None):
        return  # another rule reports a row that contradicts itself
    try:
        accelerators.resolve(part, table)
    except accelerators.SliceError as error:
        others = ("slice.accelerator", "slice.topology") if error.key == "machineType" else ("slice.accelerator",)
        yield from case.across("slice", ("slice", error.key), error.message, *others)


def _local(case: CheckContext) -> Iterator[Problem]:
    part = case.tree["slice"]
    accelerator = part["accelerator"]
    if case.ignores_slice:
        message = (
            "a local run uses this machine's CPU or GPUs: slice.accelerator must be cpu or a GPU of the table, not "
            f"{accelerator}."
        )
        yield from case.across("local", ("slice", "accelerator"), message)
    elif case.kind is RunKind.LOCAL and (table_of(case.tree).get(accelerator) or {}).get("kind") == "gpu":
        for key in ("hosts", "count"):
            if (part[key] or 1) > 1:
                message = f"slice.{key}: a local run on GPUs has one host, this machine; set slice.{key}: 1."
                yield from case.across("local", ("slice", key), message, "run.kind", "slice.accelerator")


type Rules = Sequence[tuple[tuple[str, ...], Rule]]

RULES: Rules = (
    (("run.name", "run.kind"), _name),
    (("data", "run.command", "train"), _data),
    (("slice", "common"), _slice),
    (("run.kind", "slice", "common"), _local),
    *value_rules(),
    *CLUSTER_RULES,
    *DATA_RULES,
    *MODEL_RULES,
    *RESOURCE_RULES,
    *WEIGHTS_RULES,
)
"""Each rule with the keys that it reads."""

SHAPE_RULES: Rules = (
    (("slice", "common"), contradictions),
    *(
        (reads, rule)
        for reads, rule in RULES
        if all(read.split(".")[0] in ("slice", "train", "common") for read in reads)
    ),
)
"""The rules that check whether the model fits the slice's mesh: they read only slice, train and common."""

FORECAST_RULES: Rules = (*SHAPE_RULES, *(each for each in MODEL_RULES if each not in SHAPE_RULES))
"""The rules to check before a compile: values that MaxText would reject are not compiled."""
