"""The page on the verbs: their options, from click, and their JSON, from the classes that become JSON."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import click

from launcher.backends.base import RunStatus, State
from launcher.cli.main import cli
from launcher.cli.verbs import verbs
from launcher.config.checks.problems import Problem
from launcher.diagnose.doctor.finding import Finding, Level
from launcher.diagnose.explain.finding import Evidence, Explanation
from launcher.helm.diff import ObjectChange
from launcher.products.common.ray_hosts import Group, Host
from launcher.products.models.serving.models import ServedModelStatus
from launcher.products.models.weights.checkpoints import Checkpoint, Checkpoints
from launcher.products.models.weights.export import Exported
from launcher.products.models.weights.importing import Imported
from launcher.products.platform.queues import QueuesUse, QueueUse, QuotaUse, TeamUse
from launcher.products.ray_cluster.clusters import RayClusterStatus
from tests.docs.reference.parts import cell, code, page, prose, table

_INTRO = """\
Data goes to stdout; messages and progress go to stderr. `-o json` and `-o yaml` print data for scripts. Its keys are
listed at each verb. Later versions can add keys, but never rename them. `launcher` searches for a `NAME` on this
machine and in the namespace of the context."""

_EXIT_CODES = (
    ("0", "done"),
    ("1", "the run failed or was cancelled, or an error that you can fix; the message describes how"),
    ("2", "wrong usage"),
    ("3", "a bug in Slipway, with a traceback to report"),
    ("124", "`wait` reached its time limit; the run continues"),
    ("130", "Ctrl-C; a run that was followed continues"),
)

# The JSON of a verb: an object of a class, or a list of such objects.
_PRINTS: dict[str, tuple[str, type]] = {
    "submit": ("one object, or a list of them for a sweep", RunStatus),
    "list": (
        "with --clusters a list of [RayClusterStatus](#rayclusterstatus), with --models a list of "
        "[ServedModelStatus](#servedmodelstatus), otherwise a list of objects",
        RunStatus,
    ),
    "status": (
        "one [ServedModelStatus](#servedmodelstatus) for a served model, a list of objects for a sweep, otherwise one "
        "object",
        RunStatus,
    ),
    "attach": ("one object, or a list of them for a sweep", RunStatus),
    "wait": ("one object, or a list of them for a sweep", RunStatus),
    "cancel": ("one object, or a list of them for a sweep", RunStatus),
    "delete": ("one object, or a list of them for a sweep, several names or --dry-run", RunStatus),
    "check": ("a list of objects", Problem),
    "explain": ("one object, or a list of them for a sweep", Explanation),
    "checkpoints": (
        "one object, or a list of them for a sweep, whose checkpoints are objects with the keys of Checkpoint below",
        Checkpoints,
    ),
    "export": ("one object; for a run in a cluster, that of the run that exports, as submit does", Exported),
    "import": ("one object; for an import in a cluster, that of the run that imports, as submit does", Imported),
    "queues": (
        "one object; cluster_queues is a list of objects with the keys of QueueUse below, their quotas with those of "
        "QuotaUse, or null without the right to list them; local_queues is a list of objects with the keys of "
        "TeamUse, with `used` as a list of flavor, resource and used",
        QueuesUse,
    ),
    "doctor": ("a list of objects", Finding),
    "diff": (
        "a list of objects, each with kind, name, namespace, action (create, change, remove or same) and fields "
        "(a list of path, old and new)",
        ObjectChange,
    ),
}
_IN_WORDS = {
    "values": "The merged tree. With --origins: a list of objects with the keys key, value, file and line.",
    "render": "The manifest.",
    "forecast": "One object: fits (null if it is unknown), `says`, hbm_bytes (arguments, outputs, temporaries, "
    "aliased, code, total, capacity; of one device), hbm_margin_bytes, host_bytes (total, capacity; of one host), "
    "buffers (a list of name, bytes, shape, kind), step_seconds, parts (seconds by kind of work), "
    "tokens_per_second_per_device, tflops_per_second_per_device, mfu, cost (steps, tokens, hours, chips, chip_hours, "
    "provisioning, usd_per_chip_hour, usd, region, date, source, `says`), suggestions (sentences), change (sets, "
    "options, `says`; compiled, and it fits), notes (sentences), chips, devices, mesh, versions, compile_seconds, "
    "cached",
    "logs": 'One object per line: {"line": text}, and of a sweep {"run": name, "line": text}.',
    "install": "One object: release, chart, namespace, context, revision, changes (as in diff), notReady (sentences).",
    "report": "One object: file, left_out (sentences), runs (a list with the values of the page's table).",
    "dashboard": "One object: name, url (for a browser; with the token), address, token.",
    "image": "One object: repository, tag, digest, accelerator, rayVersion, built; with --dry-run: image, commands.",
    "uninstall": "One object: release, chart, namespace, context, removed, kept, neededBy.",
}
_CLASSES = (
    *(RunStatus, RayClusterStatus, ServedModelStatus, Group, Host, Problem, Explanation, Evidence, Finding),
    *(Checkpoints, Checkpoint, Exported, Imported),
    *(QueuesUse, QueueUse, QuotaUse, TeamUse),
)
_ENUMS: dict[str, type[State] | type[Level]] = {"state": State, "level": Level}


def text() -> str:
    parts = [" ".join(_INTRO.split("\n")), "## Exit codes", table(("code", "means"), _EXIT_CODES)]
    for verb in verbs():
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        parts += _verb(f"launcher {verb}", command, 2)
        if verb in _PRINTS:
            what, made = _PRINTS[verb]
            link = "" if made is ObjectChange else f": [{made.__name__}](#{made.__name__.lower()})"
            parts.append(f"With `-o json` it prints {what}{link}.")
        elif verb in _IN_WORDS:
            parts.append(f"With `-o json` it prints: {_IN_WORDS[verb]}")
    parts.append("## Objects for scripts")
    for made in _CLASSES:
        parts += [f"### {made.__name__}", prose(made.__doc__), table(("key", "type"), _fields(made))]
    return page("The command", "launcher's own help texts", *parts)


def _verb(called: str, command: click.Command, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=called)
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    yield f"{'#' * level} {called.removeprefix('launcher ')}"
    yield f"```text\n{usage}\n```"
    yield re.sub(r"(--[a-z][a-z-]+)", r"`\1`", prose(command.help))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _verb(f"{called} {name}", inner, level + 1)
        return
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    if options:
        yield table(("option", "description"), (_option(option, context) for option in options))


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    takes = "" if option.is_flag else option.make_metavar(context)
    names = ", ".join(sorted(option.opts, key=len))
    return code(f"{names} {takes}".strip()), option.help or ""


def _fields(made: Any) -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(made):
        kind = _kind(str(field.type))
        if field.name in _ENUMS and field.type in ("State", "Level"):
            kind = "one of " + ", ".join(_ENUMS[field.name])
        yield code(field.name), cell(kind)


def _kind(annotation: str) -> str:
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "None": "null"}
    words |= {"State": "state"}
    found = []
    for part in annotation.split(" | "):
        listed = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", part)
        if listed:
            found.append(f"list of {words.get(listed[1], listed[1])}")
        elif part.startswith("Mapping"):
            found.append("map")
        else:
            found.append(words.get(part, part))
    return " or ".join(found)
