"""A page of a list is the same as if it were parsed completely, without the fields that are not needed."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from launcher.backends.kubernetes.run_object import KINDS, POD_SPECS
from launcher.k8s import list_pages
from launcher.k8s.client import WORKLOAD
from launcher.k8s.kueue.workloads import TEMPLATES
from launcher.k8s.objects import drop

MANAGED = "metadata.managedFields"
WITHOUT = {
    **{KINDS[kind].kind: (MANAGED, *POD_SPECS[kind]) for kind in KINDS},
    WORKLOAD.kind: (MANAGED, TEMPLATES),
}
POD = {
    "metadata": {"annotations": {"slipway.dev/run-config": '{"a": "ü\\n"}'}},
    "spec": {"containers": [{"name": "a"}]},
}
META = {
    **{"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "12", "generation": 3},
    **{"labels": {"x": "y"}, "managedFields": [{"manager": "kueue"}], "creationTimestamp": "2026-01-02T03:04:05Z"},
    "ownerReferences": [{"kind": "JobSet", "name": "a", "uid": "c", "controller": True}],
}
STATUS = {
    "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 3}],
    "unknown": {"kept": [1.5, None]},
}
SPECS: dict[str, dict[str, Any]] = {
    "RayJob": {
        "suspend": True,
        "rayClusterSpec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {"template": POD},
            "workerGroupSpecs": [{"groupName": "slice", "replicas": 2, "numOfHosts": 4, "template": POD}],
        },
    },
    "JobSet": {"suspend": False, "replicatedJobs": [{"replicas": 2, "template": {"spec": {"template": POD}}}]},
    "Workload": {
        "active": True,
        "queueName": "q",
        "priorityClassRef": {"name": "high", "kind": "p"},
        "podSets": [{"name": "a", "count": 2, "template": POD}, {"name": "b", "count": 1, "template": POD}],
    },
}
EMPTY = {"spec": None, "status": None, "metadata": None}


def page(*items: object) -> bytes:
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"continue": "abc", "resourceVersion": "9"},
        "items": items,
    }
    return json.dumps(listed, ensure_ascii=False).encode()


@pytest.mark.parametrize("kind", WITHOUT)
def test_the_fields_that_are_not_needed_are_left_out(kind: str) -> None:
    obj = {"metadata": META, "spec": SPECS[kind], "status": STATUS}
    parsed = list_pages.parse(page(obj, {**obj, **EMPTY}, {}), kind, WITHOUT[kind])
    expected = copy.deepcopy(obj)
    for path in WITHOUT[kind]:
        drop(expected, path.split("."))
    assert expected != obj
    assert parsed == {
        "metadata": {"continue": "abc", "resourceVersion": "9"},
        "items": [expected, {**expected, **EMPTY}, {}],
    }


@pytest.mark.parametrize(
    "text",
    [
        b'{"items": [{"metadata": {"managedFields": "\xff"}}]}',  # not UTF-8, in a field that is left out
        b'\xef\xbb\xbf{"items": []}',
        b'{"items": [{"status": NaN}]}',
        rb'{"items": [{"status": "\ud800"}]}',
        rb'{"items": [{"metadata": {"managedFields": "\ud800"}}]}',
        b'{"items": [{"status": 1e400}]}',
        b'{"items": [null]}',
        b'{"items": {}}',
        b'{"items": [{"spec": []}]}',
        b'{"items": [{"spec": {"podSets": {}}}]}',
        b'{"items": [{"spec": {"podSets": [1]}}]}',
        b'{"items": []} x',
        b'{"items": [',
        pytest.param(b'{"items": [{"other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", id="deep"),
        b"[]",
        b"",
    ],
)
def test_a_page_with_an_error_is_left_to_json(text: bytes) -> None:
    assert list_pages.parse(text, "Workload", WITHOUT["Workload"]) is None


def test_numbers_are_those_of_json() -> None:
    text = b'{"items": [{"status": [18446744073709551616123, -9223372036854775809, 1.0, -0, 0.1, 1e3]}]}'
    parsed = list_pages.parse(text, "Workload", WITHOUT["Workload"])
    assert parsed is not None
    assert repr(parsed["items"]) == repr(json.loads(text)["items"])
