"""The size of the launcher and the trainer in lines of code, and how much of it a command can reach by imports.

`python -m tests.size` prints the packages, the products and the closures, and fails if one is larger than in LIMITS.
A line of code is a line with a token that is not a comment or a docstring. The closure of a command is every module of
ours that an import statement can reach from it: those inside functions too, and the packages of each module, but not
those for type checkers only. A name of launcher.api reaches its module. A product that registers itself by name is
not reached.
"""

from __future__ import annotations

import ast
import functools
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from launcher import api

CHECKOUT = Path(__file__).parents[1]
PRODUCTS = "launcher.products"
COMMANDS = "launcher.cli.commands"
LIMITS = {"core": 18_000, "submit": 12_200, "status": 6_460, "launcher and trainer": 56_660}
"""The most lines of code. Lower a number when the size falls."""
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@functools.cache
def modules(root: Path = CHECKOUT) -> dict[str, Path]:
    """Return the files of the launcher and the trainer by the name of their module."""
    found = {}
    for path in sorted((*root.glob("launcher/**/*.py"), *root.glob("trainer/**/*.py"))):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@functools.cache
def lines(path: Path) -> int:
    """Return the lines of code of a file."""
    text = path.read_text(encoding="utf-8")
    strings = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr))
    docstrings = {
        line
        for node in strings
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = (token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in _BLANK)
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docstrings)


def product_of(module: str) -> str:
    """Return the product that a module belongs to; "" if it is of the core."""
    return module.removeprefix(f"{PRODUCTS}.").partition(".")[0] if module.startswith(f"{PRODUCTS}.") else ""


@functools.cache
def imports(path: Path, root: Path = CHECKOUT) -> frozenset[str]:
    """Return our modules that a file can import."""
    known, found = modules(root), set()
    for node in _run_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "api":
            found.add(api.HOMES.get(node.attr, ""))
    return frozenset(found & known.keys())


def closure(start: str, root: Path = CHECKOUT) -> set[str]:
    """Return the modules that an import can reach from a module, with itself."""
    known, found, left = modules(root), set[str](), [start]
    while left:
        module = left.pop()
        if module not in found and module in known:
            found.add(module)
            parts = module.split(".")
            left += [".".join(parts[:end]) for end in range(1, len(parts))]
            left += imports(known[module], root) - found
    return found


def sizes(root: Path = CHECKOUT) -> dict[str, int]:
    """Return the lines of code of the core, of each product, and of the whole, and of the closures of LIMITS."""
    size = {module: lines(path) for module, path in modules(root).items()}
    launcher = {module: count for module, count in size.items() if module.split(".")[0] == "launcher"}
    total = Counter[str]()
    for module, count in launcher.items():
        total[product_of(module) or "core"] += count
    reached = {
        verb: sum(size[module] for module in closure(f"{COMMANDS}.{verb}", root)) for verb in ("submit", "status")
    }
    return {**dict(total.most_common()), **reached, "launcher and trainer": sum(size.values())}


def packages(root: Path = CHECKOUT) -> Counter[str]:
    """Return the lines of code of each package of the core: the modules of the folder itself, without its packages."""
    total = Counter[str]()
    for module, path in modules(root).items():
        if module.split(".")[0] == "launcher" and not product_of(module):
            total[".".join(path.relative_to(root).parent.parts)] += lines(path)
    return total


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that can run: not those below `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _run_nodes(child)


def main() -> int:
    """Print the sizes, and return 1 if one is above its limit."""
    found = sizes()
    for package, count in packages().most_common():
        print(f"{count:8,} {package}")
    print()
    for name, count in found.items():
        print(f"{count:8,} {name}" + (f" (at most {LIMITS[name]:,})" if name in LIMITS else ""))
    above = [name for name, limit in LIMITS.items() if found[name] > limit]
    print("".join(f"The size of {name} is above its limit in tests/size.py.\n" for name in above), end="")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
