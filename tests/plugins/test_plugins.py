"""Packages of other distributions add commands, and the core works without any."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.cli.verbs import verbs
from launcher.plugins import Product
from tests.tools import tool

CHECKOUT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).with_name("example")
PAGE = CHECKOUT / "docs/how-to/add-a-command.md"


def launcher(folder: Path, *arguments: str, checkout: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the launcher with the packages in `folder`, in the copy `checkout` if given."""
    path = [str(folder), *([str(checkout)] if checkout else [])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "SLIPWAY_HOME": str(folder / "home"), "KUBECONFIG": ""}
    env["SLIPWAY_HELM"] = str(tool("helm"))
    command = [sys.executable, "-m", "launcher", *arguments]
    return subprocess.run(command, cwd=checkout or folder, env=env, capture_output=True, text=True, check=False)


def register(folder: Path, name: str, value: str) -> None:
    """Install only the metadata of a distribution."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[slipway.commands]\n{name} = {value}\n")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), str(EXAMPLE)], check=True)
    return folder


def test_a_package_adds_a_command(installed: Path) -> None:
    shown = launcher(installed, "--help").stdout
    assert re.search(r"^Our platform:\n  teams +Count the runs of each team\.$", shown, re.MULTILINE), shown
    assert "launcher teams -o json" in launcher(installed, "teams", "--help").stdout
    run = ["submit", "quickstart", "--name", "one", "--set", "run.command={sh,-c,exit}"]
    assert launcher(installed, *run).returncode == 0
    done = launcher(installed, "teams", "--local", "-o", "json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, {"(no team)": 1}, "")


def test_the_page_shows_the_example() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in ("pyproject.toml", "slipway_teams/__init__.py", "slipway_teams/teams.py"):
        assert (EXAMPLE / name).read_text(encoding="utf-8") in page, f"{name} on the page differs from the example"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:PRODUCT", "No module named 'no_such_module'"),
        ("json:PRODUCT", "module 'json' has no attribute 'PRODUCT'"),
        ("json:dumps", "json:dumps is not a launcher.plugins.Product"),
    ],
)
def test_a_broken_package_is_named(tmp_path: Path, value: str, reason: str) -> None:
    register(tmp_path, "broken", value)
    done = launcher(tmp_path, "--help")
    assert done.returncode == 0
    expected = f'Warning: The package "broken" of commands is left out: {reason}.'
    assert done.stderr == f"{expected} Reinstall the package, or uninstall it.\n"
    assert launcher(tmp_path, "presets", "quickstart").stderr == ""  # a verb of the core needs no product


def test_a_command_that_exists_is_left_out(tmp_path: Path) -> None:
    code = "from launcher.plugins import Command, Product\n"
    code += 'PRODUCT = Product("Theirs", __name__, {"%s": Command("Do it.")})\n'
    for name, command in (("theirs", "simulate"), ("also", "submit")):
        (tmp_path / f"{name}.py").write_text(code % command)
        register(tmp_path, name, f"{name}:PRODUCT")
    done = launcher(tmp_path, "--help")
    assert "Theirs" not in done.stdout
    assert sorted(done.stderr.splitlines()) == [
        'Warning: The command "submit" of also is left out: the launcher has it.',
        'Warning: The package "theirs" is left out: another package has its command "simulate".',
    ]


def product(name: str) -> Product:
    found: Product = importlib.import_module(f"launcher.products.{name}.product").PRODUCT
    return found


def python(checkout: Path, *arguments: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def without(folder: Path, products: Sequence[str]) -> Path:
    """Copy the checkout without products. Return the copy."""
    copy = folder / "checkout"
    files = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    dropped = tuple(f"{place}/{name}/" for name in products for place in ("launcher/products", "tests/products"))
    for name in files.stdout.splitlines():
        if not name.startswith(dropped) and (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CHECKOUT / name, copy / name)
    return copy


RUN = ("--name", "demo", "--set", "image.repository=example.com/trainer", "--set", "storage.bucket=lab-runs")
_UNIT = ("plan", "values", "states", "explain_queue", "preflight", "unreadable_objects", "overlay_schema")
CORE_TESTS = ["tests/cli/test_values.py", *(f"tests/unit/test_{name}.py" for name in _UNIT)]
PRODUCTS = sorted(path.parent.name for path in (CHECKOUT / "launcher/products").glob("*/product.py"))
ALL = [*PRODUCTS, "common"]  # and what they share


def test_the_core_works_without_products(tmp_path: Path) -> None:
    works_without(tmp_path, ALL)


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_core_works_without_a_product(tmp_path: Path, name: str) -> None:
    works_without(tmp_path, [name])


def works_without(folder: Path, removed: Sequence[str]) -> None:
    """Check that their commands are gone; nothing else changes, and nothing warns."""
    copy = without(folder, removed)
    commands = {verb for name in removed if name in PRODUCTS for verb in product(name).commands}
    shown = launcher(copy, "--help", checkout=copy)
    listed = set(re.findall(r"^  ([a-z]+)  ", shown.stdout, re.MULTILINE))
    assert (shown.returncode, shown.stderr, listed) == (0, "", set(verbs()) - commands)
    code = "import pkgutil, importlib, launcher\n"
    code += "for each in pkgutil.walk_packages(launcher.__path__, 'launcher.'):\n"
    code += "    if not each.name.startswith('launcher.products.') and each.name != 'launcher.__main__':\n"
    code += "        importlib.import_module(each.name)\n"
    python(copy, "-c", code)


def test_a_product_names_the_one_that_it_needs(tmp_path: Path) -> None:
    copy = without(tmp_path, ["report"])
    done = launcher(copy, "simulate", "--help", checkout=copy)
    assert done.returncode == 1
    assert done.stderr.startswith(
        'Error: The command "simulate" needs the Python package launcher.products.report, which'
    )


def test_what_the_core_does_without_products(tmp_path: Path) -> None:
    copy = without(tmp_path, ALL)
    for verb in ("check", "render"):
        done = launcher(copy, verb, "tutorials/llama3-8b-v6e-16", *RUN, checkout=copy)
        assert done.returncode == 0, done.stderr
    done = launcher(copy, "submit", "quickstart", "--name", "one", "--set", "run.command={sh,-c,exit}", checkout=copy)
    assert done.returncode == 0, done.stderr
    assert launcher(copy, "list", "-o", "json", checkout=copy).returncode == 0
    done = launcher(copy, "submit", "quickstart", "--sweep", "train.steps=1,2", checkout=copy)
    assert "Error: No installed package of the launcher has commands for sweeps" in done.stderr
    done = launcher(copy, "list", "--models", checkout=copy)
    assert "Error: No installed package of the launcher serves models" in done.stderr
    done = launcher(copy, "list", "--clusters", checkout=copy)
    assert "Error: No installed package of the launcher has long-lived Ray clusters" in done.stderr
    done = launcher(copy, "report", "one", checkout=copy)
    assert (done.returncode, "No such command 'report'" in done.stderr) == (2, True)
    done = launcher(copy, "doctor", "-f", "clusters/gke-standard", checkout=copy)
    assert "Error: No installed package of the launcher creates clusters" in done.stderr


def test_the_tests_of_the_core_pass_without_products(tmp_path: Path) -> None:
    """Those of a few of its packages. The others are collected: to run them takes minutes."""
    copy = without(tmp_path, ALL)
    python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "tests/cli", "tests/unit")
    python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE_TESTS)
