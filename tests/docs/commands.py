"""Check a shown command without running it: its verb, options, files, values keys and make targets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import click

from launcher.cli.main import cli
from launcher.cli.verbs import verbs
from launcher.config.checks.rules import schema
from launcher.config.maxtext.keys import maxtext
from launcher.errors import LauncherError
from launcher.paths import find_values_file
from tests.docs.pages import CHECKOUT
from tests.docs.products import fleet_schema, gke_schema

# Programs that are not part of Slipway. Of their arguments, only files of the checkout are checked.
FOREIGN = (
    *("kubectl", "gcloud", "helm", "kind", "docker", "podman", "buildah", "git", "cd", "export", "python", "python3"),
    *("pip", "ls", "cat", "curl", "jq", "source", "envsubst", "eval", "ray", "rm", "mkdir", "cp", "sudo", "nvidia-smi"),
    *("uv", "pipx", "brew", "cosign", "sha256sum"),
)
_TOP = tuple(f"{path.name}/" for path in CHECKOUT.iterdir() if path.is_dir() and not path.name.startswith("."))
# A placeholder, which the reader replaces: <NAME>, $NAME, NAME in capitals, or an ellipsis.
_PLACEHOLDER = re.compile(r"[<$*]|…|\.\.\.|\b[A-Z][A-Z0-9_]{2,}\b")


def simple_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell script, without comments and redirections."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if word and set(word) <= set("();|&"):
                yield words
                words = []
            elif (word and set(word) <= set("<>&")) or words[-1:] == [">"]:
                words = words[:-1] if words[-1:] == [">"] else [*words, ">"]  # drop a redirection and its file
            else:
                words.append(word)
        yield words


def problems(text: str, files: Iterable[str] = ()) -> list[str]:
    """Return the problems of the commands of a shell block, one sentence each. The page creates `files`."""
    return [
        problem for words in simple_commands(text) for problem in _problems(_without_assignments(words), set(files))
    ]


def _without_assignments(words: list[str]) -> list[str]:
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return words


def _problems(words: list[str], files: set[str]) -> Iterator[str]:
    if not words:
        return
    program = words[0].rsplit("/", 1)[-1]
    for word in words[1:]:
        if word.startswith(_TOP) and not _PLACEHOLDER.search(word) and not (CHECKOUT / word).exists():
            yield f"{word} does not exist"
    if program == "launcher":
        yield from launcher_problems(words[1:], files)
    elif program == "make":
        makefile = (CHECKOUT / "Makefile").read_text()
        for target in words[1:]:
            if "=" not in target and not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE):
                yield f"make has no target {target}"
    elif program not in FOREIGN and not (CHECKOUT / words[0]).is_file():
        yield f"unknown program {words[0]}"


EXAMPLE = "teams"
"""The verb of the example package in docs/how-to/add-a-command.md, which tests/plugins installs and calls."""


def launcher_problems(arguments: list[str], files: set[str]) -> Iterator[str]:
    """Yield the problems of `launcher ARGUMENTS`, found by click's parser."""
    if not arguments or arguments[0].startswith("-"):
        return
    verb, rest = arguments[0], arguments[1:]
    if verb == EXAMPLE:
        return
    if verb not in verbs():
        yield f"launcher has no verb {verb}"
        return
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    while isinstance(command, click.Group):  # launcher image build
        if not rest or command.get_command(click.Context(command), rest[0]) is None:
            yield f"launcher {verb} has no {rest[0] if rest else 'such command'}"
            return
        command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
        assert command is not None
    try:
        # The parent is the group. Without it, click would forget the group's -h for the rest of the process.
        parent = click.Context(cli, **cli.context_settings)
        given: dict[str, Any] = command.make_context(verb, [word for word in rest if word != "…"], parent=parent).params
    except click.UsageError as error:
        yield f"launcher {verb}: {error.format_message()}"
        return
    except click.exceptions.Exit:  # --help
        return
    chart = given.get("chart") if given.get("chart") in ("queues", "ray-cluster") else "run"
    for file in given.get("files") or ():
        if file not in files and not _PLACEHOLDER.search(file):
            try:
                find_values_file(file)
            except LauncherError as error:
                yield error.message
    for assignment in (*(given.get("sets") or ()), *(given.get("sweeps") or ())):
        key = assignment.partition("=")[0]
        queues = chart == "queues" or verb == "simulate"
        if not is_key(key, "gke" if verb in ("cluster", "fleet") else "queues" if queues else "run"):
            yield f"unknown values key {key}"


@cache
def _sections(chart: str) -> dict[str, Any]:
    return dict(schema_of(chart)["properties"])


@cache
def schema_of(chart: str) -> dict[str, Any]:
    """Return the schema of a chart's values; for "gke", that of all files of a platform: cluster, queues and fleet."""
    if chart != "gke":
        return dict(schema(chart))
    queues = schema("queues")
    return {
        **queues,
        "properties": {**queues["properties"], **gke_schema()["properties"], **fleet_schema()["properties"]},
    }


def sections() -> set[str]:
    """Return the top-level keys of all values files."""
    return {*_sections("run"), *_sections("gke")} - {"global"}


def is_key(dotted: str, chart: str = "") -> bool:
    """Return whether the values of the chart (of any chart if "") have the key. A map by name accepts any name."""
    charts = (chart,) if chart else ("run", "gke")
    return any(_has({"properties": _sections(each)}, dotted.split(".")) for each in charts)


def _has(node: dict[str, Any], path: list[str]) -> bool:
    for at, key in enumerate(path):
        if path[:at] == ["train"] and at == 1:
            return len(path) == 2 and (key in maxtext()["keys"])
        if key in node.get("properties", {}):
            node = node["properties"][key]
        elif isinstance(node.get("additionalProperties"), dict):
            node = node["additionalProperties"]
        elif node.get("type") != "object" or "properties" in node:
            return False
    return True
