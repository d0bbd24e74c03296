"""trainer/deferred_imports.py: unused modules are not imported, and a used one is the real module."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

IMPORT = """
import sys
from trainer import deferred_imports as d
d.defer_unused_imports()
import maxtext.trainers.pre_train.train
from maxtext.input_pipeline import input_pipeline_interface, tokenizer
from maxtext.utils import elastic_utils
from maxtext.layers import engram
print([name for name in d._DEFERRED if type(sys.modules[name]) is not d._DeferredModule])
"""

# Code that uses a deferred module, and a part of what it prints.
USES = {
    "sympy": ("print(engram.sympy.isprime(7))", "True"),
    "class": ("print(tokenizer.transformers.AutoTokenizer.__class__.__name__)", "_Later"),
    "transformers": (
        "try:\n    tokenizer.transformers.AutoTokenizer.from_pretrained('/no/such/folder')\n"
        "except Exception as error:\n    print(type(sys.modules['transformers']).__module__, type(error).__name__)",
        "transformers.utils.import_utils",
    ),
    "pathways": ("print(elastic_utils.pathwaysutils.is_pathways_backend_used())", "False"),
    "missing": (
        "try:\n    sys.modules['cloud_accelerator_diagnostics'].tensorboard.create_instance()\n"
        "except Exception as error:\n    print(error)",
        "needs the Python package cloud_accelerator_diagnostics, which is not installed",
    ),
}


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """Import MaxText once, and return what the import and each use printed. No two uses share a module, except the two
    of transformers, of which the first does not import it."""
    end = "---"
    uses = "".join(f"\nprint({end!r})\n{code}" for code, _ in USES.values())
    return run(IMPORT + uses, HF_HUB_OFFLINE="1").split(f"{end}\n")


def test_nothing_that_is_deferred_is_imported_by_maxtext(printed: list[str]) -> None:
    assert printed[0].strip() == "[]"


@pytest.mark.parametrize("name", USES)
def test_a_used_module_is_the_real_one(name: str, printed: list[str]) -> None:
    assert USES[name][1] in printed[1 + list(USES).index(name)]


def test_with_pathways_nothing_is_deferred() -> None:
    code = "import sys\nfrom trainer.deferred_imports import defer_unused_imports\ndefer_unused_imports()\n"
    assert run(code + "print('transformers' in sys.modules)", JAX_PLATFORMS="proxy,cpu").strip() == "False"
