"""Rules between fields that upstream's API servers check, for the CRDs of the tables.

The tables have no CEL expressions. These are our own, for the rules that the charts' objects could break and that tests
need. They apply to the versions of a kind that are not deprecated. With the original files, upstream's rules apply.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.upstream.tables import Crd, Schema


class Rule(NamedTuple):
    """`path` leads to the field in the schema; [] are the items of a list. `cel` is true for a valid field."""

    kind: str
    path: str
    cel: str
    message: str


_MANAGERS = "self == 'ray.io/kuberay-operator' || self == 'kueue.x-k8s.io/multikueue'"
_SAME_RESOURCES = "!self.flavors.exists(flavor, size(flavor.resources) != size(self.coveredResources))"
_BORROWS = "group.flavors.exists(flavor, flavor.resources.exists(resource, has(resource.borrowingLimit)))"
_EXISTS = "has(t.operator) && t.operator == 'Exists'"
RULES = (
    Rule(
        "ClusterQueue",
        "spec",
        f"has(self.cohortName) || !has(self.resourceGroups) || !self.resourceGroups.exists(group, {_BORROWS})",
        "a borrowingLimit requires a cohort",
    ),
    Rule(
        "ClusterQueue",
        "spec.preemption",
        "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort)"
        " || self.borrowWithinCohort.policy == 'Never'",
        "borrowWithinCohort requires reclaimWithinCohort",
    ),
    Rule("ClusterQueue", "spec.resourceGroups[]", _SAME_RESOURCES, "each flavor has all coveredResources"),
    Rule("Cohort", "spec.resourceGroups[]", _SAME_RESOURCES, "each flavor has all coveredResources"),
    Rule(
        "ResourceFlavor",
        "spec",
        "!has(self.topologyName) || size(self.nodeLabels) > 0",
        "a topology requires nodeLabels",
    ),
    Rule(
        "ResourceFlavor",
        "spec.tolerations",
        f"!self.exists(t, {_EXISTS} && has(t.value))",
        "the operator Exists excludes a value",
    ),
    Rule(
        "ResourceFlavor",
        "spec.tolerations",
        f"!self.exists(t, !has(t.key) && !({_EXISTS}))",
        "without a key, the operator is Exists",
    ),
    Rule(
        "Topology",
        "spec.levels",
        "!self.exists(level, level.nodeLabel == 'kubernetes.io/hostname' && self[size(self) - 1] != level)",
        "kubernetes.io/hostname is the lowest level",
    ),
    Rule("RayCluster", "spec.managedBy", _MANAGERS, "unknown manager"),
    Rule("RayJob", "spec.managedBy", _MANAGERS, "unknown manager"),
    Rule(
        "RayJob",
        "spec.deletionStrategy",
        "has(self.deletionRules) || (has(self.onSuccess) && has(self.onFailure))",
        "deletionRules, or both onSuccess and onFailure",
    ),
    Rule(
        "RayJob",
        "spec.deletionStrategy",
        "!has(self.deletionRules) || !(has(self.onSuccess) || has(self.onFailure))",
        "deletionRules exclude onSuccess and onFailure",
    ),
    *(
        Rule(kind, path, "self == oldSelf", "the field is immutable")
        for kind, path in (
            ("AdmissionCheck", "spec.controllerName"),
            ("LocalQueue", "spec.clusterQueue"),
            ("Topology", "spec.levels"),
            ("JobSet", "spec.failurePolicy"),
            ("JobSet", "spec.network"),
            ("JobSet", "spec.startupPolicy"),
            ("JobSet", "spec.successPolicy"),
            ("RayCluster", "spec.managedBy"),
            ("RayJob", "spec.managedBy"),
        )
    ),
)


def add(crds: list[Crd]) -> list[Crd]:
    """Return the CRDs with these rules. Copies what it changes."""
    return [_add(crd) for crd in crds]


def _add(crd: Crd) -> Crd:
    chosen = [rule for rule in RULES if rule.kind == crd["spec"]["names"]["kind"]]
    if not chosen:
        return crd
    versions = []
    for version in crd["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for rule in chosen if not version.get("deprecated") else ():
            schema = _with(schema, rule.path.split("."), {"rule": rule.cel, "message": rule.message})
        versions.append({**version, "schema": {"openAPIV3Schema": schema}})
    return {**crd, "spec": {**crd["spec"], "versions": versions}}


def _with(schema: Schema, path: list[str], validation: dict[str, str]) -> Schema:
    """Return a copy with the validation at the path; the same schema if this version does not have the field."""
    if not path:
        return {**schema, "x-kubernetes-validations": [*schema.get("x-kubernetes-validations", ()), validation]}
    name, items = path[0].removesuffix("[]"), path[0].endswith("[]")
    if name not in schema["properties"]:
        return schema
    field = schema["properties"][name]
    below = _with(field["items"] if items else field, path[1:], validation)
    return {**schema, "properties": {**schema["properties"], name: {**field, "items": below} if items else below}}
