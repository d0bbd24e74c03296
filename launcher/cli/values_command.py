"""Verbs that take values files without -f, too: `launcher submit mine.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click

from launcher.cli.completion import values_files
from launcher.paths import CHARTS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_ENDINGS = (".yaml", ".yml", ".json")


class ValuesCommand(click.Command):
    """A verb with the option -f. Each argument that is a values file gets the option before it is parsed.

    So the files keep their order, with and without -f. If the verb also takes a chart and a release, the chart's name
    is an argument, and the word after it is the release, unless it looks like a file.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and args and self._takes_next(args[-1]):
            args = args[:-1]  # its value is being completed; click would drop the other arguments
        return super().parse_args(ctx, list(self._with_option(args)))

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[FILE]..."]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            return items
        return [*items, *values_files(ctx, None, incomplete)]

    def _with_option(self, args: list[str]) -> Iterator[str]:
        words = 0
        only_words = False
        rest = iter(args)
        for argument in rest:
            if argument == "--" and not only_words:
                only_words = True
            elif argument.startswith("-") and argument != "-" and not only_words:
                yield argument
                if self._takes_next(argument):
                    yield from islice(rest, 1)
            elif self._is_file(argument, words):
                yield from ("-f", argument)
            else:
                words += 1
                yield argument

    def _takes_next(self, argument: str) -> bool:
        """Return whether the value of the option, or of the last of several short ones, is the next argument."""
        takes_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        if argument.startswith("--"):
            return argument in takes_value
        letters = [f"-{letter}" in takes_value for letter in argument[1:]]
        return any(letters) and letters.index(True) == len(letters) - 1

    def _is_file(self, word: str, words: int) -> bool:
        """Return whether a word is a values file; `words` is the number of arguments before it that are not."""
        arguments = [param for param in self.params if isinstance(param, click.Argument)]
        if words >= len(arguments):
            return True
        if words == 0:
            return not arguments[0].required and word not in CHARTS
        return word == "-" or "/" in word or word.endswith(_ENDINGS)
