"""The table of rules on values, charts/_rules.json."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from launcher.config.checks import rules as checks
from launcher.config.checks import value_rules
from launcher.config.checks.problems import CheckContext, Problem
from launcher.config.checks.schema import leaves
from launcher.config.maxtext.keys import maxtext
from launcher.config.plan import effective
from launcher.config.values.files import chart_defaults, read_text
from launcher.config.values.tree import merge
from launcher.k8s.objects import quantity
from tests.charts.bad_values import BAD, BAD_WITHOUT_CHART, CLUSTER, GOOD, KINDS, SERVE, InvalidValues
from tests.charts.quantities import FORMS
from tests.charts.rule_schemas import TESTS

TABLE = value_rules.table()
RULES: list[dict[str, Any]] = TABLE["rules"]
FIELDS = {"rule", "keys", "kinds", "when", "else", "each", "of", "optional", "message", "allows", "named", "$comment"}
PLACEHOLDERS = {"key", "parent", "name", "value", "length", "slice"}
DEFAULTS = chart_defaults("run")

every_rule = pytest.mark.parametrize(
    "rule", RULES, ids=[f"{number} {rule['keys'][0]}" for number, rule in enumerate(RULES)]
)


@every_rule
def test_a_rule_has_known_fields_and_at_most_one_test(rule: dict[str, Any]) -> None:
    assert {"rule", "keys", "message"} <= rule.keys() <= FIELDS | TESTS
    assert len(rule.keys() & TESTS) <= 1
    assert rule.keys() & TESTS or rule.get("when")
    assert rule.get("of", "name") == "name"
    assert "forbids" in rule or "allows" not in rule
    for flag in ("else", "each", "optional"):
        assert rule.get(flag, True) is True
    kinds = rule.get("kinds", "objects")
    assert kinds in TABLE["kinds"] if isinstance(kinds, str) else set(kinds) <= KINDS.keys()
    for wanted in rule.get("when", {}).values():
        assert not isinstance(wanted, Mapping) or wanted.keys() in ({"given"}, {"not"})


def test_the_names_of_kinds_are_sets_of_kinds() -> None:
    assert all(set(kinds) <= KINDS.keys() for kinds in TABLE["kinds"].values())
    assert set(TABLE["kinds"]["all"]) == KINDS.keys()


def test_no_else_comes_before_the_rule_that_it_refers_to() -> None:
    assert not RULES[0].get("else")


# --- Keys ---------------------------------------------------------------------------------------------------------


def is_key(key: str) -> bool:
    """Return whether a dotted key is in the schema of the values; `*` is an entry, and 0 the first item of a list."""
    if key in {f"accelerator.{of}" for of in ("kind", "label", "labelKey", "machineType", "chipsPerHost")}:
        return True  # the evaluators add it
    if key.startswith("train."):
        return key.removeprefix("train.") in maxtext()["keys"]
    node: Any = checks.schema("run")
    for part in key.split("."):
        if not node.keys() & {"properties", "items", "additionalProperties"} and "object" in node.get("type", "object"):
            return True  # a field of Kubernetes
        entry = node.get("items") if part == "0" else node.get("items") or node.get("additionalProperties")
        node = node.get("properties", {}).get(part) or entry
        if not isinstance(node, dict):
            return False
    return True


@pytest.mark.parametrize("chart", ["ray-cluster", "serve"])
def test_one_file_can_have_the_keys_of_all_charts(chart: str) -> None:
    assert [*leaves(checks.schema(chart))] == [*leaves(checks.schema("run"))]


def test_the_keys_that_the_rules_read_exist() -> None:
    assert [key for reads, _ in value_rules.value_rules() for key in reads if not is_key(key)] == []


@every_rule
def test_the_keys_of_a_rule_exist(rule: dict[str, Any]) -> None:
    entries = [key.split("*")[0] + "*" for key in rule["keys"] if "*" in key]
    conditions = [key.replace("{value}", "{name}") for key in rule.get("when", {}) if not key.startswith(".")]
    below = [entry + key for key in rule.get("when", {}) if key.startswith(".") for entry in entries]
    keys = [
        *rule["keys"],
        *conditions,
        *below,
        *(key for key in _placeholders(rule) if "." in key),
        *filter(None, [rule.get("equals")]),
    ]
    assert [key for key in keys if not is_key(key)] == []
    assert bool(below) <= bool(entries)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.get("each")], ids=lambda rule: rule["message"][:40])
def test_a_rule_for_groups_reads_only_keys_that_a_group_has(rule: dict[str, Any]) -> None:
    keys = {*rule["keys"], *rule.get("when", {}), *(key for key in _placeholders(rule) if "." in key)}
    others = {key for key in keys if not key.startswith("slice.")}
    assert {key for key in others if not key.startswith("accelerator.")} <= {
        "worker.cpu",
        "worker.memory",
        "worker.nodeSelector.*",
    }


# --- Patterns -----------------------------------------------------------------------------------------------------

PATTERNS = {
    **TABLE["patterns"],
    **{rule[test]: rule[test] for rule in RULES for test in ("matches", "forbids", "allows") if test in rule},
}
SYNTAX = re.compile(
    r"""
      \\[.\\trn] | \\x[0-9a-f]{2}                 # an escape that means one character
    | \[\^?(?:[^\]\[\\$]|\\[\\trn]|\\x[0-9a-f]{2})+\]  # a class
    | \( (?!\?)                                   # a group without an extension
    | [)|]
    | \^                                          # the start of the text
    | \$(?=$|[)|])                                # its end
    | (?:[*+?]|\{[0-9]+(?:,[0-9]+)?\})(?![*+?])   # a greedy quantifier
    | [^\[\](){}*+?|^$.\\]                         # a character
    """,
    re.VERBOSE,
)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_means_the_same_in_go_and_in_python(name: str) -> None:
    pattern = TABLE["patterns"].get(name, name)
    re.compile(pattern)
    position = 0
    while position < len(pattern):
        token = SYNTAX.match(pattern, position)
        assert token, pattern[position:]
        position = token.end()
    assert all(int(count) <= 1000 for count in re.findall(r"(\d+)\}", pattern))  # the maximum of RE2


@pytest.mark.parametrize(("text", "valid"), FORMS.items())
def test_charts_and_launcher_accept_the_same_quantities(text: str, valid: bool) -> None:
    assert bool(value_rules._regex("quantity").search(text)) is valid
    if valid:
        assert bool(value_rules._regex("moreThanZero").search(text)) is (quantity(text) > 0)
        assert bool(value_rules._regex("bytes").search(text)) <= (quantity(text) < 1 << 20)
    else:
        with pytest.raises(ValueError, match="is not a valid quantity"):
            quantity(text)


@pytest.mark.parametrize(
    "pattern", [r"\d", r"\w", r"\bx", r"(?i)x", r"(?=x)", r"(x)\1", r"x*?", r"x++", r"[\w]", r"[[:alpha:]]", "a$b", "."]
)
def test_other_patterns_are_rejected(pattern: str) -> None:
    position = 0
    while (token := SYNTAX.match(pattern, position)) and position < len(pattern):
        position = token.end()
    assert position < len(pattern)


def test_every_named_pattern_is_used() -> None:
    assert TABLE["patterns"].keys() <= {rule.get(test) for rule in RULES for test in ("matches", "forbids", "allows")}


@pytest.mark.parametrize(("text", "matches"), [("Ab_1", True), ("Ab_1\n", False), ("", False)])
def test_the_end_of_a_pattern_is_the_end_of_the_text(text: str, matches: bool) -> None:
    assert bool(value_rules._regex("^[A-Za-z0-9_]+$").search(text)) is matches


# --- Messages -----------------------------------------------------------------------------------------------------


def _placeholders(rule: Mapping[str, Any]) -> list[str]:
    return re.findall(r"\{([^}]*)\}", rule["message"])


@every_rule
def test_a_message_is_a_sentence_with_known_placeholders(rule: dict[str, Any]) -> None:
    assert rule["message"].endswith(".")
    named = {name for name in _placeholders(rule) if "." not in name}
    assert named <= PLACEHOLDERS
    entries = any("*" in key for key in rule["keys"])
    assert entries or not named & {"parent", "name"}
    assert "length" not in named or "longest" in rule
    assert "slice" not in named or rule.get("each")


# --- Rows ---------------------------------------------------------------------------------------------------------


class Context(CheckContext):
    """A context for any kind; the launcher has none for releases: `cluster`, of charts/ray-cluster, and `serve`."""

    def __init__(self, bad: InvalidValues, kind: str, layer: str = "") -> None:
        texts = (GOOD, layer or KINDS[kind], bad.values)
        layers = [read_text(text.encode(), "values.yaml") for text in texts]
        self.chart = {CLUSTER: "ray-cluster", SERVE: "serve"}.get(kind, "run")
        super().__init__(*effective(merge(merge(layers[0], layers[1]), layers[2]), chart_defaults(self.chart)))
        self._kind = kind
        if kind in (CLUSTER, SERVE) and isinstance(self.tree.get("run"), dict):
            self.tree["run"]["name"] = bad.release

    @property
    def kind(self) -> Any:
        return self._kind


def broken(case: Context) -> list[Problem]:
    """Return the problems that the table finds; none of a rule that reads a key which the schema rejects."""
    invalid = checks.InvalidPaths(violation.path for violation in checks.chart_violations(case.chart, case.tree))
    found: list[Problem] = []
    for reads, rule in value_rules.value_rules():
        if not any(map(invalid.overlap, reads)):
            found += rule(case)
    return found


def test_every_rule_has_a_row_that_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Mapping[str, Any]] = []
    make = value_rules._problem

    def record(case: CheckContext, rule: Mapping[str, Any], item: Any) -> Iterator[Problem]:
        seen.append(rule)
        yield from make(case, rule, item)

    monkeypatch.setattr(value_rules, "_problem", record)
    rows = [(bad, kind) for bad in (*BAD, *BAD_WITHOUT_CHART) for kind in bad.kinds]
    # A row breaks nearly always the same rules for each kind.
    for bad, kind in sorted(rows, key=lambda row: row[0].kinds.index(row[1])):
        if kind != bad.kinds[0] and all(rule in seen for rule in RULES):
            break
        for problem in broken(Context(bad, kind)):
            assert "{" not in re.sub(r'"[^"]*"', "", problem.message)
    assert [rule for rule in RULES if rule not in seen] == []


def problems(text: str, kind: str = "ray-job") -> list[str]:
    """Return the keys of the problems of `text` over GOOD."""
    return [problem.key for problem in broken(Context(InvalidValues("", text, ""), kind))]


def test_each_key_of_a_rule_is_reported() -> None:
    text = "team: {name: A}\nqueue: {name: -a, priority: B}\nhead: {cpu: a}\nworker: {cpu: b, memory: c}"
    assert problems(text) == ["team.name", "queue.name", "queue.priority", "worker.cpu", "worker.memory", "head.cpu"]


def test_a_rule_after_else_is_for_entries_without_a_problem() -> None:
    text = "worker: {tolerations: {a: {key: a b, value: c d}, b: {key: b, value: c d}}}"
    assert problems(text) == ["worker.tolerations.a.key", "worker.tolerations.b.value"]
    assert problems("image: {repository: 'Example:v1', tag: latest}") == ["image.repository", "image.tag"]


def test_a_rule_for_every_kind_of_run_needs_no_valid_kind() -> None:
    assert problems("run: {kind: rayjob}\nteam: {name: A}\nimage: {tag: latest}") == ["team.name"]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("tracking: {wandb: {project: p}}", []),  # it can be secret.name
        (f"run: {{name: {'a' * 41}}}", []),  # it can be run.kind, which decides on the length
        (f"run: {{kind: ray-job, name: {'a' * 41}}}", ["run.name"]),
        ("image: {tag: latest}\ndata: {corpus: '', files: ['gs://a']}", ["image.tag", "data.files"]),
    ],
)
def test_an_unknown_key_can_be_a_mistyped_key_of_a_condition(text: str, keys: list[str]) -> None:
    case = Context(InvalidValues("", text, ""), "ray-job", layer="{}")
    case.has_unknown_keys = True
    assert [problem.key for problem in broken(case)] == keys
