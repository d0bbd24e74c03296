"""Every rule about values that can be told without a cluster and without chips; all that is wrong is told at once.

A rule is a generator that takes a `Case` and yields problems. Each key is looked at by itself first. Rules across keys
run only where the keys that they read are sound, and while there is an unknown key, nothing that follows from a key
being absent is told: the unknown one may be it, mistyped. So one mistake gives one message.
"""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from typing import Any

from launcher import accelerators
from launcher.guess import bare, either, nearest
from launcher.maxtext_keys import (
    KINDS,
    OWNED,
    OWNED_WITH_DATA,
    POSITIVE,
    TEXT_IS_GIVEN,
    maxtext,
    out_of_bounds,
    takes,
)
from launcher.paths import charts_dir
from launcher.reader import resolve
from launcher.schema import Violation, leaves, spell_value, violations
from launcher.tree import Origin, Values, spell

__all__ = [
    "CLUSTER_LIMIT",
    "ERROR",
    "NAME_LIMITS",
    "OWNED",
    "OWNED_WITH_DATA",
    "POSITIVE",
    "RULES",
    "WARNING",
    "Case",
    "Problem",
    "check",
    "has_errors",
    "maxtext",
    "out_of_bounds",
    "schema",
    "spelled",
    "table_of",
    "takes",
]

ERROR, WARNING = "error", "warning"

NAME_LIMITS = {
    "local": 63,  # a folder; the limit of a DNS label keeps names usable on a cluster later
    "ray-cluster": 63,
    "ray-job": 35,  # GKE's TPU webhook cuts service names at 50 characters, KubeRay does not: 36 breaks host names
    "job-set": 40,  # a pod's host name, NAME-slice-99-9999 with 5 random characters, must stay within 63
}
"""Characters that a run's name may have, by kind."""

CLUSTER_LIMIT = 41  # characters of a RayCluster's name; the same webhook
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class Problem:
    """Something wrong with the values. `file` and `line` are None where nobody wrote the key.

    `key` is the dotted path, `message` a full sentence that does not repeat file and line.
    """

    rule: str
    severity: str
    message: str
    file: str | None
    line: int | None
    key: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        """`FILE:LINE: KEY: sentence`, without what is not known; without the key where the sentence names it."""
        where = f"{Origin(self.file, self.line)}: " if self.file is not None and self.line is not None else ""
        return where + (self.message if self.key in self.message else f"{self.key}: {self.message}")


class Case:
    """What is checked: the user's own layers (for origins), and the effective values (for everything else)."""

    def __init__(self, user: Values, effective: Values) -> None:
        self.user = user
        self.effective = effective
        self.mistyped = False
        """Whether there is an unknown key, which may be one that seems to be absent."""

    @cached_property
    def tree(self) -> dict[str, Any]:
        return self.effective.tree

    def problem(self, rule: str, path: Sequence[str], message: str, severity: str = ERROR) -> Problem:
        origin = self.user.origin(path)
        file, line = (origin.file, origin.line) if origin else (None, None)
        return Problem(rule, severity, message, file, line, spell(path))

    def across(
        self, rule: str, path: Sequence[str], message: str, *others: str, severity: str = ERROR
    ) -> Iterator[Problem]:
        """A problem that `path` makes with the keys `others` (dotted); none where one of them may be mistyped."""
        keys = [tuple(path), *(tuple(other.split(".")) for other in others)]
        if not (self.mistyped and any(key not in self.user.origins for key in keys)):
            yield self.problem(rule, path, message, severity)


Rule = Callable[[Case], Iterator[Problem]]


def check(user: Values, effective: Values) -> list[Problem]:
    """All problems, sorted by file and line; those that nobody's line shows come last."""
    case = Case(user, effective)
    if set(user.origins) <= {("run",), ("run", "name")}:
        return [case.problem("empty", (), "there are no values; name a file with -f, such as the preset quickstart.")]
    violations_ = list(_schema_violations(case))
    problems = [_explain(case, violation) for violation in violations_]
    broken = {violation.path for violation in violations_}
    if isinstance(case.tree.get("train"), dict):
        problems += _train_keys(case)
    case.mistyped = any(problem.rule == "unknown-key" for problem in problems)
    for reads, rule in RULES:
        if not any(_overlap(path, read) for path in broken for read in reads):
            problems += rule(case)
    return sorted(problems, key=lambda p: (p.file is None, p.file or "", p.line or 0, p.key, p.rule))


def _overlap(a: tuple[str, ...], b: str) -> bool:
    """Whether one of the two paths is the other or lies above it."""
    other = tuple(b.split("."))
    short = min(len(a), len(other))
    return a[:short] == other[:short]


# --- The schema -------------------------------------------------------------------------------------------------


@cache
def schema(chart: str) -> dict[str, Any]:
    """A chart's values.schema.json."""
    text: dict[str, Any] = json.loads((charts_dir() / chart / "values.schema.json").read_bytes())
    return text


def _schema_violations(case: Case) -> Iterator[Violation]:
    yield from violations(schema("run"), case.tree)
    if "common" not in case.tree:
        yield Violation(("common",), "missing-key", "has no value (null); give it one, or remove the key.")
    elif case.user.origin(("common",)) is not None and isinstance(case.tree["common"], dict):
        yield from violations(schema("common"), case.tree["common"], ("common",))


def _explain(case: Case, violation: Violation) -> Problem:
    path, says = violation.path, violation.says
    key = spell(path)
    if violation.rule == "unknown-key":
        return case.problem("unknown-key", path, f"there is no key {key}{_unseen(path[-1]) or _belongs(path)}")
    if violation.rule == "type":
        value = _value_at(case.tree, path)
        if isinstance(value, str) and _schema_at(path).get("type") == "array":
            words = shlex.split(value) if path == ("run", "command") and _balanced(value) else [value]
            says = says.removesuffix(".") + f", such as [{', '.join(map(json.dumps, words))}]."
    if violation.rule == "enum":
        members = [str(m) for m in _schema_at(path).get("enum", ())]
        value = _value_at(case.tree, path)
        near = nearest(value, members) if isinstance(value, str) else []
        says = says + (f' Did you mean "{near[0]}"?' if near else "")
    return case.problem(violation.rule, path, f"{key} {says}")


def _balanced(text: str) -> bool:
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


def _unseen(key: str) -> str:
    """The end of the sentence on a key with a character in it that looks like a space, or like nothing."""
    strange = next((char for char in key if char != " " and unicodedata.category(char) in ("Zs", "Cf")), "")
    return f"; it holds the invisible character U+{ord(strange):04X}, type it anew." if strange else ""


def _schema_at(path: Sequence[str]) -> dict[str, Any]:
    node = schema("run")
    for key in path:
        node = node.get("properties", {}).get(key, {})
    return node


def _value_at(tree: Any, path: Sequence[str]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _belongs(path: tuple[str, ...]) -> str:
    """The end of the sentence on an unknown key: what was meant, as far as that can be guessed."""
    *above, key = path
    paths = [p for p in leaves(schema("run")) if p[0] not in ("common", "global")]
    siblings = [p[-1] for p in paths if list(p[:-1]) == above]
    near = nearest(key, siblings)
    if near and bare(near[0]) == bare(key):
        return f"; did you mean {spell([*above, near[0]])}?"
    elsewhere = [spell(p) for p in paths if p[-1] == key]
    if key in maxtext()["keys"]:
        owned = OWNED.get(key)
        elsewhere = [f"train.{key}"] if owned is None else [owned.removeprefix("use ").rstrip(".")]
    if elsewhere:
        return f"; did you mean {either(elsewhere[:4])}?"
    if near:
        return f"; did you mean {spell([*above, near[0]])}?"
    by_name = {p[-1]: spell(p) for p in reversed(paths)}
    by_name |= {name: f"train.{name}" for name in maxtext()["keys"] if name not in by_name and name not in OWNED}
    far = nearest(key, by_name)
    if far:
        return f"; did you mean {by_name[far[0]]}?"
    return f"; {spell(above) if above else 'the top level'} has {either(siblings, 'and')}." if siblings else "."


# --- MaxText's keys ---------------------------------------------------------------------------------------------


def _train_keys(case: Case) -> Iterator[Problem]:
    table = maxtext()["keys"]
    for key, value in case.tree["train"].items():
        path = ("train", key)
        name = spell(path)
        if key in OWNED:
            if value is not None:
                yield case.problem("owned-key", path, f"{name} is set by Slipway: {OWNED[key]}")
        elif key not in table:
            yield case.problem("unknown-key", path, f"MaxText has no key {key}{_train_belongs(key)}")
        elif value is None:
            pass  # a layer took the key back; the trainer leaves it to MaxText
        elif not takes(table[key]["types"], value):
            kinds = [kind for kind in KINDS if kind in table[key]["types"]]
            wanted = either([KINDS[kind] for kind in kinds if kind != "int" or "float" not in kinds])
            unquoted = isinstance(value, str) and takes(table[key]["types"], resolve(value))
            hint = "; remove the quotes" if unquoted else ""
            yield case.problem("type", path, f"{name} is {spell_value(value)}; MaxText takes {wanted}{hint}.")
        elif "values" in table[key] and value not in table[key]["values"]:
            members = [str(member) for member in table[key]["values"]]
            near = nearest(str(value), members)
            guess = f' Did you mean "{near[0]}"?' if near else ""
            listed = ", ".join(member or '""' for member in members)
            yield case.problem("enum", path, f"{name} is {json.dumps(value)}; it is one of {listed}.{guess}")
        elif key == "steps" and value < 1:
            yield case.problem("steps", path, f"train.steps is {value}; a run takes at least one step.")
        elif bound := out_of_bounds(POSITIVE.get(key) or table[key], value):
            yield case.problem("minimum", path, f"{name} is {value}; it must be {bound}.")
        else:
            yield from _train_value(case, path, value)


def _train_value(case: Case, path: tuple[str, str], value: Any) -> Iterator[Problem]:
    if path[1] == "model_name" and value not in ("default", *maxtext()["models"]):
        near = nearest(value, maxtext()["models"], 3)
        guess = f"; did you mean {either(near)}?" if near else f"; it has {', '.join(maxtext()['models'])}."
        yield case.problem("model-name", path, f'MaxText {maxtext()["maxtext"]} has no model "{value}"{guess}')


def _train_belongs(key: str) -> str:
    near = nearest(key, maxtext()["keys"])
    if near and bare(near[0]) == bare(key):
        return f"; did you mean train.{near[0]}?"
    elsewhere = [spell(p) for p in leaves(schema("run")) if p[-1] == key and p[0] not in ("common", "global", "train")]
    if elsewhere:
        return f"; did you mean {either(elsewhere)}?"
    return f"; did you mean train.{near[0]}?" if near else "."


# --- Rules across keys ------------------------------------------------------------------------------------------


def _name(case: Case) -> Iterator[Problem]:
    path = ("run", "name")
    name, kind = case.tree["run"]["name"], case.tree["run"]["kind"]
    if not name:
        yield from case.across("name", path, "the run has no name; give it one with --name NAME or run.name.")
    else:
        yield from _label(case, path, name, NAME_LIMITS[kind], f"a {kind} run", "run.kind")


def _cluster(case: Case) -> Iterator[Problem]:
    path = ("run", "cluster")
    name, kind = case.tree["run"]["cluster"], case.tree["run"]["kind"]
    if kind != "ray-cluster":
        return
    if not name:
        message = "run.kind is ray-cluster; run.cluster must name the standing RayCluster."
        yield from case.across("cluster", path, message)
    else:
        yield from _label(case, path, name, CLUSTER_LIMIT, "a RayCluster on TPUs")


def _label(case: Case, path: tuple[str, str], name: str, limit: int, what: str, *others: str) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        message = f'"{name}" is no name; use small letters, digits and hyphens, with a letter first and no hyphen last.'
        ascii_ = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        plain = re.sub(r"[^a-z0-9]+", "-", ascii_.lower()).strip("-")[:limit].rstrip("-")
        plain = f"run-{plain}"[:limit] if plain[:1].isdigit() else plain
        guess = f' For example "{plain}".' if _NAME.fullmatch(plain) else ""
        yield case.problem("name", path, message + guess)
    elif len(name) > limit:
        message = f'"{name}" has {len(name)} characters; the name of {what} may have {limit}.'
        yield from case.across("name", path, message, *others)


def _data(case: Case) -> Iterator[Problem]:
    tree = case.tree
    data = tree["data"]
    has_data = bool(data["files"] or data["corpus"])
    for key in OWNED_WITH_DATA if has_data else ():
        if tree["train"].get(key) is not None:
            yield case.problem("owned-key", ("train", key), f"train.{key} is set by Slipway: {TEXT_IS_GIVEN}")
    if data["files"] and data["corpus"]:
        yield case.problem("data", ("data", "corpus"), "data.files and data.corpus are both set; keep one of the two.")
    if tree["run"]["command"]:
        if has_data or tree["train"]:
            yield case.problem(
                "command", ("run", "command"), "run.command replaces the trainer; data and train are ignored.", WARNING
            )
        return
    yield from _files(case, ("data", "files"), data["files"])
    yield from _files(case, ("data", "heldOut", "files"), data["heldOut"]["files"])
    if not has_data and not tree["train"].get("dataset_type"):
        yield from case.across(
            "data",
            ("data",),
            "there is nothing to train on; give data.files, or data.corpus: python, or train.dataset_type"
            " (synthetic needs no text).",
            *("data.files", "data.corpus", "train.dataset_type"),
        )


def _files(case: Case, path: tuple[str, ...], files: Sequence[str]) -> Iterator[Problem]:
    for file in files:
        if not file.strip():
            yield case.problem("data", path, f"{spell(path)} has an empty item; remove it, or name a file.")
        elif "://" in file:
            message = f'{spell(path)}: "{file}" is a URL; text is read from files: copy it, or mount its bucket.'
            yield case.problem("data", path, message)


def _slice(case: Case) -> Iterator[Problem]:
    table = case.tree.get("common", {}).get("accelerators", {})
    if _is_elsewhere(case):
        return
    part = case.tree["slice"]
    if part["provisioning"] == "reservation" and not part["reservation"]:
        message = "slice.provisioning is reservation; slice.reservation must name it."
        yield from case.across("reservation", ("slice", "reservation"), message)
    if part["reservation"] and part["provisioning"] != "reservation":
        message = f"slice.reservation needs slice.provisioning: reservation, which is {part['provisioning']}."
        yield from case.across("reservation", ("slice", "reservation"), message, "slice.provisioning")
    if next(_contradictions(case), None):
        return  # a row that contradicts itself is told by itself
    try:
        accelerators.resolve(part, table)
    except accelerators.SliceError as error:
        others = ("slice.accelerator", "slice.topology") if error.key == "machineType" else ("slice.accelerator",)
        yield from case.across("slice", ("slice", error.key), error.message, *others)


def _local(case: Case) -> Iterator[Problem]:
    kind, storage, accelerator = (
        case.tree["run"]["kind"],
        case.tree["storage"]["kind"],
        case.tree["slice"]["accelerator"],
    )
    if kind != "local":
        return
    if storage != "local":
        message = f"a local run keeps its files on this machine: storage.kind must be local, not {storage}."
        yield from case.across("local", ("storage", "kind"), message)
    if _is_elsewhere(case):
        message = f"a local run uses this machine's CPU: slice.accelerator must be cpu, not {accelerator}."
        yield from case.across("local", ("slice", "accelerator"), message)


def _is_elsewhere(case: Case) -> bool:
    """Whether a local run asks for an accelerator that this machine is not; what its slice lacks is of no matter."""
    run, accelerator = case.tree.get("run"), case.tree["slice"]["accelerator"]
    kind = run.get("kind") if isinstance(run, dict) else ""
    return kind == "local" and accelerator != "cpu" and accelerator in case.tree["common"]["accelerators"]


def _storage(case: Case) -> Iterator[Problem]:
    tree = case.tree
    storage, kind = tree["storage"], tree["run"]["kind"]
    if kind == "local":
        return
    path, bucket = storage["mountPath"], storage["bucket"]
    if not re.fullmatch(r"/[^:]*[^:/]", path):
        message = f'storage.mountPath is "{path}"; it must begin with "/" and name a folder below it.'
        yield from case.across("storage", ("storage", "mountPath"), message, "run.kind")
    elif re.match(r"/(etc/slipway|dev|proc|sys|tmp/ray)(/|$)", path):
        message = (
            f'storage.mountPath is "{path}", which the pods need for themselves; use another folder, such as /data.'
        )
        yield from case.across("storage", ("storage", "mountPath"), message, "run.kind")
    if storage["kind"] == "gcsfuse" and not bucket:
        message = "storage.kind is gcsfuse; storage.bucket must name the bucket."
        yield from case.across("storage", ("storage", "bucket"), message, "run.kind")
    elif bucket and not re.fullmatch(r"[a-z0-9][-a-z0-9._]{1,220}[a-z0-9]", bucket):
        message = f'storage.bucket: "{bucket}" is no bucket\'s name; write it without gs:// and without a folder.'
        yield case.problem("storage", ("storage", "bucket"), message)
    if storage["kind"] == "pvc" and not storage["claim"]:
        message = "storage.kind is pvc; storage.claim must name the PersistentVolumeClaim."
        yield from case.across("storage", ("storage", "claim"), message)
    if storage["kind"] == "local" and kind != "ray-cluster" and not tree["run"]["command"]:
        message = (
            "storage.kind is local, which on a cluster ends with each pod, checkpoints and all; "
            "the trainer needs gcsfuse or pvc."
        )
        yield from case.across("storage", ("storage", "kind"), message, "run.kind", "run.command")
    for name in storage["sidecarLimits"]:
        if name not in ("cpu", "memory", "ephemeral-storage"):
            message = f'storage.sidecarLimits: there is no limit "{name}"; there are cpu, memory and ephemeral-storage.'
            problem = case.problem("storage", ("storage", "sidecarLimits", name), message)
            yield replace(problem, key="storage.sidecarLimits")  # the sentence names the rest


# --- Rules for what the charts make of the values: charts/common/templates/_rules.tpl has the same ------------------

_MAKES_PODS = ("ray-job", "job-set")
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
_CONFIG_LIMIT = 120_000  # bytes; the head and each group of hosts carry the run config, and an object takes 256 KiB
_CPU = re.compile(r"[1-9][0-9]*m?|[0-9]+\.[0-9]*[1-9][0-9]*")
_MEMORY = re.compile(r"[0-9]*\.?[0-9]*[1-9][0-9]*(\.0)?(Ki|Mi|Gi|Ti|k|M|G|T)")


def _names(case: Case) -> Iterator[Problem]:
    for section, key in _NAMED:
        name = case.tree[section][key]
        if name and not _KUBERNETES_NAME.fullmatch(name):
            message = (
                f'{section}.{key}: "{name}" is no name in Kubernetes; '
                "use at most 63 small letters, digits and hyphens, no hyphen first or last."
            )
            yield case.problem("name", (section, key), message)


def _image(case: Case) -> Iterator[Problem]:
    if case.tree["run"]["kind"] not in _MAKES_PODS:
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


def _mount(case: Case) -> Iterator[Problem]:
    path = case.tree["storage"]["mountPath"]
    if case.tree["run"]["kind"] not in _MAKES_PODS or not re.fullmatch(r"/[^:]*[^:/]", path):
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


def _words(case: Case) -> Iterator[Problem]:
    kind, worker = case.tree["run"]["kind"], case.tree["worker"]
    if kind not in _MAKES_PODS:
        return
    command = case.tree["run"]["command"]
    if command and not command[0]:
        message = "run.command begins with an empty item; it must begin with a program."
        yield case.problem("command", ("run", "command"), message)
    for at in ("worker",) if kind == "job-set" else ("worker", "head"):
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
            message = f'{spell(path)}: "{name}" is no name of an object; use small letters, digits, hyphens and dots.'
            yield case.problem("name", path, message)
    for env, secret in worker["secretEnv"].items():
        if not re.fullmatch(r"[-._A-Za-z0-9]{1,253}", secret["key"]):
            message = (
                f'worker.secretEnv.{env}.key: "{secret["key"]}" is no key of a Secret; '
                "use letters, digits, hyphens, dots and underscores."
            )
            yield case.problem("name", ("worker", "secretEnv", env, "key"), message)


def _table(case: Case) -> Iterator[Problem]:
    if case.tree["run"]["kind"] != "local":
        yield from _contradictions(case)


def _contradictions(case: Case) -> Iterator[Problem]:
    """What contradicts itself in the table's row that the run uses."""
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
        key = spell(path)
        if not re.fullmatch(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3})*", shape):
            yield case.problem("table", path, f'{key}: "{shape}" is no shape; write it like 4x4.')
            continue
        chips = accelerators.chips(shape)
        for machine in types:
            per_host = row["machineTypes"].get(machine)
            if per_host is None:
                message = (
                    f'{key}: "{machine}" is not in {spell(above)}.machineTypes; add it there with its chips per host.'
                )
                yield case.problem("table", path, message)
            elif chips % per_host:
                message = f"{key}: {chips} chips are no whole number of hosts with {per_host} chips, as {machine} has."
                yield case.problem("table", path, message)


def _size(case: Case) -> Iterator[Problem]:
    tree = case.tree
    if tree["run"]["kind"] not in _MAKES_PODS:
        return
    config = {key: value for key, value in tree.items() if key not in ("common", "global")}
    text = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
    # As Go writes it, with \u003c for <, and with the accelerator's row.
    size = len(text.encode(errors="replace")) + 5 * sum(map(text.count, "<>&")) + 400
    if size > _CONFIG_LIMIT:
        message = (
            "train, data: the run config is too large for an annotation, of which an object in Kubernetes takes "
            "256 KiB; name files by folders and globs."
        )
        yield case.problem("size", ("data",), message)


def _pods(case: Case) -> Iterator[Problem]:
    tree = case.tree
    kind, worker, slice_ = tree["run"]["kind"], tree["worker"], tree["slice"]
    if kind not in _MAKES_PODS:
        return
    sections = ("worker",) if kind == "job-set" else ("worker", "head")
    for path in ((section, key) for section in sections for key in ("cpu", "memory")):
        amount = tree[path[0]][path[1]]
        if amount and not (_CPU if path[1] == "cpu" else _MEMORY).fullmatch(amount):
            like = "8 or 500m" if path[1] == "cpu" else "16Gi"
            message = f'{spell(path)}: "{amount}" is no amount of {path[1]}; write it like {like}.'
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
    if kind == "ray-job" and groups > 7:
        message = (
            f"slice.count: with its head the Ray cluster has {min(groups, 99) + 1} pod sets, and Kueue takes "
            "at most 8; use fewer groups, or slice.placement: exclusive."
        )
        yield case.problem("pod-sets", ("slice", "count"), message)


def _environment(case: Case) -> Iterator[Problem]:
    worker, kind = case.tree["worker"], case.tree["run"]["kind"]
    for section in ("env", "secretEnv"):
        for name in worker[section]:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                message = f'worker.{section}: "{name}" is no name of a variable; use letters, digits and underscores.'
                problem = case.problem("environment", ("worker", section, name), message)
                yield replace(problem, key=f"worker.{section}")  # the sentence names the rest
            elif kind == "job-set" and name in ("JOB_INDEX", "SLIPWAY_COORDINATOR"):
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


RULES: Sequence[tuple[tuple[str, ...], Rule]] = (
    (("run.name", "run.kind"), _name),
    (("run.cluster", "run.kind"), _cluster),
    (("data", "run.command", "train"), _data),
    (("slice", "common"), _slice),
    (("run.kind", "storage", "slice.accelerator", "common"), _local),
    (("run.kind", "storage", "run.command"), _storage),
    (("team", "queue", "slice.reservation", "storage.claim"), _names),
    (("run.kind", "image"), _image),
    (("run.kind", "worker", "head", "slice", "storage", "common"), _pods),
    (("run.kind", "worker", "head"), _environment),
    (("run.kind", "storage"), _mount),
    (("run.kind", "run.command", "worker", "head", "image"), _words),
    (("run.kind", "slice", "common"), _table),
    (("run", "team", "queue", "slice", "image", "storage", "head", "worker", "security", "cluster", "data"), _size),
)
"""Each rule with the keys that it reads."""


def spelled(problems: Sequence[Problem]) -> str:
    """The problems as lines for people."""
    return "\n".join(map(str, problems))


def has_errors(problems: Iterable[Problem]) -> bool:
    """Whether any of the problems stops a run."""
    return any(problem.severity == ERROR for problem in problems)


def table_of(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table of accelerators in effective values."""
    table: Mapping[str, Any] = values["common"]["accelerators"]
    return table
