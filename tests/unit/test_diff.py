"""The differences between objects, and the patch that changes one to the other."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.helm.diff import (
    CHANGE,
    CREATE,
    REMOVE,
    SAME,
    FieldChange,
    ObjectChange,
    differences,
    lines,
    merge_patch,
    summary,
)

Tree = dict[str, Any]


@pytest.mark.parametrize(
    ("old", "new", "live", "patch"),
    [
        ({"a": 1}, {"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": 1}, {"a": 3}, {"a": 1}),  # changed by hand
        ({"a": 1}, {}, {"a": 1}, {"a": None}),
        ({"a": 1}, {}, {}, {}),  # already removed
        ({}, {}, {"theirs": 1}, {}),  # set by another owner: it stays
        ({"m": {"a": 1, "b": 1}}, {"m": {"a": 1}}, {"m": {"a": 1, "b": 1, "c": 1}}, {"m": {"b": None}}),
        ({}, {"m": {"a": 1}}, {}, {"m": {"a": 1}}),
        ({}, {"m": {}, "l": []}, {}, {}),  # an empty map or list changes nothing
        ({"l": [1, 2]}, {"l": [2]}, {"l": [1, 2]}, {"l": [2]}),
        ({"a": 1}, {"a": True}, {"a": 1}, {"a": True}),  # 1 is not true
        ({"a": 0}, {"a": 0}, {"a": 1}, {"a": 0}),  # zero is a value
        ({"a": 1}, {"a": {"b": 1}}, {"a": 1}, {"a": {"b": 1}}),
    ],
)
def test_the_patch_changes_only_fields_of_the_release(old: Tree, new: Tree, live: Tree, patch: Tree) -> None:
    assert merge_patch(old, new, live) == patch


def changes(before: Tree, after: Tree) -> list[str]:
    metadata = {"name": "x"}
    fields = differences({"metadata": metadata, **before}, {"metadata": metadata, **after})
    return [line for field in fields for line in str(field).split("\n")]


def test_fields_that_the_server_writes_are_not_differences() -> None:
    theirs = {"name": "x", "generation": 2, "resourceVersion": "7", "managedFields": [{}], "uid": "u"}
    assert changes({"status": {"a": 1}}, {"metadata": theirs, "status": {"a": 2}}) == []


RULE = {
    "apiGroups": ["a.example.com"],
    "resources": ["pods"],
    "verbs": ["get", "list", "watch"],
    "resourceNames": ["one", "two"],
}

SECRETS = {**RULE, "resources": ["secrets"]}


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, "spec.a: 1 -> 2"),
        ({"spec": {}}, {"spec": {"a": "x"}}, 'spec.a: "x" (new)'),
        ({"spec": {"a": "x"}}, {"spec": {}}, 'spec.a: "x" (removed)'),
        ({"spec": {"a": 0}}, {"spec": {"a": False}}, "spec.a: 0 -> false"),
        ({"spec": {"l": [1]}}, {"spec": {"l": [1, 2]}}, "spec.l: [1] -> [1, 2]"),
        (
            {"spec": {"flavors": [{"name": "a", "n": 1}, {"name": "b", "n": 1}]}},
            {"spec": {"flavors": [{"name": "b", "n": 2}, {"name": "a", "n": 1}]}},
            "spec.flavors[b].n: 1 -> 2",
        ),
        ({"spec": {"l": [{"n": 1}]}}, {"spec": {"l": [{"n": 2}]}}, "spec.l[0].n: 1 -> 2"),
        ({"spec": {"l": [{"name": "a"}]}}, {"spec": {"l": []}}, 'spec.l[a]: {"name": "a"} (removed)'),
        (  # a rule of a Role, after others
            {"rules": [RULE, SECRETS]},
            {
                "rules": [
                    RULE,
                    {**RULE, "resources": ["pods/exec"], "verbs": ["create"]},
                    {**RULE, "resources": ["secrets"]},
                ]
            },
            'rules[]: {"apiGroups": ["a.example.com"], "resources": ["pods/exec"], "verbs": ["create"], '
            '"resourceNames": ["one", "two"]} (new)',
        ),
        (  # a rule of a policy
            {"spec": {"expression": "a" * 300 + " || b"}},
            {"spec": {"expression": "a" * 300 + " && b"}},
            f'spec.expression: … {"a" * 29} || b" -> … {"a" * 29} && b"',
        ),
        (
            {"spec": {"l": [{"n": 1}]}},
            {"spec": {"l": [{"n": 1}, {"n": 2}]}},
            'spec.l: [{"n": 1}] -> [{"n": 1}, {"n": 2}]',
        ),
        (
            {"metadata": {"annotations": {"slipway.dev/run-config": '{"train": {"steps": 1}}'}}},
            {"metadata": {"annotations": {"slipway.dev/run-config": '{"train": {"steps": 2}}'}}},
            'metadata.annotations."slipway.dev/run-config".train.steps: 1 -> 2',
        ),
        (
            {"metadata": {"annotations": {"slipway.dev/run-config": "{"}}},
            {"metadata": {"annotations": {"slipway.dev/run-config": "[]"}}},
            'metadata.annotations."slipway.dev/run-config": "{" -> "[]"',
        ),
    ],
)
def test_a_difference_is_a_line(before: Tree, after: Tree, line: str) -> None:
    assert changes(before, after) == [line]


def test_a_rule_that_changes_is_shown_whole() -> None:
    before, after = {"rules": [RULE, SECRETS]}, {"rules": [{**SECRETS, "verbs": ["*"]}, RULE]}
    removed, new = changes(before, after)
    assert '"resources": ["secrets"], "verbs": ["get", "list", "watch"]' in removed
    assert '"resources": ["secrets"], "verbs": ["*"]' in new


def test_every_part_of_a_long_text_that_differs_is_shown() -> None:
    before = "dyn({" + ", ".join(f'"team{i}": ["a"]' for i in range(40)) + "})"
    after = before.replace('"team7": ["a"]', '"team7": ["a", "b"]').replace('"team31": ["a"]', '"team31": ["root"]')
    first, second = changes({"spec": {"a": before}}, {"spec": {"a": after}})
    assert first.endswith('\\"team7\\": [\\"a\\", \\"b\\"],')
    assert '\\"team31\\": [\\"root\\"]' in second
    assert len(first) + len(second) < 300


def test_a_long_value_is_cut() -> None:
    (line,) = changes({"spec": {"a": "x" * 5000}}, {"spec": {"a": "y"}})
    assert len(line) < 700
    assert "more characters; -o json shows all)" in line
    lines_of_many = changes({"spec": {"a": "x,y," * 99}}, {"spec": {"a": "x,z," * 99}})
    assert len(lines_of_many) == 21
    assert lines_of_many[-1] == "spec.a: 79 more differences; -o json shows all"


def test_a_list_that_is_new_is_shown_whole() -> None:
    items = [{"to": [{"ipBlock": {"cidr": f"10.0.{i}.0/24"}}]} for i in range(20)]
    (line,) = changes({"spec": {}}, {"spec": {"egress": items}})
    assert "10.0.19.0/24" in line


def test_changes_for_people() -> None:
    changed = ObjectChange("ClusterQueue", "a", "", CHANGE, (FieldChange("spec.a", 1, 2),))
    all_ = [changed, ObjectChange("LocalQueue", "b", "team", CREATE), ObjectChange("Role", "c", "team", SAME)]
    all_.append(ObjectChange("Role", "d", "team", REMOVE))
    assert lines(all_) == ["~ ClusterQueue a", "    spec.a: 1 -> 2", "+ LocalQueue team/b", "- Role team/d"]
    assert summary(all_) == "1 to create, 1 to change, 1 to remove, 1 unchanged"
    assert summary([]) == "no changes"
