"""The words that a shell completes: values files and presets, the keys of values; and the scripts for bash and zsh."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from launcher.paths import CHARTS, presets

if TYPE_CHECKING:
    import click


def values_files(_ctx: click.Context, _param: click.Parameter | None, incomplete: str) -> list[CompletionItem]:
    """Return the presets that begin with the word, a folder at a time; the shell itself completes files."""
    return [CompletionItem(incomplete, type="file"), *_items(presets(), incomplete, "/")]


def charts_and_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the charts that begin with the word, and values files."""
    charts = [CompletionItem(chart) for chart in CHARTS if chart.startswith(incomplete)]
    return [*charts, *values_files(ctx, param, incomplete)]


def value_keys(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the keys of values that begin with the word, a level at a time, and after a key and "=" its choices.

    Keys end with "=" or ".".
    """
    from launcher.config.checks.rules import OWNED, maxtext, schema

    chart = ctx.params.get("chart") or "run"
    key, given, _ = incomplete.partition("=")
    if given:
        choices = _choices(key, schema(chart), maxtext())
        return [CompletionItem(word) for word in (f"{key}={each}" for each in choices) if word.startswith(incomplete)]
    keys = list(_keys(schema(chart)))
    if chart == "run":
        keys += (f"train.{key}=" for key in maxtext()["keys"] if key not in OWNED)
    return _items(keys, incomplete, ".")


def _items(names: Iterable[str], incomplete: str, separator: str) -> list[CompletionItem]:
    completed: dict[str, None] = {}
    for name in names:
        if name.startswith(incomplete):
            head, more, _ = name[len(incomplete) :].partition(separator)
            completed[incomplete + head + more] = None
    return [CompletionItem(each) for each in completed]


def _keys(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, child in schema.get("properties", {}).items():
        if child.get("properties"):
            yield from _keys(child, f"{above}{key}.")
        elif key != "global":
            yield f"{above}{key}." if child.get("type") == "object" else f"{above}{key}="


def _choices(key: str, schema: Mapping[str, Any], maxtext: Mapping[str, Any]) -> Iterable[str]:
    section, _, name = key.partition(".")
    if key == "train.model_name":
        return list(maxtext["models"])
    node: Any = schema
    for part in key.split("."):
        node = node.get("properties", {}).get(part, {})
    row = maxtext["keys"].get(name, {}) if section == "train" else {}
    flag = node.get("type") == "boolean" or "bool" in row.get("types", ())
    return node.get("enum") or row.get("values") or (("true", "false") if flag else ())


class Bash(BashComplete):
    """click's completion, with files and presets in one list, and no space after "/", "." and "=".

    Bash separates KEY=VALUE at "=", and completes only what is after it.
    """

    def source(self) -> str:
        return Path(__file__).with_suffix(".bash").read_text(encoding="utf-8") % self.source_vars()


class Zsh(ZshComplete):
    """click's completion, with no space after "/", "." and "="."""

    source_template = ZshComplete.source_template.replace(
        "compadd -U -V unsorted -a completions",
        "local -a open=(${(M)completions:#*[/.=]}) closed=(${completions:#*[/.=]})\n"
        "        compadd -U -V unsorted -S '' -a open\n"
        "        compadd -U -V unsorted -a closed",
    )


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": FishComplete}
