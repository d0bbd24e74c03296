"""The trainer, which prints the bytes of all arrays in memory: the most while it loads its state, and before the first
step.

`python -m tests.trainer.weighed --config …` takes the place of `python -m trainer`.
"""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx
from maxtext.utils import maxtext_utils

from trainer.__main__ import main

_replace = nnx.replace_by_pure_dict


def _bytes() -> int:
    return sum(array.nbytes for array in jax.live_arrays())


def _weigh() -> None:
    most = [0]

    def replace(*args: Any) -> Any:
        most[0] = max(most[0], _bytes())
        return _replace(*args)

    def training_state(*args: Any) -> Any:
        result = maxtext_utils.setup_initial_state(*args, True)
        print(f"weighed: {most[0]} {_bytes()}", flush=True)
        return result

    nnx.replace_by_pure_dict = replace
    maxtext_utils.setup_training_state = training_state


if __name__ == "__main__":
    _weigh()
    raise SystemExit(main())
