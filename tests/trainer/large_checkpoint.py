"""Writes a checkpoint with the shapes of Llama 3.1 8B and fewer layers, as Orbax lays it out, and measures its
export and import.

Run as a program: python -m tests.trainer.large_checkpoint FOLDER [LAYERS]. It prints JSON: seconds, and the peak memory
of the export's process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts

from trainer.config import read
from trainer.maxtext_keys import maxtext_folder
from trainer.weights import model, tensors

CHECKOUT = Path(__file__).parents[2]


def write(root: Path, layers: int, **sizes: int) -> tuple[Path, int]:
    """Write the run config and the checkpoint of step 0. Return the config and the bytes of the largest array.

    `sizes` are keys of `train` that make the model smaller.
    """
    tokenizer = maxtext_folder() / "assets" / "tokenizers" / "tokenizer_llama3.tiktoken"
    train = {"model_name": "llama3.1-8b", "override_model_config": True, "base_num_decoder_layers": layers, **sizes}
    tree = {
        "run": {"name": "large"},
        "slice": {"accelerator": "cpu"},
        "accelerator": {"name": "cpu", "kind": "cpu", "hosts": 1},
        "storage": {"mountPath": str(root)},
        "data": {"tokenizer": {"kind": "tiktoken", "path": str(tokenizer)}},
        "train": train,
    }
    config = root / "large.json"
    config.write_text(json.dumps(tree))
    items = root / "large" / "checkpoints" / "0" / "items"
    items.mkdir(parents=True)
    found: dict[str, Any] = {}
    largest = 0
    for array in tensors.arrays(model.read(read(config))):
        keys = array.name.split(".")
        found[str(tuple(keys))] = {"key_metadata": [{"key": key, "key_type": 2} for key in keys]}
        _write_array(items, array)
        largest = max(largest, array.elements * 4)
    (items / "_METADATA").write_text(json.dumps({"tree_metadata": found, "use_zarr3": True, "use_ocdbt": True}))
    return config, largest


def _write_array(items: Path, array: tensors.Array) -> None:
    """Write random numbers: one chunk, compressed by zstd, in a shard, as Orbax does for arrays of up to 2 GiB."""
    chunk = {"chunk_shape": list(array.shape)}
    metadata = {
        "shape": list(array.shape),
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": chunk},
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    **chunk,
                    "codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 3}}],
                    "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}],
                },
            }
        ],
    }
    base = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{items}/"}, "path": f"{array.name}/"}
    store = ts.open({"driver": "zarr3", "kvstore": base, "metadata": metadata}, create=True).result()
    block = np.random.default_rng(0).standard_normal(1 << 20, np.float32)
    store.write(np.resize(block, array.shape)).result()


_MEASURED = (
    "import sys\n"
    "from pathlib import Path\n"
    "from trainer.weights.__main__ import main\n"
    "code = main()\n"
    "[peak] = [line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM')]\n"
    "print(peak.split()[1])\n"
    "sys.exit(code)"
)
"""The program that converts, and prints its peak of resident memory in kB. The peak that getrusage returns is that of
the parent process if that is higher, because Linux counts the memory before exec."""


def measure(*arguments: str | Path) -> tuple[float, int]:
    """Run `python -m trainer.weights` with arguments. Return its seconds and its peak of resident memory in bytes."""
    started = time.monotonic()
    found = subprocess.run(
        [sys.executable, "-c", _MEASURED, *arguments], cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True
    )
    return time.monotonic() - started, int(found.stdout.splitlines()[-1]) * 1024


if __name__ == "__main__":
    root = Path(sys.argv[1])
    run, largest = write(root, int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    for arguments in (
        ("export", "--config", run, "--to", root / "exported"),
        ("import", "--config", run, "--from", root / "exported", "--to", root / "back"),
    ):
        seconds, peak = measure(*arguments)
        print(json.dumps({arguments[0]: round(seconds, 1), "peak": peak, "largest": largest}), flush=True)
    shutil.rmtree(root / "exported")
    shutil.rmtree(root / "back")
