"""Compiles the train step of a run for the slice that the run requests.

MaxText's own initialization (`train.initialize`) and its own functions shape and lower the step, so the program is the
one that the run compiles at its first step. The only difference from trainer/loop.py is the keys in `maxtext_argv`
below.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trainer import deferred_imports, maxtext_keys
from trainer.aot.errors import AotError, nearest, refused_flag
from trainer.aot.memory import bytes_of
from trainer.aot.topology import Topology, describe
from trainer.config import RunConfig
from trainer.data import Corpus, Unit, is_given
from trainer.errors import ConfigError
from trainer.tuning import lora, preferences
from trainer.tuning.settings import DPO, Tuning

# The errors that MaxText, Flax, Pallas and JAX raise for an invalid config.
_REFUSALS = (ValueError, TypeError, AssertionError, ArithmeticError, LookupError, NotImplementedError)


class _WithoutData(RunConfig):
    """A run config that does not read its text: it is in the run's storage, and the step does not depend on it."""

    @cached_property
    def corpus(self) -> Corpus | None:
        if not is_given(self.data):
            return None
        held_out = self.data.get("heldOut") or {}
        unit = Unit("", 0, 0)
        some = bool(held_out.get("files") or held_out.get("fraction"))
        return Corpus((unit,), (unit,) if some else (), 1, 0, "text", "")


def maxtext_argv(config: RunConfig, topology: Topology) -> list[str]:
    """Return the run's arguments to MaxText. Replaces those that need chips, write files, or connect to a service."""
    argv = maxtext_keys.maxtext_argv(_WithoutData(config.path, config.tree))
    keys: dict[str, Any] = {
        "compile_topology": topology.name,
        "compile_topology_num_slices": config.slices,
        # A program from the cache has no HLO text, and the cache is in the run's storage.
        "jax_cache_dir": "",
        "dump_hlo": False,
        "dump_hlo_xla_flags": "",
        "dump_jaxpr": False,
        "enable_goodput_recording": False,
        "enable_mllog": False,
        "managed_mldiagnostics": False,
        "use_vertex_tensorboard": False,
        "log_config": False,
    }
    if "quantization_local_shard_count" not in config.train:
        # MaxText counts the devices of its host, and this machine has none.
        keys["quantization_local_shard_count"] = topology.devices_per_host
    # The tokenizer is part of the text, not of the step. Some models set their own, which would conflict with this one.
    dropped = {*keys, "tokenizer_type", "tokenizer_path"}
    kept = [word for word in argv if word.partition("=")[0] not in dropped]
    return kept + [f"{key}={json.dumps(value)}" for key, value in keys.items()]


@dataclass(frozen=True)
class Step:
    """The compiler's input. `config` is MaxText's, `state` the shapes of the train state, `capacity` the HBM of one
    device that a program may use, in bytes (None: unknown)."""

    config: Any
    mesh: Any
    state: Any
    capacity: int | None
    topology: Topology


@dataclass(frozen=True)
class Compiled:
    """A compiled step. `executable` is JAX's Compiled, or None if the program does not fit; `refusal` is then the
    compiler's error text."""

    step: Step
    executable: Any
    refusal: str


def require_packages() -> None:
    """Raise AotError (extra) if the compiler or MaxText is not installed."""
    for module in ("jax", "maxtext", "libtpu"):
        if importlib.util.find_spec(module) is None:
            raise AotError(
                "extra",
                f"The Python package {module} is not installed; install the compiler: "
                'pip install "slipway-launcher[forecast]" (Linux on x86-64, Python 3.12).',
                package=module,
            )


def require_model(config: RunConfig) -> None:
    """Raise AotError (model) if MaxText has no architecture for the model's name. MaxText accepts some of these names,
    and trains its default model."""
    name = config.train.get("model_name")
    if name in (None, "default"):
        return
    folder = importlib.util.find_spec("maxtext")
    assert folder is not None and folder.submodule_search_locations  # noqa: S101 - require_packages has looked
    models = {path.stem for path in (Path(folder.submodule_search_locations[0]) / "configs" / "models").glob("*.yml")}
    if str(name).replace("-Instruct", "") not in models:
        close = nearest(str(name), models)
        raise AotError(
            "model",
            f"MaxText has no model {name} (train.model_name); "
            + (f"similar names are {', '.join(close)}." if close else f"it has {len(models)} others."),
            nearest=close,
        )


def compile_step(
    config: RunConfig, say: Callable[[str], None], clock: Clock, begin: Callable[[Step], None] = lambda step: None
) -> Compiled:
    """Compile the run's train step. Raises AotError.

    Calls `say` with the name of each phase at its start, and `begin` with the step before it is compiled. `clock`
    measures the phases. Use the process for nothing else: as in a run, this sets process-wide state of MaxText and JAX.
    """
    require_packages()
    require_model(config)
    topology = describe(config.accelerator)
    say("importing")
    deferred_imports.defer_unused_imports()
    with clock("importing"):
        from absl import flags

        if not flags.FLAGS.is_parsed():
            flags.FLAGS(["trainer"])
        import jax
        from maxtext.trainers.pre_train import train, train_compile
        from maxtext.utils import max_utils
    say("shaping")
    with clock("shaping"):
        _announce(topology)
        with _refusals(config):
            maxtext_config, _ = train.initialize(maxtext_argv(config, topology))
        with _compiler_errors(), _refusals(config):
            mesh = train_compile.get_topology_mesh(maxtext_config)
        with _refusals(config):
            lowered, state = _lower(maxtext_config, mesh, config.tuning)
            options = max_utils.parse_libtpu_flags_to_dict(maxtext_config.compile_xla_flags)
        with _compiler_errors():
            capacity = _capacity(mesh, options)
        step = Step(maxtext_config, mesh, state, capacity, topology)
    say("compiling")
    executable, refusal = None, ""
    begin(step)
    with clock("compiling"), _compiler_errors():
        try:
            executable = lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_hbm(str(error)):
                raise
            refusal = str(error)
    return Compiled(step, executable, refusal)


class Clock:
    """Measures the seconds of each phase. An unfinished phase counts up to now."""

    def __init__(self) -> None:
        self._phases: dict[str, tuple[float, float | None]] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        self._phases[phase] = (started, None)
        try:
            yield
        finally:
            self._phases[phase] = (started, time.perf_counter())

    @property
    def seconds(self) -> dict[str, float]:
        now = time.perf_counter()
        return {phase: round((end or now) - start, 2) for phase, (start, end) in self._phases.items()}


def _announce(topology: Topology) -> None:
    """Add the slice to MaxText's map of products, under the name that `maxtext_argv` uses."""
    from maxtext.utils import accelerator_to_spec_map as products

    products.UserFacingNameToSystemCharacteristics[topology.name] = products.SystemCharacteristics(
        "tpu",
        topology.name,
        topology.chip_config,
        topology.host_bounds,
        topology.devices,
        topology.wrap,
    )


def traced(config: Any, mesh: Any, tuning: Tuning) -> tuple[Any, Any]:
    """Return the traced step and the shapes of the train state. Use the process for no other step.

    The step of DPO includes its reference in memory: its forward pass is a part of the step, and its weights are an
    argument, unless they are those below the adapters. The log probabilities of a precomputed one are in the batch.
    """
    with lora.installed() if tuning.lora else contextlib.nullcontext():
        return _traced(config, mesh, tuning)


def _traced(config: Any, mesh: Any, tuning: Tuning) -> tuple[Any, Any]:
    import jax
    from maxtext.trainers.pre_train import train, train_compile
    from maxtext.utils import maxtext_utils, sharding

    if tuning.is_precomputed:
        maxtext_utils.get_shaped_batch = preferences.shaped(maxtext_utils.get_shaped_batch)
    inputs, keywords, state_shardings, _, model = train_compile.get_shaped_inputs(mesh, config)
    parameters, state_shardings = sharding.maybe_update_params_sharding_with_opt(config, state_shardings)
    if tuning.reads_pairs:
        train.loss_fn = preferences.loss_function(tuning, train.loss_fn)
    step, in_shardings, out_shardings, static, donated = maxtext_utils.get_functional_train_with_signature(
        train.train_step,
        sharding.get_input_data_sharding(config, mesh),
        sharding.build_zero1_input_state_mesh_shardings(config, state_shardings, parameters),
        model,
        config,
        parameters,
    )
    if tuning.method == DPO and not tuning.is_precomputed:
        step = preferences.with_reference(step, model, config.gradient_accumulation_steps)
        if tuning.copies_weights:
            inputs, in_shardings = (*inputs, inputs[0]["model"]), (*in_shardings, in_shardings[0]["model"])
    with jax.set_mesh(mesh), train_compile.axis_rules(config.logical_axis_rules):
        jitted = jax.jit(
            step,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            static_argnums=static,
            donate_argnums=donated,
        )
        return jitted.trace(*inputs, **keywords), inputs[0]


def _lower(config: Any, mesh: Any, tuning: Tuning) -> tuple[Any, Any]:
    """Return the lowered step and the shapes of the train state."""
    import jax
    from maxtext.trainers.pre_train import train_compile

    if config.enable_diloco:
        raise NotImplementedError("forecasts do not support the train step of enable_diloco; set it to false")
    step, state = traced(config, mesh, tuning)
    with jax.set_mesh(mesh), train_compile.axis_rules(config.logical_axis_rules):
        return step.lower(), state


def _capacity(mesh: Any, options: Mapping[str, str]) -> int | None:
    """Return the HBM of one device that a program may use, in bytes, or None if the compiler does not report it.

    The compiler reports it only in the error for a program that needs more. So this compiles a program that needs
    4 TiB, which the compiler rejects in a tenth of a second.
    """
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    everywhere = NamedSharding(mesh, PartitionSpec())
    too_much = jax.ShapeDtypeStruct((1 << 42,), jnp.int8)
    try:
        jax.jit(lambda x: x + 1, in_shardings=everywhere, out_shardings=everywhere).lower(too_much).compile(
            compiler_options=dict(options)
        )
    except jax.errors.JaxRuntimeError as error:
        return capacity_in(str(error))
    return None


_AVAILABLE = re.compile(r"exceeds available HBM \((?P<size>[\d.]+[KMGT]?)\)")


def capacity_in(text: str) -> int | None:
    """Return the available HBM that an out-of-memory error reports, in bytes, or None if it reports none."""
    match = _AVAILABLE.search(text)
    return bytes_of(match["size"]) if match else None


def is_out_of_hbm(text: str) -> bool:
    """Return whether the compiler's error means that the program does not fit into the chip's HBM."""
    return "RESOURCE_EXHAUSTED" in text and bool(re.search(r"memory space hbm|on HBM|exceeds available HBM", text))


@contextlib.contextmanager
def _compiler_errors() -> Iterator[None]:
    """Convert the compiler's errors to an AotError of the right kind."""
    import jax

    try:
        yield
    except MemoryError as error:
        raise AotError("memory", "This machine's memory is too small for the compiler.") from error
    except jax.errors.JaxRuntimeError as error:
        raise compiler_error(str(error)) from error


def compiler_error(text: str) -> AotError:
    """Convert libtpu's error text to an AotError: flag, topology (a slice that it cannot describe), vmem (a kernel that
    is too large), otherwise internal."""
    if refused := refused_flag(text):
        return refused
    brief = " ".join(text.split())
    if re.search(r"Invalid TPU external name|Topology layout|chip config", text):
        return AotError("topology", f"The TPU compiler cannot describe the slice: {brief[:500]}")
    if overflow := kernel_overflow(text):
        return overflow
    return AotError("internal", f"The TPU compiler failed: {brief[:1000]}")


# libtpu has three messages for this: a kernel's own limit, the chip's VMEM, and the scalar memory.
_SCOPED = re.compile(
    r"in memory space vmem while allocating on stack for %(?P<kernel>[\w.\-]+) = .*?"
    r"Scoped allocation with size (?P<used>[\d.]+[KMG]?) and limit (?P<limit>[\d.]+[KMG]?)",
    re.S,
)
_WHOLE = re.compile(r"Ran out of memory in memory space vmem\. Used (?P<used>[\d.]+[KMG]?) of (?P<limit>[\d.]+[KMG]?)")
_SCALAR = re.compile(
    r"Allocation \(size=(?P<used>\d+)\) would exceed memory \(size=(?P<limit>\d+)\).*space=(?P<space>[sv]mem).* :: "
    r"(?P<kernel>[\w.\-]+)",
    re.S,
)
_OP_NAME = re.compile(r'op_name="([^"]*)"')


def kernel_overflow(text: str) -> AotError | None:
    """Return the error for a kernel that needs more VMEM or SMEM than it may use, or None if `text` is another error.

    Its details `used` and `limit` are bytes.
    """
    match = _SCOPED.search(text) or _WHOLE.search(text) or _SCALAR.search(text)
    if match is None:
        return None
    parts = match.groupdict()
    op_name = _OP_NAME.search(text)
    kernel = str(parts.get("kernel") or (op_name[1] if op_name else "a kernel"))
    used, limit = bytes_of(parts["used"]), bytes_of(parts["limit"])
    space = "SMEM" if parts.get("space") == "smem" else "VMEM"
    attention = "splash" in text or "attention" in kernel
    smaller = "lower the train.sa_block_* sizes" if attention else "make the kernel's blocks smaller"
    flag = None
    if match.re is _SCOPED:
        flag = "--xla_tpu_scoped_vmem_limit_kib"
        smaller += f", or raise {flag} (worker.env.LIBTPU_INIT_ARGS) to {math.ceil(used / 1024)} or more"
    return AotError(
        "vmem",
        f"The kernel {kernel} needs {used / 2**20:.4g} MiB of the chip's {space}, but may use only "
        f"{limit / 2**20:.4g} MiB; {smaller}.",
        kernel=kernel,
        used=used,
        limit=limit,
        flag=flag,
    )


@contextlib.contextmanager
def _refusals(config: RunConfig) -> Iterator[None]:
    """Convert all errors by which MaxText rejects a config to an AotError."""
    try:
        yield
    except AotError:
        raise
    except ConfigError as error:
        raise AotError("key", str(error), key=_key_in(str(error), config)) from error
    except SystemExit as stop:  # MaxText exits if it rejects a config
        raise refusal(stop.__context__ or stop, config) from stop
    except _REFUSALS as error:
        raise refusal(error, config) from error


def refusal(error: BaseException, config: RunConfig) -> AotError:
    """Return MaxText's objection to the config as an AotError, with the key of `train` if MaxText names it."""
    text = " ".join(str(error).split()) or type(error).__name__
    if refused := refused_flag(text):
        return refused
    details = getattr(error, "errors", None)
    if callable(details):
        problems = details()
        named = [(".".join(map(str, each.get("loc") or ())), str(each["msg"])) for each in problems]
        text = "; ".join(f"train.{key}: {message}" if key else message for key, message in named)
        key = next((key.partition(".")[0] for key, _ in named if key), None)
        return AotError("key", f"MaxText rejects the config: {text[:1000]}", key=key or _key_in(text, config))
    unknown = re.match(r"'(\w+)' not in '(.*)'\.$", text)
    if unknown:
        close = nearest(unknown[1], unknown[2].split("', '"))
        return AotError(
            "key",
            f"MaxText has no key {unknown[1]} (train.{unknown[1]})"
            + (f"; similar keys are {', '.join(close)}." if close else "."),
            key=unknown[1],
        )
    return AotError("key", f"MaxText rejects the config: {text[:1000]}", key=_key_in(text, config))


def _key_in(text: str, config: RunConfig) -> str | None:
    """Return the first of the run's own train keys that occurs in the text, or None."""
    return next((word for word in re.findall(r"\w+", text) if word in config.train), None)
