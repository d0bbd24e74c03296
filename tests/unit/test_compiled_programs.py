"""The cache of compiled programs between test runs never returns a wrong, another machine's, or a partial program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import compiled_programs
from tests.compiled_programs import SUFFIX, folder, kept, key

COMPILE = """
import sys
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
print(float(jax.jit(lambda x: x {operation})(3.0)))
"""


def compile_and_run(runs: Path, operation: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COMPILE.format(operation=operation), str(runs / ".jax_cache")],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))


def entries(place: Path) -> set[str]:
    return {entry.name for entry in place.glob(f"*{SUFFIX}")}


def test_a_program_is_kept_and_another_one_is_another_entry(tmp_path: Path) -> None:
    with kept(tmp_path / "first"):
        assert compile_and_run(tmp_path / "first", "* 2") == "6.0\n"
    before = entries(folder())
    assert before
    with kept(tmp_path / "second"):
        assert entries(tmp_path / "second" / ".jax_cache") == before
        assert compile_and_run(tmp_path / "second", "* 2") == "6.0\n"
        assert entries(tmp_path / "second" / ".jax_cache") == before  # it was read from the cache
        assert compile_and_run(tmp_path / "second", "+ 2") == "5.0\n"
    assert entries(folder()) > before


def test_an_entry_that_is_cut_short_is_not_kept(tmp_path: Path) -> None:
    with kept(tmp_path / "runs"):
        compile_and_run(tmp_path / "runs", "* 2")
        whole = entries(tmp_path / "runs" / ".jax_cache")
        (entry, *_) = (tmp_path / "runs" / ".jax_cache").glob(f"*{SUFFIX}")
        data = entry.read_bytes()
        for size in (0, 1, len(data) // 2, len(data) - 1):
            entry.with_name(f"half-{size}{SUFFIX}").write_bytes(data[:size])
    assert entries(folder()) == whole
    assert {each.name for each in folder().iterdir()} == whole  # no temporary file is left


@pytest.mark.parametrize(
    ("processor", "packages"), [("avx2", b"jax==1"), ("avx2 avx512f", b"jax==2"), ("avx2", b"jax==2"), ("", b"")]
)
def test_another_processor_or_package_has_a_folder_of_its_own(processor: str, packages: bytes) -> None:
    assert key(processor, packages) != key("avx2 avx512f", b"jax==1")


def test_the_packages_of_this_checkout_name_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = folder()
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "constraints.txt").write_text("jax==0.0.1\n")
    monkeypatch.setattr(compiled_programs, "CHECKOUT", tmp_path)
    assert folder() != here
