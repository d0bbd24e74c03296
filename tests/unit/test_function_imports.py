"""Only modules that are slow to import are imported inside functions: tests/function_imports.py."""

from __future__ import annotations

from pathlib import Path

from tests.function_imports import LIST, in_functions, listed, loaded_before

_REMEDY = f"Import it at the top of the file. If it is slow, python -m tests.function_imports lists it in {LIST.name}"


def test_each_import_inside_a_function_is_measured() -> None:
    known = listed()
    found = {f"{each.importer}:{each.line}: {each.module}" for each in in_functions() if each.listed_as not in known}
    assert found == set(), _REMEDY


def test_no_import_inside_a_function_repeats_one_at_the_top() -> None:
    found = {f"{each.importer}:{each.line}: {each.module}" for each in in_functions() if loaded_before(each)}
    assert found == set(), "These modules are already loaded when the function runs: import them at the top of the file"


def test_what_counts_as_inside_a_function(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "launcher" / "k8s").mkdir(parents=True)
    (tmp_path / "launcher" / "k8s" / "__init__.py").write_text("import re\n")
    (tmp_path / "launcher" / "k8s" / "client.py").write_text("import math\n")
    (tmp_path / "launcher" / "verbs.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from launcher.k8s import client\n"
        "if TYPE_CHECKING:\n"
        "    import decimal\n"
        "class Verb:\n"
        "    async def run(self):\n"
        "        import re, math, decimal\n"
        "        from launcher.k8s import client, Unknown\n"
        "        from rich.live import Live\n"
    )
    found = {each.module: each for each in in_functions(tmp_path)}
    assert {module: loaded_before(each, tmp_path) for module, each in found.items()} == {
        "re": True,  # with the package launcher.k8s
        "math": True,  # with launcher.k8s.client
        "decimal": False,  # only for type checkers
        "launcher.k8s.client": True,
        "launcher.k8s": True,
        "rich.live": False,
    }
    assert found["rich.live"].listed_as == "rich"
    assert found["launcher.k8s.client"].line == 8
