"""python -m trainer --config run.json: train, in a Ray cluster, on this machine, or without Ray."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from trainer import (
    distributed,
    driver_supervisor,
    kept_output,
    log_keeper,
    loop,
    prepared,
    ray_driver,
    resume,
    spares,
    stop_signal,
    storage_errors,
    user_command,
)
from trainer.checks import check, keep_data_sets
from trainer.config import RunConfig, keep, read, read_from_job, replace_file
from trainer.errors import PASSING, ConfigError, DownloadError, RayStartTimeout, RestartsExhausted
from trainer.failures import EXIT_MESSAGE, describe, give_up, is_repeated, report
from trainer.metrics import TRY_AGAIN, now
from trainer.reporting.process import finish, of_process
from trainer.starting_weights import keep_base
from trainer.stop_signal import STOPPED
from trainer.weights import adapters


def main() -> int:
    """Return the exit code. 0: trained to the last step. 1: any other error, which a restart may fix. 2: the config can
    never work. 3: a host received a stop signal, so start again."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, help="the run config, JSON")
    source.add_argument("--job-config", metavar="KEY", help="the run config is in the Ray job's metadata, under KEY")
    parser.add_argument("--check", action="store_true", help="check config and data, print a summary, do not train")
    parser.add_argument("--check-step", action="store_true", help="with --check, also trace the train step")
    parser.add_argument("--no-ray", action="store_true", help="this process is one host of the run (as in a JobSet)")
    arguments = parser.parse_args()
    # In an existing Ray cluster nothing else restarts a driver.
    supervised = bool(os.environ.get("RAY_ADDRESS")) and not arguments.no_ray and not arguments.check
    host = arguments.no_ray and not arguments.check
    kept = _kept(arguments, host=host) if supervised or host else None
    if supervised:
        code = driver_supervisor.supervise(lambda: _read(arguments).max_restarts, kept)
        if code is not None:
            return code
    elif kept is not None:
        code = driver_supervisor.keep_output(kept)
        if code is not None:
            return code
    config: RunConfig | None = None
    final, failure = False, ""
    try:
        config = _read(arguments)
        if config.command:
            if arguments.check:
                print("{}")  # noqa: T201 - there is no data
                return 0
            return _run_command(config, ray=not arguments.no_ray)
        if host:
            stop_signal.exit_on_sigterm_until_training(STOPPED, supervised=kept is not None)
        if host and spares.are_wanted():
            ended, failure = prepared.fork(config)
            if ended is not None:
                return ended
            stop_signal.exit_on_sigterm_until_training(STOPPED, supervised=kept is not None)
        summary = check(config)
        adapters.check(config)
        if arguments.check:
            if arguments.check_step:
                from trainer import step_check

                for refusal in (refused := step_check.refusals(config)):
                    report(None, refusal)
                if refused:
                    return 2
            print(json.dumps(summary))  # noqa: T201 - data for the caller
            return 0
        notifications = of_process(config)
        if failure:
            notifications.on_event("worker_failed", {"message": failure})
        code = _train(config, summary, ray=not arguments.no_ray)
    except ConfigError as error:
        report(None if arguments.check else config, str(error))
        code = 2
    except RestartsExhausted as error:
        traceback.print_exc()
        report(config, str(error))
        final = True
        code = driver_supervisor.GAVE_UP if supervised else 1
    except Exception as error:
        if not supervised and not isinstance(error, OSError | DownloadError):
            raise
        traceback.print_exc()
        report(config, describe(error))
        code = 1
    if config is not None and not arguments.check:
        _finish(config, code, ray=not arguments.no_ray, final=final)
    return code


def _finish(config: RunConfig, code: int, *, ray: bool, final: bool) -> None:
    """Write the end to the record, and notify, from the driver or the first host. A run without Ray has not begun."""
    if code == TRY_AGAIN or config.command or not (ray or loop.is_first(config)):
        return
    local = config.is_local
    end = {0: "succeeded", STOPPED: "stopped" if local else "preempted"}.get(code, "failed")
    last = local and config.max_restarts == 0
    finish(config, end, final=final or code in (0, 2) or (local and code == STOPPED) or last)


def _read(arguments: argparse.Namespace) -> RunConfig:
    return read_from_job(arguments.job_config) if arguments.job_config else read(arguments.config.absolute())


def _kept(arguments: argparse.Namespace, *, host: bool) -> log_keeper.Settings | None:
    """Return where the output of this process is kept; None if it is not kept, or if the config is invalid."""
    try:
        config = _read(arguments)
        source = kept_output.HOST.format(distributed.host_index(config)) if host else kept_output.DRIVER
        return kept_output.settings(config, source)
    except ConfigError:  # reported below
        return None


def _run_command(config: RunConfig, *, ray: bool) -> int:
    try:
        if not ray:
            user_command.replace_process(config)
        user_command.run(config)
    except (ConfigError, RestartsExhausted):
        raise
    except Exception as error:
        traceback.print_exc()
        report(config, describe(error))
        return 1
    return 0


def _train(config: RunConfig, summary: dict[str, object], *, ray: bool) -> int:
    try:
        _make_folder(config)
        resume.check(config)
        completed = loop.completed(config)
        keep(config)
        keep_base(config)
        keep_data_sets(config)
        _same_data(config, summary)
        if left_out := summary.get("left_out"):
            print(left_out, flush=True)  # noqa: T201 - the log
        if completed:
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
        kind = "stopped" if os.environ.get(EXIT_MESSAGE) else "preempted"
        report(config, str(error), kind, step=error.steps)
        return STOPPED
    except RayStartTimeout as error:
        report(config, str(error))
        return TRY_AGAIN
    except Exception as error:
        named = storage_errors.named(error, config) or error
        if isinstance(named, ConfigError):
            raise named from error
        traceback.print_exc()
        sentence = describe(named)
        if loop.is_first(config) and is_repeated(config, {0: named}):
            raise ConfigError(give_up(config, sentence)) from error
        report(config, sentence)
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


def _leave(code: int) -> NoReturn:
    """Exit. After a failure without Ray, this does not wait for threads.

    Those of Orbax wait 300 s for the files of a checkpoint whose folder could not be created.
    """
    if code in (1, 2) and "--no-ray" in sys.argv:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _leave(main())
