"""Writes the batches that a run evaluates, as MaxText reads, tokenizes and packs them.

Run as a program: python -m tests.trainer.held_out RUN.json BATCHES.npz.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(path: Path, out: Path) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    from trainer import deferred_imports
    from trainer.config import read
    from trainer.maxtext_keys import maxtext_argv

    deferred_imports.defer_unused_imports()
    from maxtext.configs import pyconfig
    from maxtext.input_pipeline import grain_data_processing
    from maxtext.utils import maxtext_utils

    from trainer import data

    run = read(path)
    config = pyconfig.initialize(maxtext_argv(run))

    def documents(*_: Any, **options: Any) -> Any:
        assert run.corpus is not None
        return data.train_dataset(
            run.corpus,
            held_out=True,
            host_index=0,
            host_count=1,
            shuffle=False,
            seed=options["shuffle_seed"],
            epochs=None,
        )

    grain_data_processing.get_datasets = documents
    mesh = maxtext_utils.get_mesh_from_config(config)
    batches = grain_data_processing.make_grain_eval_iterator(config, mesh, [0])
    rows: dict[str, list[np.ndarray[Any, Any]]] = {
        "inputs": [],
        "targets": [],
        "inputs_segmentation": [],
        "targets_segmentation": [],
    }
    for _, batch in zip(range(config.eval_steps), batches, strict=False):
        for name, each in rows.items():
            each.append(np.asarray(batch[name]))
    np.savez(out, **{name: np.concatenate(each) for name, each in rows.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
