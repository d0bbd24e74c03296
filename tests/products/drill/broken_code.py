"""Copies of the code, in which a test breaks one guard of the product."""

from __future__ import annotations

import shutil
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def copy_of_the_code(folder: Path) -> Path:
    copy = folder / "code"
    for name in ("launcher", "trainer"):
        shutil.copytree(CHECKOUT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("charts", "values", "docs", "pyproject.toml"):
        (copy / name).symlink_to(CHECKOUT / name)
    # The package may be installed from the checkout, which the supervisor would import first.
    edit(copy / "launcher/backends/local/supervisor.py", "sys.path.append(str(", "sys.path.insert(0, str(")
    return copy


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file} has not one time: {old}"
    file.write_text(text.replace(old, new))
