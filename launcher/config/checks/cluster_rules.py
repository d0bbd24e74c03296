"""Rules for what the charts render; charts/common/templates/_rules.tpl has the same rules and messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from launcher.config import accelerators
from launcher.config.checks.problems import CheckContext, Problem, Rule, table_of
from launcher.config.kinds import RunKind
from launcher.config.values.tree import dotted

_KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAMED = (
    *(("team", "name"), ("team", "namespace"), ("team", "serviceAccount"), ("queue", "name"), ("queue", "priority")),
    *(("queue", "podPriority"), ("slice", "reservation"), ("storage", "claim")),
)
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_REPOSITORY = re.compile(
    r"([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*", re.ASCII
)
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_SYSTEM_FOLDER = re.compile(r"/((bin|sbin|lib|lib64|usr)(/.*)?|etc|tmp|run|var)", re.DOTALL)
_CONFIG_LIMIT = 120_000  # bytes; the head and each group of hosts carry the run config, and its limit is 256 KiB
_CPU = re.compile(r"[1-9][0-9]*m?|[0-9]+\.[0-9]*[1-9][0-9]*")
_MEMORY = re.compile(r"[0-9]*\.?[0-9]*[1-9][0-9]*(\.0)?(Ki|Mi|Gi|Ti|k|M|G|T)")


def _names(case: CheckContext) -> Iterator[Problem]:
    for section, key in _NAMED:
        name = case.tree[section][key]
        if name and not _KUBERNETES_NAME.fullmatch(name):
            message = (
                f'{section}.{key}: "{name}" is no name in Kubernetes; '
                "use at most 63 small letters, digits and hyphens, no hyphen first or last."
            )
            yield case.problem("name", (section, key), message)


def _image(case: CheckContext) -> Iterator[Problem]:
    if not case.kind.has_object:
        return
    image = case.tree["image"]
    repository, tag, digest = image["repository"], image["tag"], image["digest"]
    if not repository:
        message = "image.repository is empty; it must name the image with the trainer and Ray in it."
        yield from case.across("image", ("image", "repository"), message, "run.kind")
    elif re.search(r"@|:[^/]*$", repository):
        message = f'image.repository: "{repository}" carries a tag or a digest; they go into image.tag or image.digest.'
        yield case.problem("image", ("image", "repository"), message)
    elif not _REPOSITORY.fullmatch(repository):
        message = f'image.repository: "{repository}" is no image\'s name; write it like example.com/team/trainer.'
        yield case.problem("image", ("image", "repository"), message)
    if not tag and not digest:
        message = "image.tag is empty; give the image's tag, or its digest in image.digest."
        yield from case.across("image", ("image", "tag"), message, "run.kind", "image.digest")
    elif tag and digest:
        message = "image.tag and image.digest are both set; keep one of the two."
        yield case.problem("image", ("image", "tag"), message)
    elif tag == "latest":
        yield case.problem("image", ("image", "tag"), "image.tag is latest, which changes under a run; name a version.")
    elif tag and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", tag):
        message = f'image.tag: "{tag}" is no tag; use letters, digits, dots, hyphens and underscores.'
        yield case.problem("image", ("image", "tag"), message)
    elif digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        message = f'image.digest: "{digest}" is no digest; it is sha256: and 64 hexadecimal digits.'
        yield case.problem("image", ("image", "digest"), message)
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+[-+.A-Za-z0-9]*", image["rayVersion"]):
        message = f'image.rayVersion: "{image["rayVersion"]}" is no version of Ray; it is like 2.60.0.'
        yield case.problem("image", ("image", "rayVersion"), message)


def _mount(case: CheckContext) -> Iterator[Problem]:
    path = case.tree["storage"]["mountPath"]
    if not case.kind.has_object or not re.fullmatch(r"/[^:]*[^:/]", path):
        return
    if _SYSTEM_FOLDER.fullmatch(path):
        message = (
            f'storage.mountPath is "{path}", which the pods need for themselves; use another folder, such as /data.'
        )
        yield case.problem("storage", ("storage", "mountPath"), message)
    elif re.search(r"//|/\.\.?(/|\Z)|[\x00-\x1f\x7f]", path):
        message = (
            f'storage.mountPath: {json.dumps(path, ensure_ascii=False)} is no plain path; write it without "..", "//" '
            "and the like."
        )
        yield case.problem("storage", ("storage", "mountPath"), message)


def _words(case: CheckContext) -> Iterator[Problem]:
    kind, worker = case.kind, case.tree["worker"]
    if not kind.has_object:
        return
    command = case.tree["run"]["command"]
    if command and not command[0]:
        message = "run.command begins with an empty item; it must begin with a program."
        yield case.problem("command", ("run", "command"), message)
    for at in ("worker",) if kind is RunKind.JOB_SET else ("worker", "head"):
        for label, value in case.tree[at]["nodeSelector"].items():
            path: tuple[str, ...] = (at, "nodeSelector", label)
            if not _LABEL.fullmatch(label):
                message = (
                    f'{at}.nodeSelector: "{label}" is no key of a label; use letters, digits, hyphens, dots and '
                    "underscores, such as example.com/pool."
                )
                yield replace(case.problem("label", path, message), key=f"{at}.nodeSelector")
            elif not _LABEL_VALUE.fullmatch(value):
                message = (
                    f'{at}.nodeSelector.{label}: "{value}" is no value of a label; use at most 63 letters, digits, '
                    "hyphens, dots and underscores."
                )
                yield case.problem("label", path, message)
    names: list[tuple[tuple[str, ...], str]] = [
        (("image", "pullSecrets"), n) for n in case.tree["image"]["pullSecrets"]
    ]
    names += [(("worker", "envFrom"), name) for name in worker["envFrom"]]
    for env, secret in worker["secretEnv"].items():
        names.append((("worker", "secretEnv", env, "name"), secret["name"]))
    for path, name in names:
        if not _OBJECT_NAME.fullmatch(name):
            message = f'{dotted(path)}: "{name}" is no name of an object; use small letters, digits, hyphens and dots.'
            yield case.problem("name", path, message)
    for env, secret in worker["secretEnv"].items():
        if not re.fullmatch(r"[-._A-Za-z0-9]{1,253}", secret["key"]):
            message = (
                f'worker.secretEnv.{env}.key: "{secret["key"]}" is no key of a Secret; '
                "use letters, digits, hyphens, dots and underscores."
            )
            yield case.problem("name", ("worker", "secretEnv", env, "key"), message)


def _table(case: CheckContext) -> Iterator[Problem]:
    if case.kind is not RunKind.LOCAL:
        yield from contradictions(case)


def contradictions(case: CheckContext) -> Iterator[Problem]:
    """Report contradictions in the row of the table that the run uses."""
    name = case.tree["slice"]["accelerator"]
    row = table_of(case.tree).get(name)
    if row is None:
        return
    above = ("common", "accelerators", name)
    shapes: list[tuple[tuple[str, ...], str, list[str]]] = [
        ((*above, "topologies", shape), shape, types) for shape, types in row.get("topologies", {}).items()
    ]
    if "larger" in row:
        shapes.append(((*above, "larger"), "4x4x4", row["larger"]["machineTypes"]))
    for path, shape, types in shapes:
        key = dotted(path)
        if not re.fullmatch(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3})*", shape):
            yield case.problem("table", path, f'{key}: "{shape}" is no shape; write it like 4x4.')
            continue
        chips = accelerators.chips(shape)
        for machine in types:
            per_host = row["machineTypes"].get(machine)
            if per_host is None:
                message = (
                    f'{key}: "{machine}" is not in {dotted(above)}.machineTypes; add it there with its chips per host.'
                )
                yield case.problem("table", path, message)
            elif chips % per_host:
                message = f"{key}: {chips} chips are no whole number of hosts with {per_host} chips, as {machine} has."
                yield case.problem("table", path, message)


def _size(case: CheckContext) -> Iterator[Problem]:
    tree = case.tree
    if not case.kind.has_object:
        return
    config = {key: value for key, value in tree.items() if key not in ("common", "global")}
    text = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
    # The size as Go writes it, with \u003c for <, and with the accelerator's row.
    size = len(text.encode(errors="replace")) + 5 * sum(map(text.count, "<>&")) + 400
    if size > _CONFIG_LIMIT:
        message = (
            "train, data: the run config is too large for an annotation, of which an object in Kubernetes takes "
            "256 KiB; name files by folders and globs."
        )
        yield case.problem("size", ("data",), message)


def _pods(case: CheckContext) -> Iterator[Problem]:
    tree = case.tree
    kind, worker, slice_ = case.kind, tree["worker"], tree["slice"]
    if not kind.has_object:
        return
    sections = ("worker",) if kind is RunKind.JOB_SET else ("worker", "head")
    for path in ((section, key) for section in sections for key in ("cpu", "memory")):
        amount = tree[path[0]][path[1]]
        if amount and not (_CPU if path[1] == "cpu" else _MEMORY).fullmatch(amount):
            like = "8 or 500m" if path[1] == "cpu" else "16Gi"
            message = f'{dotted(path)}: "{amount}" is no amount of {path[1]}; write it like {like}.'
            yield case.problem("amount", path, message)
    for name in ("cpu", "memory", "ephemeral-storage"):
        amount = tree["storage"]["sidecarLimits"].get(name, "0")
        if amount != "0" and not (_CPU if name == "cpu" else _MEMORY).fullmatch(amount):
            like = "8 or 500m" if name == "cpu" else "16Gi"
            message = f'storage.sidecarLimits.{name}: "{amount}" is no amount of {name}; write it like {like}.'
            yield case.problem("amount", ("storage", "sidecarLimits", name), message)
    row = table_of(tree).get(slice_["accelerator"])
    if row is not None and row["kind"] == "cpu" and not (worker["cpu"] and worker["memory"]):
        message = (
            "worker.cpu and worker.memory must say what a host is: "
            f"slice.accelerator is {slice_['accelerator']}, which has no chips to ask for."
        )
        missing = "cpu" if not worker["cpu"] else "memory"
        yield from case.across("amount", ("worker", missing), message, "run.kind", "slice.accelerator")
    if row is not None and row["kind"] == "cpu" and slice_["placement"] == "topology":
        message = (
            "slice.placement: topology is for slices of chips on node pools of their own; "
            f"{slice_['accelerator']} needs none."
        )
        yield from case.across("placement", ("slice", "placement"), message, "slice.accelerator")
    groups = slice_["count"] if slice_["placement"] == "topology" and slice_["count"] > 1 else 1
    if kind is RunKind.RAY_JOB and groups > 7:
        message = (
            f"slice.count: with its head the Ray cluster has {min(groups, 99) + 1} pod sets, and Kueue takes "
            "at most 8; use fewer groups, or slice.placement: exclusive."
        )
        yield case.problem("pod-sets", ("slice", "count"), message)


def _environment(case: CheckContext) -> Iterator[Problem]:
    worker, kind = case.tree["worker"], case.kind
    for section in ("env", "secretEnv"):
        for name in worker[section]:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                message = f'worker.{section}: "{name}" is no name of a variable; use letters, digits and underscores.'
                problem = case.problem("environment", ("worker", section, name), message)
                yield replace(problem, key=f"worker.{section}")  # the message names the rest
            elif kind is RunKind.JOB_SET and name in ("JOB_INDEX", "SLIPWAY_COORDINATOR"):
                message = f"worker.{section}.{name} is set by Slipway; remove it."
                yield case.problem("environment", ("worker", section, name), message)
            elif section == "secretEnv" and name in ("JAX_PLATFORMS", "ENABLE_PJRT_COMPATIBILITY"):
                message = f"worker.secretEnv.{name} is set by Slipway; use worker.env.{name} for another value."
                yield case.problem("environment", ("worker", section, name), message)
            elif section == "secretEnv" and name in worker["env"]:
                message = f"worker.env.{name} and worker.secretEnv.{name} are both set; keep one of the two."
                yield case.problem("environment", ("worker", "secretEnv", name), message)
    for at in ("head", "worker"):
        for name, toleration in case.tree[at]["tolerations"].items():
            if toleration.get("value") and toleration.get("operator", "Equal") == "Exists":
                message = f"{at}.tolerations.{name}: operator Exists takes no value; remove one of the two."
                yield case.problem("toleration", (at, "tolerations", name), message)
            elif not toleration["key"] and toleration.get("operator", "Equal") != "Exists":
                message = (
                    f"{at}.tolerations.{name}: key is empty; name the taint's key, or give operator: Exists, for all."
                )
                yield case.problem("toleration", (at, "tolerations", name), message)
            elif toleration["key"] and not _LABEL.fullmatch(toleration["key"]):
                message = (
                    f'{at}.tolerations.{name}.key: "{toleration["key"]}" is no key of a taint; use letters, digits, '
                    "hyphens, dots and underscores, such as example.com/pool."
                )
                yield case.problem("toleration", (at, "tolerations", name, "key"), message)
            elif not _LABEL_VALUE.fullmatch(toleration.get("value", "")):
                message = (
                    f'{at}.tolerations.{name}.value: "{toleration["value"]}" is no value of a taint; use at most 63 '
                    "letters, digits, hyphens, dots and underscores."
                )
                yield case.problem("toleration", (at, "tolerations", name, "value"), message)
            if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
                message = f"{at}.tolerations.{name}: tolerationSeconds needs effect: NoExecute."
                yield case.problem("toleration", (at, "tolerations", name), message)


CLUSTER_RULES: Sequence[tuple[tuple[str, ...], Rule]] = (
    (("team", "queue", "slice.reservation", "storage.claim"), _names),
    (("run.kind", "image"), _image),
    (("run.kind", "worker", "head", "slice", "storage", "common"), _pods),
    (("run.kind", "worker", "head"), _environment),
    (("run.kind", "storage"), _mount),
    (("run.kind", "run.command", "worker", "head", "image"), _words),
    (("run.kind", "slice", "common"), _table),
    (
        (
            "run",
            "team",
            "queue",
            "slice",
            "image",
            "storage",
            "head",
            "worker",
            "security",
            "cluster",
            "tracking",
            "data",
        ),
        _size,
    ),
)
"""Each rule with the keys that it reads."""
