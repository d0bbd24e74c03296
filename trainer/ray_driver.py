"""Trains under Ray Train's JaxTrainer: one worker per host, all restarted together when one fails.

If a node of the run or the driver must stop, all workers write a checkpoint after the same step and return
(trainer/stop_signal.py). Ray Train sees a finished run. This module starts it again on other nodes, or ends.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import deferred_imports, kept_output, loop, spares, worker_exits
from trainer.config import RunConfig
from trainer.control_channel import ControlChannel
from trainer.errors import ConfigError, RayStartTimeout, RestartsExhausted
from trainer.failures import describe, give_up, is_repeated, report, what_failed, what_follows
from trainer.metrics import TRY_AGAIN, write_event
from trainer.reporting.process import of_process
from trainer.run_log import announce
from trainer.stop_signal import StopSignal

if TYPE_CHECKING:
    from ray.train import ScalingConfig

_LOOPBACK = "127.0.0.1"
_SECONDS_TO_ABORT = 30
# Ray forwards worker output within a second; output not yet forwarded when the driver exits is lost.
_LOG_DRAIN_SECONDS = 1.5
# A worker reports its first step up to a quarter of a second later (trainer/stop_signal.py), and Ray's control plane
# may be busy. A run that is stopped at its first step would otherwise end without a checkpoint.
_SECONDS_TO_REPORT_A_STEP = 2.0
# A socket's path has at most 107 characters; Ray adds at most 80, such as
# "/ray-12345678/r/session_2026-11-23_01-16-51_078267_4194304/sockets/plasma_store".
_LONGEST_PARENT = 107 - 80
# The part of the time for the last checkpoint that the end of the run needs.
_SHUTDOWN_SECONDS = 2.0
# Ray starts in 2 s here, and in 67 s on a machine with a load of 40.
_LONGEST_START = 180


def prepare_environment() -> bool:
    """Set the variables that Ray reads at import. Returns True if this process starts its own Ray on this machine.

    An existing Ray cluster (RAY_ADDRESS, as in a RayJob's driver) is used unchanged. A Ray of this process gets a new
    token, which only this process and those that it starts have, in their environment.
    """
    local = not os.environ.get("RAY_ADDRESS")
    defaults = {
        # Lines of two hosts that differ only in their numbers are not duplicates.
        "RAY_DEDUP_LOGS": "0",
        "RAY_COLOR_PREFIX": "0",
        # Otherwise each line of a worker appears twice, once as a log record.
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Notice the end or the loss of a worker within a second; Ray Train's default is two.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
    }
    if not local:
        # A pod that must end is delayed for a few seconds, in which Ray Train must detect it.
        defaults["RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S"] = "1"
    if local:
        # Ray binds to the machine's own address, open to its network, unless it assumes that clusters
        # are unsupported here; then it uses loopback.
        defaults["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        # Look for new log files twice a second. Ray does so ten times a second up to this number of files, and the
        # training needs the processor.
        defaults["RAY_LOG_MONITOR_MANY_FILES_THRESHOLD"] = "0"
        # Nodes of one machine are not preempted.
        defaults["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"
        # Ray waits a minute for its control plane to return, but on one machine nothing restarts it.
        # The sooner this process ends, the sooner its supervisor restarts it.
        defaults["RAY_gcs_rpc_server_reconnect_timeout_s"] = "5"
        # Other users of this machine reach Ray's ports, too. By default, Ray would store one token for all runs in
        # ~/.ray/auth_token, which other users can read if they can read the home folder.
        defaults["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    return local


def private_folder() -> Path:
    """Create a folder for the sockets and logs of this machine's Ray, which only this user can enter.

    Ray opens its own folder to all users. Other users could read the output of a run there, and replace the sockets by
    which Ray's processes connect. So Ray gets a folder below this one. Its name is short, because the path of a socket
    has at most 107 characters.
    """
    from ray._common.utils import get_default_system_temp_dir

    parent = get_default_system_temp_dir()
    return Path(tempfile.mkdtemp(prefix="ray-", dir=parent if len(parent) <= _LONGEST_PARENT else "/tmp"))  # noqa: S108


def scaling_config(config: RunConfig, *, local: bool = False) -> ScalingConfig:
    """Return the workers to request: one per host; on TPU whole slices of the topology, on GPU all of a host's chips.

    `local`: Ray's only node is this machine, for any number of hosts.
    """
    from ray.train import ScalingConfig

    row = config.accelerator
    if row["kind"] == "tpu":
        return ScalingConfig(
            use_tpu=True,
            topology=row["topology"],
            accelerator_type=row["rayAcceleratorType"],
            num_workers=config.hosts,
            resources_per_worker={"TPU": int(row["chipsPerHost"])},
        )
    if row["kind"] == "gpu":
        # No accelerator_type: Ray's names are of chips, the table's of machines, and Kubernetes
        # has already placed the pods.
        return ScalingConfig(
            use_gpu=True,
            num_workers=config.hosts,
            resources_per_worker={"GPU": int(row["chipsPerHost"])},
            placement_strategy="STRICT_SPREAD" if config.hosts > 1 else "PACK",
        )
    # A node may have the CPUs of several hosts.
    strategy = "STRICT_SPREAD" if config.hosts > 1 and not local else "PACK"
    return ScalingConfig(num_workers=config.hosts, resources_per_worker={"CPU": 1}, placement_strategy=strategy)


def run(config: RunConfig) -> loop.Outcome:
    """Train to the end. Restarts the workers up to run.maxRestarts times.

    Raises ConfigError, PreemptedError if this process received a stop signal, RayStartTimeout, and Ray's own errors.
    """
    local = prepare_environment()
    announce(config, "ray")
    import ray

    # Ray logs at every start that tokens are enabled.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    folder = private_folder() if local else None
    if folder:
        # Inherited by all of Ray's processes. A runtime environment would prevent the use of workers that
        # Ray starts in advance.
        loop.set_environment(config)
        os.environ["PYTHONPATH"] = _import_path()
        os.environ.update(spares.HOOK)
        # An import that takes a second runs while Ray's processes start.
        importing = threading.Thread(target=importlib.import_module, args=["ray.train.v2.jax"], daemon=True)
        importing.start()
        start_ray(config, folder, processes=config.hosts + 1)  # the controller, and one per host
        importing.join()
        for name in [name for name in os.environ if name.startswith("RAY_TRAIN_") or name in spares.HOOK]:
            del os.environ[name]  # inherited by now; Ray Train would otherwise make a runtime environment of them
    else:
        ray.init(logging_level="WARNING")
    notice = StopSignal()
    notice.listen()  # after Ray, which installs its own SIGTERM handler
    try:
        left = config.max_restarts
        while True:
            outcome, failures = _fit(config, left, notice, local=local)
            if outcome is not None:
                break
            left = max(0, left - failures)
    finally:
        if not local:
            time.sleep(_LOG_DRAIN_SECONDS)
        ray.shutdown()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def start_ray(config: RunConfig, folder: Path, *, processes: int) -> None:
    """Start Ray on loopback, with this many processes started in advance.

    Raises RayStartTimeout if its processes need more than the 30 s that Ray waits.
    Ray waits for some connections without a limit. After _LONGEST_START, this process reports that and ends.
    """
    import ray

    def give_up() -> None:
        report(config, f"Ray did not start within {_LONGEST_START} s.")
        os._exit(TRY_AGAIN)

    limit = threading.Timer(_LONGEST_START, give_up)
    limit.daemon = True
    limit.start()
    try:
        ray.init(
            num_cpus=processes,
            num_gpus=config.chips if config.accelerator["kind"] == "gpu" else 0,
            include_dashboard=False,
            logging_level="WARNING",
            _node_ip_address=_LOOPBACK,
            _temp_dir=str(folder / "r"),
        )
    except Exception as error:
        if "timed out during startup" not in str(error):  # Ray raises Exception itself
            raise
        raise RayStartTimeout("Ray did not start within 30 s, because this machine is busy.") from error
    finally:
        limit.cancel()


def _fit(config: RunConfig, restarts: int, notice: StopSignal, *, local: bool) -> tuple[loop.Outcome | None, int]:
    """Run Ray Train once, with up to `restarts` restarts of the workers. Returns the outcome and the restarts used.

    The outcome is None if all workers stopped for a draining node, with a checkpoint if they write any.
    """
    from ray.train import FailureConfig
    from ray.train import RunConfig as RayRunConfig

    verdict = ControlChannel(config.name)
    trainer = _trainer_class(local=local)(
        _worker,
        # Not the file's name: in an existing Ray cluster the hosts have no such file.
        train_loop_config={
            "config": dict(config.tree),
            "path": str(config.path),
            "verdict": verdict.key,
            "attempt": kept_output.attempt(),
            "local": local,
        },
        jax_config=_jax_config(config),
        scaling_config=scaling_config(config, local=local),
        run_config=RayRunConfig(
            name=config.name,
            # Ray Train stores its own state here; checkpoints are MaxText's.
            storage_path=str(config.folder / ".ray"),
            # A draining node is counted separately (trainer/prestop.py notifies Ray).
            callbacks=[_failure_notes(config, verdict.key, restarts)],
            failure_config=FailureConfig(max_failures=restarts, max_preemption_failures=-1),
            worker_runtime_env={} if local else {"env_vars": _worker_environment(config)},
        ),
    )
    failure: list[BaseException] = []

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # passed to the main thread, which raises it
            failure.append(error)

    # A separate thread, so that a verdict ends the run at once. If one host rejects the config, the others
    # wait for it in a collective and would be restarted.
    fitting = threading.Thread(target=fit, name="fit", daemon=True)
    fitting.start()
    while fitting.is_alive():
        fitting.join(timeout=0.5)
        verdict.refresh()
        if verdict.refusal is not None:
            # The worker that rejected the config makes the controller end the run. If Ray shuts down while this thread
            # still waits for it, the process sometimes crashes ("free(): invalid pointer").
            fitting.join(_SECONDS_TO_ABORT)
            break
        if notice.given and fitting.is_alive():
            _save_and_stop(config, verdict, notice)
    verdict.refresh()
    if verdict.refusal is not None:
        raise ConfigError(verdict.refusal)
    if failure:
        if getattr(failure[0], "worker_failures", None):
            raise RestartsExhausted(describe(failure[0], verdict.failure)) from failure[0]
        raise failure[0]
    if verdict.outcome is not None:
        return verdict.outcome, verdict.failures
    if verdict.stopped_after is None:
        raise RuntimeError("Ray Train reports that the run is finished, but no worker finished its loop.")
    steps = verdict.stopped_after
    if notice.given:
        raise loop.PreemptedError(f"The run received a stop signal: training stopped after {steps} steps.", steps)
    with contextlib.suppress(OSError):  # the run continues without the note
        write_event(config.folder, "preempted", message=preemption_message(config, steps), step=steps)
    return None, verdict.failures


def preemption_message(config: RunConfig, steps: int) -> str:
    """Return the message of the event. Whether there are checkpoints decides where all hosts continue."""
    if config.train.get("enable_checkpointing") is False:
        then = "without a checkpoint (train.enable_checkpointing is false), and start over"
    else:
        then = "with a checkpoint, and resume"
    return f"A host received a stop signal: all hosts stopped after {steps} steps, {then} on other machines."


def _save_and_stop(config: RunConfig, verdict: ControlChannel, notice: StopSignal) -> None:
    """Make the workers write their last checkpoint. Raises PreemptedError if there is nothing left to write."""
    if not verdict.stepping:
        if notice.elapsed() < _SECONDS_TO_REPORT_A_STEP:
            return
        raise loop.PreemptedError("The run received a stop signal before it finished a step since its start.")
    if notice.elapsed() > max(1.0, config.grace_seconds - _SHUTDOWN_SECONDS):
        raise loop.PreemptedError(
            f"The run received a stop signal, but wrote no checkpoint within {config.grace_seconds:g} s "
            "(run.graceSeconds); it resumes from the previous checkpoint."
        )
    verdict.ask_to_stop()


def _worker(settings: Mapping[str, Any]) -> None:
    """Run the training in a worker. The verdict goes through Ray's key-value store, which outlives the worker."""
    config = RunConfig(Path(settings["path"]), settings["config"])
    verdict = ControlChannel(config.name, key=settings["verdict"])
    watch = _Watch(verdict, config, local=settings["local"])
    spares.take()
    kept_output.keep_worker(config, watch.rank, settings["attempt"])
    try:
        outcome = loop.train(config, watch)
    except loop.PreemptedError as stop:
        verdict.stop(stop.steps or 0)
        return  # normally: Ray Train treats every error of a worker as a failure
    except ConfigError as error:
        verdict.refuse(str(error))
        _abort()
        threading.Event().wait()  # until that ends this process; returning would count as a failure and restart it
        return
    verdict.finish(outcome)


class _Watch:
    """Detects in the first worker that the run must stop. JAX notifies the other workers."""

    def __init__(self, verdict: ControlChannel, config: RunConfig, *, local: bool) -> None:
        from ray.train.v2._internal.execution.context import get_train_context

        self._verdict = verdict
        self._context = get_train_context()
        self.rank = int(self._context.get_world_rank())
        self._first = self.rank == 0
        # On one machine, Ray has the same processes for all workers, and for an actor that it starts before them. In a
        # cluster that outlives the job, Ray may keep a spare that no worker has used.
        self._spares = config.hosts + 1 if local and self._first else 0

    def stop_requested(self) -> bool:
        # Ray Train's notice to every worker. `ray.train.get_preemption_info` waits for all of them at each step.
        goes = self._context.preemption_context.preemption_info is not None
        return self._first and (goes or self._verdict.asked_to_stop())

    def stepping(self) -> None:
        if self._first:
            self._verdict.step()
        spares.start(self._spares)


def _failure_notes(config: RunConfig, key: str, restarts: int) -> Any:
    """Make Ray Train's controller record each failed worker, because a killed worker cannot do it itself.

    `restarts` is the number of restarts that were left when this run of Ray Train began.
    """
    import ray
    from ray.train import UserCallback

    path, tree = config.path, dict(config.tree)  # the config itself may hold a long list of text

    class Notes(UserCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.reported: set[str] = set()
            self.failures = 0

        def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
            config = RunConfig(path, tree)
            of_process(config)
            message = what_failed(worker_exceptions)
            # A draining node is reported repeatedly, until the other workers have ended too.
            if not any(getattr(error, "preempted", False) for error in worker_exceptions.values()):
                self.failures += 1
                ControlChannel("", key=key).count(self.failures, message)
                if is_repeated(config, worker_exceptions):
                    ControlChannel("", key=key).refuse(give_up(config, f"Workers failed ({message})"))
                    ray.get_runtime_context().current_actor.abort.remote()
                    return
                message += f"; {what_follows(config, restarts, self.failures)}"
            if message not in self.reported:
                self.reported.add(message)
                with contextlib.suppress(OSError):  # a full disk may be the failure
                    write_event(config.folder, "worker_failed", message=message)

    return Notes()


def _abort() -> None:
    """In a worker: make the controller end the run, as it does for Ctrl-C."""
    from ray.train.v2._internal.execution.context import get_train_context

    get_train_context().controller_actor.abort.remote()


def _trainer_class(*, local: bool) -> Any:
    """Return JaxTrainer, with faster restarts; on one machine without unneeded actors, which add seconds to a start."""
    import ray
    from ray.train.v2._internal.execution.callback import WorkerGroupCallback
    from ray.train.v2.jax import JaxTrainer

    class EndedAtOnce(WorkerGroupCallback):  # type: ignore[misc]
        """Ends the workers when one has failed. The others wait for it in a collective, and Ray Train would wait five
        seconds for their answers."""

        def before_worker_group_shutdown(self, worker_group: Any) -> None:
            status = worker_group.get_latest_poll_status()
            errors = status.errors.values() if status is not None else ()
            if errors and not any(getattr(error, "preempted", False) for error in errors):
                for worker in worker_group.get_workers():
                    ray.kill(worker.actor)

    class FastTrainer(JaxTrainer):  # type: ignore[misc]
        def _create_default_callbacks(self) -> list[Any]:
            return [*super()._create_default_callbacks(), EndedAtOnce()]

    if not local:
        return FastTrainer

    class NoDatasets(WorkerGroupCallback):  # type: ignore[misc]
        """Replaces Ray Train's manager of Ray Datasets; text comes through MaxText's own pipeline."""

        def before_init_train_context(self, workers: list[Any]) -> dict[str, list[Any]]:
            return {"dataset_shard_provider": [None] * len(workers)}

    class WatchedWorkers(WorkerGroupCallback):  # type: ignore[misc]
        """Makes the controller, which is on the same machine, detect how a worker's process ended."""

        def after_worker_group_start(self, worker_group: Any) -> None:
            for rank, worker in enumerate(worker_group.get_workers()):
                worker_exits.watch(rank, worker.metadata.pid)

    class LocalJaxTrainer(FastTrainer):
        def _create_default_callbacks(self) -> list[Any]:
            # The cleaner outlives a driver to release its resources, and polls Ray's dashboard every second.
            # Here all of Ray ends with the driver, and there is no dashboard and no reader of metrics.
            unwanted = {
                "DatasetsCallback",
                "PlacementGroupCleanerCallback",
                "ControllerMetricsCallback",
                "WorkerMetricsCallback",
            }
            callbacks = [each for each in super()._create_default_callbacks() if type(each).__name__ not in unwanted]
            return [*callbacks, NoDatasets(), WatchedWorkers()]

    return LocalJaxTrainer


def _jax_config(config: RunConfig) -> Any:
    """Return Ray's setup of jax.distributed, with a coordinator that listens only on its own address."""
    from ray.train.v2.jax.config import JaxConfig, _JaxBackend

    class Backend(_JaxBackend):  # type: ignore[misc]
        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            worker_group.execute(_listen_narrowly)
            super().on_start(worker_group, backend_config)

    class Config(JaxConfig):  # type: ignore[misc]
        @property
        def backend_cls(self) -> type[Any]:
            return Backend

    kind = config.accelerator["kind"]
    # On CPU as on TPU, Ray only sets up jax.distributed; JAX_PLATFORMS selects the platform.
    return Config(use_tpu=kind in ("tpu", "cpu"), use_gpu=kind == "gpu")


def _listen_narrowly() -> None:
    """In a worker, before Ray sets up JAX: restrict JAX's coordinator, which by default listens on every interface."""
    deferred_imports.defer_unused_imports()
    import jax

    initialize = jax.distributed.initialize

    def narrow(address: str, *args: Any, **kwargs: Any) -> None:
        initialize(address, *args, **{"coordinator_bind_address": address, **kwargs})

    jax.distributed.initialize = narrow


def _worker_environment(config: RunConfig) -> dict[str, str]:
    return {**loop.environment(config), "PYTHONPATH": _import_path()}


def _import_path() -> str:
    """Return the import path: Ray starts workers with the driver's PYTHONPATH, without its working directory."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(dict.fromkeys([str(Path(__file__).parent.parent), *given]))
