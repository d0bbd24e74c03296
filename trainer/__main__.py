"""python -m trainer --config run.json: train, in a Ray cluster, on this machine, or without Ray."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from pathlib import Path

from trainer import distributed, driver_supervisor, loop, ray_driver, stop_signal, storage_errors, user_command
from trainer.config import RunConfig, check, keep, read, read_from_job, replace_file
from trainer.errors import PASSING, ConfigError, RayStartTimeout, RestartsExhausted
from trainer.failures import describe
from trainer.metrics import TRY_AGAIN, event_line, now, print_event, write_event

_STOPPED = 3
# The file descriptor on which the supervisor of a local run reads the sentence that this process ends with.
_EXIT_MESSAGE = "SLIPWAY_EXIT_MESSAGE_FD"


def main() -> int:
    """Return the exit code. 0: trained to the last step. 1: any other error, which a restart may fix. 2: the config can
    never work. 3: a host received a stop signal, so start again."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, help="the run config, JSON")
    source.add_argument("--job-config", metavar="KEY", help="the run config is in the Ray job's metadata, under KEY")
    parser.add_argument("--check", action="store_true", help="check config and data, print a summary, do not train")
    parser.add_argument("--no-ray", action="store_true", help="this process is one host of the run (as in a JobSet)")
    arguments = parser.parse_args()
    # In an existing Ray cluster nothing else restarts a driver.
    supervised = bool(os.environ.get("RAY_ADDRESS")) and not arguments.no_ray and not arguments.check
    if supervised:
        code = driver_supervisor.supervise(lambda: _read(arguments).max_restarts)
        if code is not None:
            return code
    config: RunConfig | None = None
    try:
        config = _read(arguments)
        if config.command:
            if arguments.check:
                print("{}")  # noqa: T201 - there is no data
                return 0
            return _run_command(config, ray=not arguments.no_ray)
        if arguments.no_ray and not arguments.check:
            stop_signal.exit_on_sigterm_until_training(_STOPPED)
        summary = check(config)
        if arguments.check:
            print(json.dumps(summary))  # noqa: T201 - data for the caller
            return 0
        return _train(config, summary, ray=not arguments.no_ray)
    except ConfigError as error:
        _report(None if arguments.check else config, str(error))
        code = 2
    except RestartsExhausted as error:
        traceback.print_exc()
        _report(config, str(error))
        code = driver_supervisor.GAVE_UP if supervised else 1
    except Exception as error:
        if not supervised and not isinstance(error, OSError):
            raise
        traceback.print_exc()
        _report(config, describe(error))
        code = 1
    return code


def _read(arguments: argparse.Namespace) -> RunConfig:
    return read_from_job(arguments.job_config) if arguments.job_config else read(arguments.config.absolute())


def _run_command(config: RunConfig, *, ray: bool) -> int:
    try:
        if not ray:
            user_command.replace_process(config)
        user_command.run(config)
    except (ConfigError, RestartsExhausted):
        raise
    except Exception as error:
        traceback.print_exc()
        _report(config, describe(error))
        return 1
    return 0


def _train(config: RunConfig, summary: dict[str, object], *, ray: bool) -> int:
    try:
        _make_folder(config)
        keep(config)
        _same_data(config, summary)
        if loop.completed(config):
            print(f"{config.name} is already trained: the last step's checkpoint is in {config.folder}.")  # noqa: T201
            return 0
        if ray:
            ray_driver.run(config)
        else:
            loop.set_environment(config)
            distributed.initialize(config)
            loop.train(config)
    except (ConfigError, RestartsExhausted):
        raise
    except loop.PreemptedError as error:
        # A local run is not preempted, but cancelled by its user.
        kind = "stopped" if os.environ.get(_EXIT_MESSAGE) else "preempted"
        _report(config, str(error), kind, step=error.steps)
        return _STOPPED
    except RayStartTimeout as error:
        _report(config, str(error))
        return TRY_AGAIN
    except Exception as error:
        traceback.print_exc()
        _report(config, describe(storage_errors.named(error, config) or error))
        return 1
    return 0


def _make_folder(config: RunConfig) -> None:
    try:
        config.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in PASSING:
            raise
        raise ConfigError(
            f"Cannot create the run's folder {config.folder} (storage.mountPath): {error.strerror}."
        ) from error


def _same_data(config: RunConfig, summary: dict[str, object]) -> None:
    """Raise ConfigError if the data changed since the run started.

    A restart resumes at a position in the data, which is valid only for the same data. Another config (`--continue`)
    may name other data. The position then applies to the new list.
    """
    if not summary:
        return
    path = config.folder / "data.json"
    seen = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    if seen and seen["config"] == config.digest and seen["fingerprint"] != summary["fingerprint"]:
        raise ConfigError(
            f"The text files of {config.name} have changed since the run started (their names or sizes), so the run "
            f"cannot resume; restore them, or submit under a new name."
        )
    replace_file(path, {**summary, "config": config.digest, "time": now()})


def _report(config: RunConfig | None, sentence: str, event: str = "error", **fields: object) -> None:
    """Report the sentence that this process ends with: as an event, to a local run's supervisor, and in the log."""
    sentence = " ".join(sentence.split())  # one line, which readers find by its prefix
    if config is not None and config.folder.is_dir():
        # If the disk is full, the sentence goes to stderr only.
        with contextlib.suppress(OSError):
            write_event(config.folder, event, message=sentence, **fields)
    elif config is not None:
        print_event(event_line(event, message=sentence, **fields))
    if given := os.environ.get(_EXIT_MESSAGE):
        # In case the disk is full.
        with contextlib.suppress(OSError, ValueError):
            os.write(int(given), sentence.encode())
    with contextlib.suppress(OSError):
        print(f"Error: {sentence}", file=sys.stderr, flush=True)  # noqa: T201 - the message


if __name__ == "__main__":
    sys.exit(main())
