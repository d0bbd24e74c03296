"""Compare rendered objects with those in a cluster, by the API server's dry run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from launcher.config.secrets import hide
from launcher.config.values.tree import dotted
from launcher.helm import client as helm
from launcher.helm.errors import unowned
from launcher.k8s import objects
from launcher.k8s.client import NoNamespace, kind_of
from launcher.k8s.label_keys import RUN_CONFIG
from launcher.k8s.objects import Manifest
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan
    from launcher.k8s.client import Cluster


CREATE, CHANGE, REMOVE, SAME = "create", "change", "remove", "same"
_SIGNS = {CREATE: "+", CHANGE: "~", REMOVE: "-", SAME: "="}
# Metadata that the API server and the controllers write.
_THEIRS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
_ABSENT = object()
_LONG = 120  # characters; of two longer texts, only the parts that differ are shown
_BEFORE = 30  # characters that are shown before such a part
_PARTS = 20  # maximum number of parts
_LARGE = 100_000  # characters of a text that is one part: the time to compare can grow with the square of the length


@dataclass(frozen=True)
class FieldChange:
    """A field with its old and new value, or None if it is absent. `path` is in dotted form."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.path}: {_as_text(self.new)} (new)"
        if self.new is None:
            return f"{self.path}: {_as_text(self.old)} (removed)"
        texts = [json.dumps(value, ensure_ascii=False) for value in (self.old, self.new)]
        parts = _parts_that_differ(*texts) if max(map(len, texts)) > _LONG else [" -> ".join(texts)]
        return "\n".join(f"{self.path}: {part}" for part in parts)


@dataclass(frozen=True)
class ObjectChange:
    """The change to one object. `action` is create, change, remove or same.

    fields: also the subjects of a new binding.
    """

    kind: str
    name: str
    namespace: str
    action: str
    fields: tuple[FieldChange, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    def __str__(self) -> str:
        return "\n".join([f"{_SIGNS[self.action]} {self.full_name}", *map(str, self.fields)]).replace("\n", "\n    ")


class Owner(NamedTuple):
    """A Helm release. Its objects have both names in their annotations."""

    release: str
    namespace: str


def compare(
    cluster: Cluster, new: Sequence[Manifest], old: Sequence[Manifest] = (), *, owner: Owner | None = None
) -> list[ObjectChange]:
    """Return the changes that bring the cluster from `old` (a release's objects as rendered) to `new`.

    Changes nothing. Every object goes through the API server's dry run, with defaults, webhooks and validation.

    Raises the ClusterError that the change itself would raise. Raises OwnedByAnother if an object exists and does not
    belong to `owner`.
    """
    before = {_key(obj): obj for obj in old}
    pairs = [(obj, before.pop(_key(obj), {})) for obj in new]
    made = {obj["metadata"]["name"] for obj in new if obj["kind"] == "Namespace"}
    gone = [obj for obj in before.values() if not is_kept(obj)]
    with ThreadPoolExecutor(8) as pool:  # two requests for each of dozens of objects
        changes = list(pool.map(lambda pair: _compare_one(cluster, pair[0], pair[1], made, owner), pairs))
        there = list(pool.map(lambda obj: live_object(cluster, obj) is not None, gone))
    return changes + [_change(obj, REMOVE) for obj, is_there in zip(gone, there, strict=True) if is_there]


def is_kept(obj: Manifest) -> bool:
    """Return whether the object is kept when its release is uninstalled."""
    return objects.annotation(obj, "helm.sh/resource-policy") == "keep"


def apply_remaining(cluster: Cluster, rendered: Sequence[Manifest], changes: Sequence[ObjectChange]) -> None:
    """Apply the remaining changes to existing objects. Helm 3 does not detect manual changes."""
    changed = {(change.kind, change.namespace, change.name) for change in changes if change.action == CHANGE}
    for obj in rendered:
        if _key(obj)[1:] in changed and (live := live_object(cluster, obj)) is not None:
            patch = merge_patch({}, obj, live)
            if patch:
                cluster.patch(kind_of(obj), objects.name(obj), patch, objects.namespace(obj) or None)


def live_object(cluster: Cluster, obj: Manifest) -> Manifest | None:
    """Return the object from the cluster, or None if it does not exist."""
    return cluster.get_unchecked(kind_of(obj), objects.name(obj), objects.namespace(obj) or None)


def lines(changes: Sequence[ObjectChange]) -> list[str]:
    """Return the changes as lines of text, without unchanged objects."""
    return [line for change in changes if change.action != SAME for line in str(change).splitlines()]


def summary(changes: Sequence[ObjectChange]) -> str:
    """Return the counts of the changes, such as "3 to create, 1 to change, 12 unchanged"."""
    words = {CREATE: "to create", CHANGE: "to change", REMOVE: "to remove", SAME: "unchanged"}
    counts = {action: sum(change.action == action for change in changes) for action in words}
    return ", ".join(f"{number} {words[action]}" for action, number in counts.items() if number) or "no changes"


def _compare_one(cluster: Cluster, new: Manifest, old: Manifest, made: set[str], owner: Owner | None) -> ObjectChange:
    live = live_object(cluster, new)
    if live is None:
        try:
            cluster.create(new, dry_run=True)
        except NoNamespace:
            if objects.namespace(new) not in made:  # else the release creates the namespace
                raise
        subjects = new.get("subjects") or ()  # of a binding: who gets its role
        return _change(new, CREATE, tuple(FieldChange(f"subjects[{item['name']}]", None, item) for item in subjects))
    if owner is not None:
        _claim(cluster, live, owner)
    patch = merge_patch(old, new, live)
    if not patch:
        return _change(new, SAME)
    would_be = cluster.patch(kind_of(new), objects.name(new), patch, objects.namespace(new) or None, dry_run=True)
    fields = tuple(differences(live, would_be))
    if (new.get("spec") or {}).get("enableInTreeAutoscaling") and all(map(_autoscaled, fields)):
        fields = ()
    return _change(new, CHANGE if fields else SAME, fields)


def _autoscaled(field: FieldChange) -> bool:
    """Return whether Ray's autoscaler set the field. Such a change alone does not require an upgrade."""
    return re.fullmatch(r"spec\.workerGroupSpecs\[[^]]*\]\.(replicas|scaleStrategy.*)", field.path) is not None


def _claim(cluster: Cluster, live: Manifest, owner: Owner) -> None:
    """Raise OwnedByAnother if the object does not belong to the owner. Helm would fail later, with a longer message."""
    name = objects.annotation(live, "meta.helm.sh/release-name")
    space = objects.annotation(live, "meta.helm.sh/release-namespace")
    if (name, space) != owner:
        identity = (str(live["kind"]), objects.name(live), objects.namespace(live))
        raise unowned(*identity, cluster.name, name, space, owner.release)


def _change(obj: Manifest, action: str, fields: tuple[FieldChange, ...] = ()) -> ObjectChange:
    return ObjectChange(str(obj["kind"]), objects.name(obj), objects.namespace(obj), action, fields)


def _key(obj: Manifest) -> tuple[str, ...]:
    group = str(obj["apiVersion"]).rpartition("/")[0]
    return group, str(obj["kind"]), objects.namespace(obj), objects.name(obj)


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any], live: Mapping[str, Any]) -> Manifest:
    """Return the JSON merge patch by which Helm brings `live` from `old` to `new`. Keys in neither of them are kept."""
    patch: Manifest = {}
    for key, value in new.items():
        now = live.get(key)
        if isinstance(value, Mapping) and isinstance(now, Mapping):
            was = old.get(key)
            inner = merge_patch(was if isinstance(was, Mapping) else {}, value, now)
            if inner:
                patch[key] = inner
        elif not _same(value, now) and not (now is None and _empty(value)):
            patch[key] = value
    for key in old:
        if key not in new and key in live:
            patch[key] = None
    return patch


def differences(before: Manifest, after: Manifest) -> Iterator[FieldChange]:
    """Yield the differences between two states of an object, without fields that the server and controllers write."""
    for path, old, new in _walk((), _ours(before), _ours(after)):
        yield FieldChange(path, _or_none(old), _or_none(new))


def _ours(obj: Manifest) -> Manifest:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _THEIRS}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def _walk(path: tuple[str, ...], old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if _same(old, new) or (_empty(old) and _empty(new)):
        return
    if path and path[-1] == RUN_CONFIG:
        old, new = _parsed(old), _parsed(new)
    if isinstance(old, list) and isinstance(new, list) and (keyed := _keyed(path[-1], old, new)):
        old, new = keyed
    if isinstance(old, list) and isinstance(new, list) and len(json.dumps([old, new])) > _LONG:
        yield from ((item, hide(path, a), hide(path, b)) for item, a, b in _items(_spell_path(path), old, new))
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _walk((*path, key), old.get(key, _ABSENT), new.get(key, _ABSENT))
    else:
        yield _spell_path(path), hide(path, old), hide(path, new)


def _items(path: str, old: list[Any], new: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the items that only one of two lists has; both lists if they differ only in the order."""
    removed = [item for item in old if not any(_same(item, other) for other in new)]
    added = [item for item in new if not any(_same(item, other) for other in old)]
    yield from ((f"{path}[]", item, _ABSENT) for item in removed)
    yield from ((f"{path}[]", _ABSENT, item) for item in added)
    if not removed and not added:
        yield path, old, new


def _keyed(field: str, old: list[Any], new: list[Any]) -> tuple[Manifest, Manifest] | None:
    """Convert two lists of maps to maps, keyed by the items' names, or by index if the lengths are equal.

    Returns None if neither is possible. Rules of a Role and of a NetworkPolicy have no names, and are not keyed by
    index: one field of a rule does not show what the rule grants.
    """
    if not all(isinstance(item, Mapping) for item in [*old, *new]):
        return None
    for name in ("name", "groupName", "key"):
        pair = [{f"[{item[name]}]": item for item in items if item.get(name)} for items in (old, new)]
        if len(pair[0]) == len(old) and len(pair[1]) == len(new):
            return pair[0], pair[1]
    if len(old) == len(new) and field not in ("rules", "ingress", "egress"):
        return {f"[{i}]": item for i, item in enumerate(old)}, {f"[{i}]": item for i, item in enumerate(new)}
    return None


def _spell_path(path: Sequence[str]) -> str:
    text = ""
    for part in path:
        text += part if part.startswith("[") else f"{'.' * bool(text)}{dotted([part])}"
    return text


def _parsed(value: Any) -> Any:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
    return parsed if isinstance(parsed, Mapping) else value


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are equal in JSON: 1 equals 1.0, but true does not equal 1."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (bool(a == b) and isinstance(a, bool) == isinstance(b, bool))


def _empty(value: Any) -> bool:
    return value is _ABSENT or value is None or value == {} or value == []


def _as_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _cut(text) if isinstance(value, str) else text  # an item that is new or removed is shown as a whole


def _cut(text: str, most: int = 5 * _LONG) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} more characters; -o json shows all)"


def _parts_that_differ(old: str, new: str) -> Iterator[str]:
    """Yield the parts in which two texts differ, each with what precedes it."""
    cut = re.compile(r"[^,(]+[,(]*|[,(]+" if max(len(old), len(new)) < _LARGE else "(?s).+")
    pieces = [cut.findall(text) for text in (old, new)]
    changed = [edit[1:] for edit in SequenceMatcher(None, pieces[0], pieces[1]).get_opcodes() if edit[0] != "equal"]
    for old_start, old_end, new_start, new_end in changed[:_PARTS]:
        pair = ["".join(pieces[0][:old_end]), "".join([*pieces[0][:old_start], *pieces[1][new_start:new_end]])]
        first = max(0, sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(*pair, strict=False))) - _BEFORE)
        yield " -> ".join("… " * bool(first) + _cut(text[first:]) for text in pair)
    if changed[_PARTS:]:
        yield f"{len(changed) - _PARTS} more differences; -o json shows all"


# --- runs -------------------------------------------------------------------------------------------------------


def diff_run(plan: LaunchPlan, *, target: Target = DEFAULT_TARGET) -> list[ObjectChange]:
    """Return the change that submitting a ray-job or job-set run would make, by dry run.

    A run cannot be changed after its creation. If it exists, return how its config differs from the plan's. Returns []
    for kinds that create no object.
    """
    if not plan.kind.has_object:
        return []
    obj = helm.run_object(plan)
    cluster = replace(target, namespace=plan.namespace).cluster()
    live = live_object(cluster, obj)
    if live is None:
        cluster.create(obj, dry_run=True)
        return [_change(obj, CREATE)]
    old, new = _run_config(live), _run_config(obj)
    for config in (old, new):
        config.pop("accelerator", None)  # follows from `slice`
    fields = tuple(FieldChange(path, *map(_or_none, pair)) for path, *pair in _walk((), old, new))
    return [_change(obj, CHANGE if fields else SAME, fields)]


def sentence(plan: LaunchPlan, changes: Sequence[ObjectChange]) -> str:
    """Return a sentence that describes the changes of a run."""
    if not changes:
        return f"A {plan.kind} run creates no Kubernetes object; launcher submit --dry-run shows what it would do."
    if changes[0].action == CREATE:
        return f'There is no run "{plan.name}" in the namespace {plan.namespace}; submit would create it.'
    if changes[0].action == SAME:
        return f'The run "{plan.name}" already exists with the same config.'
    return (
        f'The run "{plan.name}" already exists with another config. A run cannot be changed after it is created; when '
        "it has ended, submit --continue resumes from its last checkpoint with this config."
    )


def _or_none(value: Any) -> Any:
    return None if value is _ABSENT else value


def _run_config(obj: Any) -> Manifest:
    """Return the run config from the annotations of a run's pods, or {} if there is none."""
    if isinstance(obj, Mapping):
        if isinstance(obj.get(RUN_CONFIG), str):
            return dict(_parsed(obj[RUN_CONFIG]))
        obj = list(obj.values())
    return next(filter(None, map(_run_config, obj)), {}) if isinstance(obj, list) else {}
