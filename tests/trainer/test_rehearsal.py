"""What is read before the fork is what MaxText would read after it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.trainer.runs import CHECKOUT

PROGRAM = """
import json, os, pathlib, sys
from unittest import mock
from trainer import config, deferred_imports, loop, maxtext_setup, rehearsal
from trainer.maxtext_keys import maxtext_argv

run = config.read(pathlib.Path(sys.argv[1]))
loop.set_environment(run)
deferred_imports.import_training()
from jax._src import xla_bridge
from maxtext.configs import pyconfig
from maxtext.input_pipeline import tokenizer
from maxtext.trainers.pre_train import train

def keys(argv):
    os.environ.pop("XLA_FLAGS", None)  # MaxText sets it, and another config depends on it
    with mock.patch.object(pyconfig.omegaconf.OmegaConf, "load", wraps=pyconfig.omegaconf.OmegaConf.load) as load:
        read = maxtext_setup.initialize(train, argv)[0]
    return load.call_count, {key: repr(value) for key, value in read.get_keys().items()}

argv = maxtext_argv(run)
rehearsal.rehearse(argv)
assert not xla_bridge.backends_are_initialized(), "the chips belong to the process that trains"
from_memory, rehearsed = keys(argv)
from_files, again = keys(argv)
other = keys([*argv, "per_device_batch_size=3.0"])
path = maxtext_argv(run)
place = next(each.partition("=")[2].strip(chr(34)) for each in argv if each.startswith("tokenizer_path="))
one, two = (tokenizer.build_tokenizer(place, "sentencepiece", False, True, None) for _ in range(2))
different = [key for key in again if rehearsed[key] != again[key]]
batch = other[1]["per_device_batch_size"]
print(json.dumps([from_memory, from_files, other[0], different, batch, one is two]))
"""


def test_a_config_is_that_of_its_files_and_is_read_once(tmp_path: Path) -> None:
    tree = {
        "run": {"name": "rehearsed", "kind": "local", "maxRestarts": 2, "command": []},
        "slice": {"accelerator": "cpu", "count": 1, "hosts": 1},
        "accelerator": {"name": "cpu", "kind": "cpu", "hosts": 1, "chips": 1, "chipsPerHost": 1},
        "storage": {"kind": "local", "mountPath": str(tmp_path)},
        "data": {"corpus": "python", "heldOut": {"fraction": 0.02}, "tokenizer": {"kind": "sentencepiece", "path": ""}},
        "train": {"model_name": "llama2-7b", "steps": 3, "per_device_batch_size": 2, "max_target_length": 64},
    }
    (tmp_path / "run.json").write_text(json.dumps(tree))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "run.json")],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=CHECKOUT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # From the files: base.yml, and the model's.
    assert json.loads(done.stdout.splitlines()[-1]) == [0, 2, 2, [], "3.0", True]
