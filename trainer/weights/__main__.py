"""python -m trainer.weights export|import: from a checkpoint to Hugging Face format, and back."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from trainer.config import read
from trainer.errors import ConfigError, DownloadError
from trainer.failures import describe
from trainer.weights import exporting, importing, safetensors_files


def main() -> int:
    """Return the exit code. 0: the folder is there. 2: the user must change something. 1: any other error.

    The last line on stdout is a JSON summary.
    """
    parser = argparse.ArgumentParser(prog="python -m trainer.weights", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="write a checkpoint as a folder in Hugging Face format")
    export.add_argument("--config", type=Path, required=True, help="the run config: run.json in the run's folder")
    export.add_argument("--checkpoint", type=Path, help="the folder `checkpoints`, if it is not in the run's folder")
    export.add_argument("--step", type=int, help="the checkpoint's step (default: the last whole one)")
    export.add_argument("--to", type=Path, required=True, help="the folder to create")
    export.add_argument("--dtype", choices=sorted(safetensors_files.NAMES), default="float32")
    export.add_argument("--merge", action="store_true", help="of a run with adapters: write a whole model")
    export.add_argument("--facts", type=Path, help="JSON for the model card: losses and data")
    back = commands.add_parser("import", help="write a folder in Hugging Face format as weights to start a run from")
    back.add_argument("--config", type=Path, required=True, help="the run config of the run that will use the weights")
    back.add_argument("--from", dest="source", required=True, help="the folder, or hf:ORG/NAME")
    back.add_argument("--to", type=Path, required=True, help="the folder to create, with the folder items in it")
    arguments = parser.parse_args()
    # Without PyTorch, which a tokenizer does not need, transformers prints a warning when it is imported.
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
    # A pod that is deleted gets SIGTERM. The temporary folder is removed on the way out.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        summary = _run(arguments)
    except ConfigError as error:
        _report(str(error))
        return 2
    except DownloadError as error:
        _report(str(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        traceback.print_exc()
        _report(describe(error))
        return 1
    print(json.dumps(summary), flush=True)  # noqa: T201 - data for the caller
    return 0


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    config = read(arguments.config.absolute())
    destination = arguments.to.resolve()  # Path.absolute keeps "..", which TensorStore rejects
    if arguments.command == "import":
        return importing.import_(config, source=arguments.source, destination=destination)
    return exporting.export(
        config,
        checkpoints=arguments.checkpoint and arguments.checkpoint.absolute(),
        step=arguments.step,
        destination=destination,
        dtype=arguments.dtype,
        facts=_facts(arguments.facts),
        merge=arguments.merge,
    )


def _facts(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--facts: {path} is not a readable JSON file.") from error
    if not isinstance(facts, dict):
        raise ConfigError(f"--facts: {path} is not a JSON object.")
    return facts


def _report(sentence: str) -> None:
    print(f"Error: {' '.join(sentence.split())}", file=sys.stderr, flush=True)  # noqa: T201 - the message


if __name__ == "__main__":
    sys.exit(main())
