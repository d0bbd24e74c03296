"""Check rendered objects as an API server would, without an API server.

`validate` checks an object against the CRDs of every supported version of KubeRay, Kueue and JobSet (tests/upstream),
and against Kubernetes' schemas of every supported minor version. Like an API server with
strict field validation, it rejects unknown fields, sets defaults before it evaluates CEL rules, and checks metadata and
pod templates against ObjectMeta and PodTemplateSpec. It ignores rules about changes (oldSelf), which need an update.
"""

from __future__ import annotations

import copy
import difflib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cel
import jsonschema
import yaml

from tests import upstream
from tests.charts import monitors
from tests.tools import openapi

PROJECTS = {"ray.io": "KubeRay", "kueue.x-k8s.io": "Kueue", "jobset.x-k8s.io": "JobSet"}
"""The project that publishes the CRDs, by API group."""

POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

# Kubernetes' published schemas list these values only in their descriptions.
ENUMS: dict[tuple[str, str], set[str]] = {
    ("Container", "imagePullPolicy"): {"Always", "IfNotPresent", "Never"},
    ("Container", "terminationMessagePolicy"): {"File", "FallbackToLogsOnError"},
    ("Container", "restartPolicy"): {"Always", "Never", "OnFailure"},
    ("ContainerPort", "protocol"): {"TCP", "UDP", "SCTP"},
    ("PodSpec", "dnsPolicy"): {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
    ("PodSpec", "preemptionPolicy"): {"PreemptLowerPriority", "Never"},
    ("PodSpec", "restartPolicy"): {"Always", "OnFailure", "Never"},
    ("Toleration", "effect"): {"NoSchedule", "PreferNoSchedule", "NoExecute"},
    ("Toleration", "operator"): {"Exists", "Equal"},
    ("NodeSelectorRequirement", "operator"): {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"},
    ("LabelSelectorRequirement", "operator"): {"In", "NotIn", "Exists", "DoesNotExist"},
    ("SeccompProfile", "type"): {"RuntimeDefault", "Localhost", "Unconfined"},
    ("EmptyDirVolumeSource", "medium"): {"", "Memory"},
    ("NetworkPolicyPort", "protocol"): {"TCP", "UDP", "SCTP"},
    ("ServicePort", "protocol"): {"TCP", "UDP", "SCTP"},
    ("ServiceSpec", "type"): {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"},
    ("PriorityClass", "preemptionPolicy"): {"PreemptLowerPriority", "Never"},
    ("RoleRef", "kind"): {"Role", "ClusterRole"},
    ("RoleRef", "apiGroup"): {"rbac.authorization.k8s.io"},
    ("Subject", "kind"): {"User", "Group", "ServiceAccount"},
}
QUANTITY = r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.:]{0,251}[a-z0-9])?")
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

Schema = dict[str, Any]


def validate(obj: Any) -> list[str]:
    """Return a sentence for each fault that a supported version finds in a rendered object; empty if all accept it."""
    if not isinstance(obj, dict) or not all(isinstance(obj.get(key), str) for key in ("apiVersion", "kind")):
        return ["An object has no apiVersion and kind."]
    kind = obj["kind"]
    group = obj["apiVersion"].rpartition("/")[0]
    name = obj.get("metadata", {}).get("name") if isinstance(obj.get("metadata"), dict) else None
    reported_by: dict[str, list[str]] = {}
    if group in PROJECTS:
        for version in versions(group):
            schema = crd_schema(group, version, kind, obj["apiVersion"].rpartition("/")[2])
            sentences = (
                [f"is no kind that it serves as {obj['apiVersion']}."] if schema is None else _against(schema, obj)
            )
            for sentence in sentences:
                reported_by.setdefault(sentence, []).append(f"{PROJECTS[group]} {version}")
    if group in monitors.GROUPS:
        monitor = _monitor(obj["apiVersion"], kind)
        sentences = [f"is no kind of {group}."] if monitor is None else _against(monitor, obj)
        reported_by |= {sentence: [group] for sentence in sentences}
    for minor in openapi.VERSIONS:
        for sentence in _kubernetes(minor, obj, embedded=group in (*PROJECTS, *monitors.GROUPS)):
            reported_by.setdefault(sentence, []).append(f"Kubernetes {minor}")
    for fault in _semantic_faults(obj):
        reported_by.setdefault(str(fault), []).append("Kubernetes")
    return [f"{kind} {name or '(no name)'}: {sentence} ({', '.join(by)})" for sentence, by in reported_by.items()]


def objects(text: str) -> list[dict[str, Any]]:
    """Return the objects in rendered manifests, read as Kubernetes reads them.

    Raises yaml.YAMLError, also for a duplicate key.
    """
    return [obj for obj in yaml.load_all(text, _Loader) if obj is not None]


def unknown_fields(obj: dict[str, Any]) -> dict[str, list[str]]:
    """Return the fields of an object of upstream's that its CRDs lack, each with the versions that lack it."""
    group, _, served = obj["apiVersion"].rpartition("/")
    lacking: dict[str, list[str]] = {}
    for version in versions(group):
        schema = crd_schema(group, version, obj["kind"], served)
        assert schema is not None, f"{obj['kind']} in {version}"
        for fault in _unknown(schema, obj, ""):
            lacking.setdefault(fault.path, []).append(version)
    return lacking


def crd_schema(group: str, version: str, kind: str, served: str) -> Schema | None:
    """Return the schema of a kind in one version of its project, with ObjectMeta included; None if it is not served."""
    return _crd(group, version, kind, served, upstream.originals())


def versions(group: str) -> list[str]:
    """Return the versions of a project whose CRDs have this API group, the oldest first."""
    return upstream.versions()[PROJECTS[group].lower()]


def supported() -> dict[str, tuple[str, str]]:
    """Return the lowest and the highest version that objects are checked against, by project: KubeRay, Kueue …"""
    ranges = {}
    for group, project in PROJECTS.items():
        found = versions(group)
        ranges[project] = (found[0], found[-1])
    minors = list(openapi.VERSIONS)
    return {**ranges, "Kubernetes": (minors[0], minors[-1])}


def pod_templates(obj: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the tree of every pod template inside `obj`: every map whose spec has containers."""
    if isinstance(obj, dict):
        spec = obj.get("spec")
        if path and isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield path, obj
            return
        for key, value in obj.items():
            yield from pod_templates(value, f"{path}.{key}" if path else key)
    elif isinstance(obj, list):
        for number, value in enumerate(obj):
            yield from pod_templates(value, f"{path}[{number}]")


class _Loader(yaml.CSafeLoader):
    """Loads YAML as Kubernetes does: dates stay strings, and a duplicate key is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - yaml declares it on the instance, so ClassVar would contradict it
        letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for letter, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a key is given twice", node.start_mark)
        return mapping


class _Fault(NamedTuple):
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or 'it'} {self.message}"


@functools.cache
def _crd(group: str, version: str, kind: str, served: str, originals: Path | None) -> Schema | None:
    # `originals` is only a key of the cache.
    for crd in upstream.crds(PROJECTS[group].lower(), version):
        for entry in crd["spec"]["versions"]:
            if crd["spec"]["names"]["kind"] == kind and entry["name"] == served and entry["served"]:
                schema: Schema = _readable(entry["schema"]["openAPIV3Schema"])
                schema["properties"] |= _type_meta() | {"metadata": _definition(list(openapi.VERSIONS)[-1], META)}
                return schema
    return None


@functools.cache
def _monitor(api_version: str, kind: str) -> Schema | None:
    found = monitors.schema(api_version, kind)
    if found is None:
        return None
    schema: Schema = _readable(found)
    meta = _type_meta() | {"metadata": _definition(list(openapi.VERSIONS)[-1], META)}
    return schema | {"properties": schema["properties"] | meta}


def _type_meta() -> Schema:
    return {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}


def _kubernetes(minor: str, obj: dict[str, Any], *, embedded: bool) -> list[str]:
    if not embedded:
        group, _, version = obj["apiVersion"].rpartition("/")
        name = _kinds(minor).get((group, version, obj["kind"]))
        if name is None:
            return [f"is no kind that it serves as {obj['apiVersion']}."]
        return _against(_definition(minor, name), obj)
    template = _definition(minor, POD_TEMPLATE)
    return [sentence for path, found in pod_templates(obj) for sentence in _against(template, found, path)]


@functools.cache
def _definitions(minor: str) -> dict[str, Schema]:
    return openapi.definitions(minor)


@functools.cache
def _kinds(minor: str) -> dict[tuple[str, str, str], str]:
    return {
        (kind["group"], kind["version"], kind["kind"]): name
        for name, schema in _definitions(minor).items()
        for kind in schema.get("x-kubernetes-group-version-kind", [])
    }


@functools.cache
def _definition(minor: str, name: str) -> Schema:
    """Return a schema with its references resolved. Only schemas of CRDs are recursive, and no chart renders a CRD."""
    return _expanded(minor, name, _definitions(minor)[name])


def _expanded(minor: str, name: str, schema: Schema) -> Schema:
    if "$ref" in schema:
        return _definition(minor, schema["$ref"].removeprefix("#/definitions/"))
    expanded = {key: value for key, value in schema.items() if key not in ("description", "format")}
    short = name.rpartition(".")[2]
    if short == "Quantity":
        return {"anyOf": [{"type": "number"}, {"type": "string", "pattern": QUANTITY}]}
    if schema.get("format") == "int-or-string":
        return {"x-kubernetes-int-or-string": True, "type": ["integer", "string"]}
    if "properties" in schema:
        expanded["properties"] = {key: _expanded(minor, name, child) for key, child in schema["properties"].items()}
        for key, child in expanded["properties"].items():
            if (short, key) in ENUMS:
                expanded["properties"][key] = {**child, "enum": sorted(ENUMS[short, key])}
    elif schema.get("type") == "object" and "additionalProperties" not in schema:
        expanded["x-kubernetes-preserve-unknown-fields"] = True
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            expanded[key] = _expanded(minor, name, schema[key])
    if schema.get("format") in ("int32", "int64"):
        bits = int(schema["format"][3:])
        expanded |= {"minimum": -(2 ** (bits - 1)), "maximum": 2 ** (bits - 1) - 1}
    return expanded


def _readable(node: Any) -> Any:
    """Return a CRD's schema for jsonschema: nullable and int-or-string become lists of types, without descriptions."""
    if not isinstance(node, dict):
        return [_readable(item) for item in node] if isinstance(node, list) else node
    readable: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "patternProperties"):
            readable[key] = {name: _readable(child) for name, child in value.items()}
        elif key in ("default", "enum", "x-kubernetes-validations"):
            readable[key] = value
        elif key != "description":
            readable[key] = _readable(value)
    if "pattern" in readable:
        # Go accepts flags anywhere in a pattern, Python only at the start.
        readable["pattern"] = re.sub(r"^\^\(\?i\)", "(?i)^", readable["pattern"])
    if readable.get("x-kubernetes-int-or-string"):
        readable["type"] = ["integer", "string"]
    if readable.pop("nullable", False):
        readable["type"] = [*([readable["type"]] if isinstance(readable["type"], str) else readable["type"]), "null"]
        if "enum" in readable:
            readable["enum"] = [*readable["enum"], None]
    if readable.get("format") in ("int32", "int64"):
        bits = int(readable["format"][3:])
        readable["minimum"] = max(readable.get("minimum", -(2 ** (bits - 1))), -(2 ** (bits - 1)))
        readable["maximum"] = min(readable.get("maximum", 2 ** (bits - 1) - 1), 2 ** (bits - 1) - 1)
    return readable


def _against(schema: Schema, value: Any, path: str = "") -> list[str]:
    faults = [
        _Fault(_join(path, *error.absolute_path), _message(error))
        for error in jsonschema.Draft4Validator(schema).iter_errors(value)
    ]
    # The types are checked first, because the CEL rules and defaults read the value.
    faults += _unknown(schema, value, path)
    if not faults:
        faults += _rules(schema, _defaulted(schema, value), path)
    return [str(fault) for fault in faults]


def _message(error: jsonschema.ValidationError) -> str:
    instance: Any = error.instance
    wanted: Any = error.validator_value
    text = repr(instance) if len(repr(instance)) <= 60 else f"{repr(instance)[:57]}..."
    match error.validator:
        case "required":
            return f"lacks {', '.join(key for key in wanted if key not in instance)}."
        case "type":
            return f"is {text}, not of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}."
        case "enum":
            return f"is {text}, not one of {', '.join(map(str, wanted))}."
        case "anyOf" if any("pattern" in alternative for alternative in wanted):
            return f"is {text}, no quantity."
    return f"is {text}; its {error.validator} is {wanted}."


def _join(path: str, *parts: str | int) -> str:
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else f"{path}.{part}".removeprefix(".")
    return path


def _unknown(schema: Schema, value: Any, path: str) -> Iterator[_Fault]:
    """Yield fields that an API server would drop, and duplicate items of lists."""
    if isinstance(value, dict) and not schema.get("x-kubernetes-int-or-string"):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", schema.get("x-kubernetes-preserve-unknown-fields", False))
        for key, child in value.items():
            if key in properties:
                yield from _unknown(properties[key], child, _join(path, key))
            elif isinstance(others, dict):
                yield from _unknown(others, child, _join(path, key))
            elif not others:
                near = difflib.get_close_matches(str(key), properties, n=1)
                yield _Fault(_join(path, key), f"is an unknown field{f'; near: {near[0]}' if near else ''}.")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown(schema.get("items", {}), item, _join(path, number))
        listed = [_identity(schema, item) for item in value]
        if twice := [item for item in listed if item is not None and listed.count(item) > 1]:
            yield _Fault(path, f"holds the same item twice: {twice[0]}.")


def _identity(schema: Schema, item: Any) -> Any:
    """Return the part of an item that must be unique in its list; None if nothing must be."""
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map" and isinstance(item, dict):
        return {key: item.get(key) for key in schema["x-kubernetes-list-map-keys"]}
    return item if kind == "set" else None


def _defaulted(schema: Schema, value: Any) -> Any:
    """Return a copy of `value` with the defaults of the schema."""
    if isinstance(value, list):
        return [_defaulted(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    result = {}
    for key, child in value.items():
        below = properties.get(key, others)
        result[key] = _defaulted(below, child) if isinstance(below, dict) else child
    for key, below in properties.items():
        if key not in result and "default" in below:
            result[key] = _defaulted(below, copy.deepcopy(below["default"]))
    return result


def _rules(schema: Schema, value: Any, path: str) -> Iterator[_Fault]:
    """Yield the CEL rules that `value`, which includes the defaults, breaks."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if not re.search(r"\boldSelf\b", rule["rule"]):
            try:
                fulfilled = _program(rule["rule"]).execute({"self": value})
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                fulfilled = None  # the API server rejects an object if it cannot evaluate a rule
                yield _Fault(path, f"breaks the rule {rule['rule']} ({error}).")
            if fulfilled is False:
                yield _Fault(path, f"breaks a rule: {rule.get('message', rule['rule']).strip().rstrip('.')}.")
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, child in value.items():
            below = properties.get(key, others)
            if isinstance(below, dict):
                yield from _rules(below, child, _join(path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _rules(schema.get("items", {}), item, _join(path, number))


@functools.cache
def _program(rule: str) -> Any:
    return cel.compile(rule)


def _semantic_faults(obj: dict[str, Any]) -> Iterator[_Fault]:
    """Yield faults that an API server finds in code, not by schema: names, labels, a pod's volumes and their mounts."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        yield _Fault("metadata", "is missing.")
        return
    name = metadata.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield _Fault("metadata.name", f"is {name!r}, not a name of lower-case letters, digits, - and . .")
    yield from _labels(metadata, "metadata")
    if obj["kind"] == "Pod" and isinstance(obj.get("spec"), dict):
        yield from _pod(obj["spec"], "spec")
    for path, template in pod_templates(obj):
        yield from _labels(template.get("metadata"), f"{path}.metadata")
        yield from _pod(template["spec"], f"{path}.spec")


def _labels(metadata: Any, path: str) -> Iterator[_Fault]:
    for field in ("labels", "annotations"):
        found = metadata.get(field) if isinstance(metadata, dict) else None
        for key, value in (found if isinstance(found, dict) else {}).items():
            if not LABEL_KEY.fullmatch(str(key)):
                yield _Fault(f"{path}.{field}", f"has the key {key!r}, which is no label's key.")
            if field == "labels" and isinstance(value, str) and not LABEL_VALUE.fullmatch(value):
                yield _Fault(f"{path}.labels.{key}", f"is {value!r}, which is no label's value.")


def _pod(spec: dict[str, Any], path: str) -> Iterator[_Fault]:
    volumes = _maps(spec.get("volumes"))
    for volume in volumes:
        if len(volume) != 2:
            yield _Fault(f"{path}.volumes", f"has {volume.get('name')} with {len(volume) - 1} sources; it takes one.")
    names = {volume.get("name") for volume in volumes}
    for field in ("initContainers", "containers"):
        for container in _maps(spec.get(field)):
            here = f"{path}.{field} {container.get('name')}"
            if not DNS_LABEL.fullmatch(str(container.get("name"))):
                yield _Fault(here, "needs a name of lower-case letters, digits and -, 63 at most.")
            if not container.get("image"):
                yield _Fault(here, "has no image.")
            for mount in _maps(container.get("volumeMounts")):
                if mount.get("name") not in names:
                    yield _Fault(here, f"mounts {mount.get('name')}, which is no volume of the pod.")
            resources = container.get("resources") or {}
            requests, limits = (resources.get(key) or {} for key in ("requests", "limits"))
            for name in sorted({*requests, *limits}):
                # Devices cannot be overcommitted: google.com/tpu, nvidia.com/gpu.
                if "/" in name and requests.get(name, limits.get(name)) != limits.get(name):
                    yield _Fault(here, f"requests {requests.get(name)} of {name} and limits it to {limits.get(name)}.")


def _maps(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
