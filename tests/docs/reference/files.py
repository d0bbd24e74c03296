"""The files between launcher and trainer, and those that a run leaves."""

from __future__ import annotations

import json
import re

import trainer.metrics
from launcher.config.plan import plan_launch
from launcher.config.values.files import chart_defaults, load
from tests.docs.reference.parts import code, page, table
from trainer.telemetry.chips import Chips
from trainer.telemetry.prometheus import Endpoint

_CONFIG = """\
What stands between launcher and trainer, which never import each other: one JSON object. On this machine it is
`run.json` in the run's folder; in a cluster it travels inside the run's object as the annotation
`slipway.dev/run-config` of the pod template, and is mounted as a file; the trainer leaves it as `run.json` in the
run's folder there, too. `launcher submit --dry-run -o json` prints it, and `python -m trainer --config FILE` takes
it. It is the effective values with their keys unchanged ([Run values](run-values.md)), without `common` and `global`,
and with `accelerator`: what the table says about the slice."""

_ACCELERATOR = (
    ("name", "the row of the table"),
    ("kind", "tpu, gpu or cpu"),
    ("label", "GKE's node label"),
    ("rayAcceleratorType", "Ray's name of the chip"),
    ("hbmGiB", "memory of a chip; 0 where unknown"),
    ("peakTflops", "dense bf16 TFLOP/s of a chip; 0 where unknown"),
    ("machineType", "the machine type of the hosts"),
    ("topology", "the slice's shape; empty but for TPUs"),
    ("chipsPerHost", "chips of a host"),
    ("chips", "chips of a slice"),
    ("hosts", "hosts of a slice"),
)

METRICS = (
    ("step", "the step, counted from 0; of a held-out evaluation the number of updates made before it"),
    ("loss", "training loss of the step"),
    ("step_seconds", "how long the step took"),
    ("tokens_per_second_per_device", "tokens trained on, per second and chip"),
    ("tflops_per_second_per_device", "floating-point operations of the model, in TFLOP/s and per chip"),
    ("mfu", "the same as a part of the chip's peak; only where that is known"),
    ("learning_rate", "learning rate of the step"),
    ("grad_norm", "norm of the gradients"),
    ("param_norm", "norm of the parameters"),
    ("time", "when the line was written, RFC 3339 in UTC"),
)
"""Keys of a step's line."""

EVALUATIONS = (
    ("step", "the number of updates made before it"),
    ("eval_loss", "loss on the held-out text"),
    ("time", "when the line was written"),
)


def run_config() -> str:
    plan = plan_launch(load(["quickstart"]), chart_defaults("run"))
    example = json.dumps(plan.config, indent=2)
    return page(
        "The run config",
        "launcher/config/plan.py and the preset quickstart",
        " ".join(_CONFIG.split("\n")),
        "## accelerator",
        table(("key", "is"), ((code(key), says) for key, says in _ACCELERATOR)),
        "## Example",
        "The preset `quickstart`:",
        f"```json\n{example}\n```",
    )


def metrics() -> str:
    prefixes = (
        f"A run on a cluster is followed by its log alone: the trainer prints each line of metrics.jsonl there after "
        f"`{trainer.metrics.PREFIX.strip()}`, and each event after `{trainer.metrics.EVENT_PREFIX.strip()}`. Look for "
        "them anywhere in a line, since Ray puts the name of the worker before it. A line that comes twice, with the "
        "same `time`, is one."
    )
    never = (
        "Both files stand in the run's folder, `folder` of `launcher status -o json`. metrics.jsonl has one line a "
        "step, never one missing and never one twice, whatever was killed when. A number that is not finite is null."
    )
    return page(
        "Metrics and events",
        "trainer/metrics.py",
        never,
        "## metrics.jsonl",
        "A line a step:",
        table(("key", "is"), ((code(key), says) for key, says in METRICS)),
        "A line for each held-out evaluation:",
        table(("key", "is"), ((code(key), says) for key, says in EVALUATIONS)),
        "## events.jsonl",
        table(("event", "further keys", "means"), events()),
        "## In a log",
        prefixes,
        "## Prometheus",
        "Every host serves these at `/metrics` of port `tracking.metricsPort`, with the labels `run`, `team` and "
        "`host`; only the first host has the run's own. What a chip does not say of itself is left out.",
        table(("metric", "kind", "is"), exported()),
    )


def events() -> list[tuple[str, str, str]]:
    """The table of events in the docstring of trainer.metrics."""
    found: list[tuple[str, str, str]] = []
    for line in (trainer.metrics.__doc__ or "").splitlines():
        match = re.fullmatch(r"(?P<event>[a-z_]+) +(?P<keys>[a-z_, ]+): (?P<says>.*)", line)
        if match:
            keys = ", ".join(code(key.strip()) for key in match["keys"].split(","))
            found.append((code(match["event"]), keys, match["says"]))
    return found


class _Device:
    """A chip that says all that a chip can say."""

    id = 0

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_in_use": 1, "peak_bytes_in_use": 1, "bytes_limit": 1}


class _Sampler:
    def latest(self) -> dict[str, list[float]]:
        return {"duty_cycle_pct": [1.0], "tensorcore_util": [1.0]}


def exported() -> list[tuple[str, str, str]]:
    """The metrics for Prometheus, as the endpoint describes them: name, kind, and its words."""
    labels = {"run": "r", "team": "t", "host": "0"}
    endpoint = Endpoint(labels)
    endpoint.registry.register(Chips([_Device()], labels, _Sampler()))  # type: ignore[arg-type]  # it samples libtpu
    found = []
    for family in endpoint.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found.append((code(name), family.type, family.documentation))
    return found
