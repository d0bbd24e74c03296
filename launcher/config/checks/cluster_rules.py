"""Rules that calculate for what the charts render; charts/common/templates/_rules.tpl has the same for plain Helm.

The other rules for a cluster are in the charts' table: see value_rules.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launcher.config import accelerators, avoided_nodes
from launcher.config.checks.problems import WARNING, CheckContext, Problem, Rule, table_of
from launcher.config.checks.value_rules import lookup
from launcher.config.kinds import RunKind
from launcher.config.values.tree import dotted

_CONFIG_LIMIT = 120_000  # bytes; the head and each group of hosts carry the run config, and its limit is 256 KiB
_TEMPLATES_LIMIT = 262_144  # bytes; policies.bounds.templateBytes of charts/queues
_TEXT_LIMIT = 60_000  # bytes; the admission policy of charts/queues accepts a little more (policies.bounds)
# The groups of a Ray cluster, whose head is a pod set, too. The newest supported Kueue accepts 18 pod sets (the CRD of
# Workload); launcher.diagnose.preflight compares with the limit of the cluster: 8 up to 0.17, 10 in 0.18.
_MAX_GROUPS = 17


_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d*)?|\.\d+)(m|[kMGT]?)(i?)")


def _host_size(case: CheckContext) -> Iterator[Problem]:
    """Report hosts that request more CPU or memory than their machine has: they would get quota, and never start.

    A node gives its pods less than the machine has; how much less depends on the version of GKE. Another rule reports
    10,000 cores and 100 TB and more.
    """
    machine = lookup(case.tree, "accelerator.machineType")[1]
    for key, of, unit, size, most in (
        ("cpu", "hostCpus", " vCPUs", 1, 1e4),
        ("memory", "hostMemoryGiB", "Gi", 2**30, 1e14),
    ):
        has = (lookup(case.tree, f"accelerator.{of}")[1] or {}).get(machine)
        given = _AMOUNT.fullmatch(str(case.tree["worker"][key]))
        if given and has and case.kind is not RunKind.LOCAL and not case.tree["slice"]["any"]:
            power = (1024 if given[3] else 1000) ** ("m kMGT".index(given[2] or " ") - 1)
            if has * size < float(given[1]) * power < most:
                message = f"{given[0]} is more than the {has}{unit} of a {machine}, and pods get less; lower it."
                yield case.problem("amount", ("worker", key), f"worker.{key}: {message}")


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
            yield case.problem("table", path, f'{key}: "{shape}" is not a valid topology; write it like 4x4.')
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
                message = (
                    f"{key}: {chips} chips are not a whole number of hosts; a host of {machine} has {per_host} chips."
                )
                yield case.problem("table", path, message)


def _size(case: CheckContext) -> Iterator[Problem]:
    tree = case.tree
    if not case.kind.has_object:
        return
    config = {key: value for key, value in tree.items() if key not in ("common", "global", "cluster", "serve")}
    text = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
    largest = max(config, key=lambda key: len(json.dumps(config[key], ensure_ascii=False)))
    # The size as Go writes it, with \u003c for <, and with the accelerator's row.
    size = len(text.encode(errors="replace")) + 5 * sum(map(text.count, "<>&")) + 400
    if size > _CONFIG_LIMIT:
        message = (
            "the run config is too large: a Kubernetes object can have at most 256 KiB of annotations; put long texts "
            f"into files in the storage, and name files in data by folders and globs. {largest} is its largest part."
        )
        yield case.problem("size", (largest,), message)
        return
    # Each pod template has the config, as a text of YAML, and each but the head's has the environment and the command.
    # The chart measures what it renders, which is a little more.
    templates = 1 if case.kind is RunKind.JOB_SET else _groups(tree) + 1
    own = json.dumps([tree["worker"]["env"], tree["run"]["command"]], ensure_ascii=False)
    whole = templates * len(json.dumps(text, ensure_ascii=False).encode(errors="replace"))
    whole += max(1, templates - 1) * len(own.encode(errors="replace"))
    if whole > _TEMPLATES_LIMIT:
        fewer = ", or use fewer groups of hosts" if templates > 2 else ""
        message = (
            f"{templates} pod templates with the run config and the environment of a worker have more than "
            f"{_TEMPLATES_LIMIT} bytes, the maximum of an object; put long texts into files in the storage{fewer}."
        )
        yield case.problem("size", (largest,), message)


def _sizes(case: CheckContext) -> Iterator[Problem]:
    """Report texts that are too large for an object, as common.rules.sizes of the charts does."""
    if not case.kind.has_object:
        return
    tree = case.tree
    texts = {
        ("run", "command"): tree["run"]["command"],
        ("worker", "env"): [*tree["worker"]["env"], *tree["worker"]["env"].values()],
    }
    for (part, key), parts in texts.items():
        if (size := sum(len(text.encode(errors="replace")) for text in parts)) > _TEXT_LIMIT:
            message = (
                f"{part}.{key} has {size} bytes; it can have at most {_TEXT_LIMIT}. Put long texts into a file in the "
                "storage."
            )
            yield case.problem("size", (part, key), message)


def _expansion(case: CheckContext) -> Iterator[Problem]:
    """Warn about text that Kubernetes changes in a pod (env and command of a container), and a local run does not."""
    if not case.kind.has_object:
        return
    worker = case.tree["worker"]
    texts: list[tuple[tuple[str, ...], str]] = [(("worker", "env", key), text) for key, text in worker["env"].items()]
    if case.kind is RunKind.JOB_SET:  # a RayJob's command is an argument of KubeRay's submitter
        texts += [(("run", "command"), text) for text in case.tree["run"]["command"]]
    for path, text in texts:
        for reference in re.findall(r"\$\$|\$\([^)]*\)", text):
            if reference == "$$":
                yield case.problem(
                    "expansion", path, f'{dotted(path)}: in a pod, Kubernetes makes "$$" a single "$".', WARNING
                )
            elif reference[2:-1] in worker["env"] or reference[2:-1] in worker["secretEnv"]:
                message = (
                    f'{dotted(path)}: in a pod, Kubernetes replaces "{reference}" by the value of the variable; to '
                    f'keep the text, write "${reference}".'
                )
                yield case.problem("expansion", path, message, WARNING)
            else:
                continue
            break


def _groups(tree: Mapping[str, Any]) -> int:
    """Return the number of worker groups of a RayJob."""
    part = tree["slice"]
    return part["count"] if part["placement"] == "topology" and part["count"] > 1 else 1


def _pod_sets(case: CheckContext) -> Iterator[Problem]:
    groups = _groups(case.tree)
    if case.kind is RunKind.RAY_JOB and groups > _MAX_GROUPS:
        message = (
            f"slice.count: the Ray cluster has {min(groups, 99) + 1} pod sets, including its head, and Kueue accepts "
            f"at most {_MAX_GROUPS + 1}; use fewer groups, or slice.placement: exclusive."
        )
        yield case.problem("pod-sets", ("slice", "count"), message)


def _placeholders(case: CheckContext) -> Iterator[Problem]:
    """Warn of names that the presets and Google's tutorials use as placeholders."""
    if case.kind is RunKind.LOCAL:
        return
    storage, image = case.tree["storage"], case.tree["image"]
    if storage["kind"] == "gcsfuse" and storage["bucket"] == "my-bucket":
        message = "storage.bucket: my-bucket is a placeholder; set the name of your bucket."
        yield case.problem("placeholder", ("storage", "bucket"), message, WARNING)
    if "/my-project/" in f"/{image['repository']}":
        message = f"image.repository: {image['repository']} has the placeholder my-project; set your image."
        yield case.problem("placeholder", ("image", "repository"), message, WARNING)


CLUSTER_RULES: Sequence[tuple[tuple[str, ...], Rule]] = (
    (("run.kind", "slice"), _pod_sets),
    (("run.kind", "slice", "common"), lambda case: () if case.kind is RunKind.LOCAL else contradictions(case)),
    (("run.kind", "slice", "common", "worker"), _host_size),
    (("run.kind", "storage", "image"), _placeholders),
    (("run.kind", "worker.avoidNodes"), avoided_nodes.ended),
    (("run.kind", "run.command", "worker"), _expansion),
    (("run.kind", "run.command", "worker.env"), _sizes),
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
