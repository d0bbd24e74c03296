"""The imports inside functions of the launcher and the trainer, and what each of them is for.

An import belongs to the top of its file. Inside a function it is allowed only if the module is slow to import, so that
the commands that do not need it start sooner. function_imports.toml lists these modules with the measured times, and
tests/unit/test_function_imports.py compares the list with the source.

`python -m tests.function_imports` measures the modules that the list lacks, writes the list, and fails if one of them
is fast; with `all`, it measures all modules. The time is the processor's, for the import after the file that imports
it: modules that the file needs anyway do not count.
"""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
OWN = ("launcher", "trainer")
_WITHOUT_MAXTEXT = ("trainer.evaluate", "trainer.generate", "trainer.inference", "trainer.weights.tokenizer")
# A faster import is not worth a place inside a function.
LEAST_MS = 2.0
# One measurement is enough, even if it includes the compilation to bytecode.
_CERTAINLY_SLOW_MS = 1000.0
_HEAD = """\
# The modules that functions of the launcher and the trainer import, and the milliseconds of each import: the least, if
# several files import the module. `python -m tests.function_imports all` measures them and writes this file.
"""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MEASURE = """\
import time
{first}
before = time.process_time()
{then}
print((time.process_time() - before) * 1000)
"""


@dataclass(frozen=True, order=True)
class Import:
    """An import of `module` inside a function, by `statement`, in the file of the module `importer`."""

    importer: str
    line: int
    module: str
    statement: str

    @property
    def listed_as(self) -> str:
        """The name in the list: a module of ours or of Python, otherwise a whole package."""
        root = self.module.partition(".")[0]
        return self.module if root in OWN or root in sys.stdlib_module_names else root


@functools.cache
def in_functions(root: Path = CHECKOUT) -> tuple[Import, ...]:
    """Return the imports inside functions of the packages in the folder `root`."""
    files = sorted(path for package in OWN for path in (root / package).rglob("*.py"))
    found = (
        Import(_module_of(path, root), node.lineno, module, ast.unparse(node))
        for path in files
        for node in set(_inside_functions(_parsed(path)))
        for module in _modules(node, root)
    )
    return tuple(sorted(found))


def loaded_before(each: Import, root: Path = CHECKOUT) -> bool:
    """Return whether the importing file has already imported the module, itself or through others of ours."""
    return each.module in _loaded_with(each.importer, root)


def listed() -> dict[str, float]:
    """Return the list: module -> milliseconds."""
    return dict(tomllib.loads(LIST.read_text(encoding="utf-8")))


def measure(each: Import, *, rounds: int = 3) -> float:
    """Return the milliseconds of processor time that the import takes: the least of at most `rounds` processes."""
    # As the trainer does before it imports MaxText. The modules that run a model with MLX do not import MaxText.
    maxtext = each.importer.startswith("trainer") and not each.importer.startswith(_WITHOUT_MAXTEXT)
    prepared = "from trainer.deferred_imports import defer_unused_imports as d; d(); " * maxtext
    code = _MEASURE.format(first=f"{prepared}import {each.importer}", then=each.statement)
    times: list[float] = []
    while len(times) < rounds and (not times or min(times) < _CERTAINLY_SLOW_MS):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},  # only the first process compiles to bytecode
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        times.append(float(done.stdout.split()[-1]))
    return min(times)


def main(arguments: list[str]) -> int:
    """Write the list. Return 1 if one of the measured imports belongs to the top of its file."""
    imports = in_functions()
    known = {} if arguments == ["all"] else listed()
    least = {module: ms for module, ms in known.items() if module in {each.listed_as for each in imports}}
    fast = []
    # The first import of each module in each file: the others are faster, and need the first.
    first = {(each.importer, each.listed_as): each for each in reversed(imports)}
    for each in sorted(one for one in first.values() if one.listed_as not in known):
        taken = measure(each)
        least[each.listed_as] = min(taken, least.get(each.listed_as, taken))
        if taken < LEAST_MS:
            fast.append(f"{each.importer}:{each.line}: {each.module} takes {taken:.1f} ms; import it at the top.")
        print(f"{taken:8.1f} ms {each.importer}:{each.line} {each.module}", file=sys.stderr, flush=True)
    rows = "".join(f'"{module}" = {ms:.0f}\n' for module, ms in sorted(least.items()))
    LIST.write_text(_HEAD + rows, encoding="utf-8")
    print("".join(f"{line}\n" for line in fast), end="")
    return 1 if fast else 0


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _inside_functions(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for function in ast.walk(tree):
        if isinstance(function, _FUNCTIONS):
            yield from (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))


def _at_the_top(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run with the file: not those of functions, nor those for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        elif not isinstance(child, _FUNCTIONS):
            yield from _at_the_top(child)


def _modules(node: ast.Import | ast.ImportFrom, root: Path) -> Iterator[str]:
    """Yield the modules that the statement imports; `from package import name` may import a module or a name in it."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    package = node.module or ""
    for alias in node.names:
        inner = f"{package}.{alias.name}"
        yield inner if _file_of(inner, root) is not None else package


def _file_of(module: str, root: Path) -> Path | None:
    path = root / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def _loaded_with(module: str, root: Path) -> frozenset[str]:
    """Return the modules that are loaded after `import module`: those that our files import at their top."""
    loaded: set[str] = set()
    new = [module]
    while new:
        name = new.pop()
        parts = name.split(".")
        for parent in (".".join(parts[: end + 1]) for end in range(len(parts))):
            if parent in loaded:
                continue
            loaded.add(parent)
            if (file := _file_of(parent, root)) is not None and parts[0] in OWN:
                new += [each for node in _at_the_top(_parsed(file)) for each in _modules(node, root)]
    return frozenset(loaded)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
