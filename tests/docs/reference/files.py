"""The pages on the run config and on the files that a run writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import trainer.metrics
from launcher.config.plan import plan_launch
from launcher.config.values.files import chart_defaults, load
from launcher.products.records import form as records
from tests.docs.reference.parts import code, page, table
from trainer.telemetry.chips import Chips
from trainer.telemetry.prometheus import Endpoint
from trainer.telemetry.storage import Storage

_CONFIG = """\
The run config is the interface between launcher and trainer, which never import each other. It is one JSON object. On
this machine, it is `run.json` in the run's folder. In a cluster, it is the annotation `slipway.dev/run-config` of the
pod template in the run's object, and is mounted as a file; the trainer writes it to `run.json` in the run's folder.
`launcher submit --dry-run -o json` prints it, and `python -m trainer --config FILE` reads it. It contains the effective
values with unchanged keys ([Run values](run-values.md)), without `common`, `global` and `serve`. In addition, it has
`accelerator`, the data of the slice from the table of accelerators."""

_ACCELERATOR = (
    ("name", "the row of the table"),
    ("kind", "tpu, gpu or cpu"),
    ("label", "GKE's node label"),
    ("rayAcceleratorType", "Ray's name of the chip"),
    ("hbmGiB", "memory of a chip; 0 if unknown"),
    ("peakTflops", "dense bf16 TFLOP/s of a chip; 0 if unknown"),
    ("machineType", "the machine type of the hosts"),
    ("topology", "the topology of the slice; empty except for TPUs"),
    ("chipsPerHost", "chips of a host"),
    ("chips", "chips of a slice"),
    ("hosts", "hosts of a slice"),
)

METRICS = (
    ("step", "the step, counted from 0"),
    ("loss", "training loss of the step"),
    ("step_seconds", "the time that the step took"),
    ("tokens_per_second_per_device", "tokens trained on, per second and chip"),
    ("tflops_per_second_per_device", "floating-point operations of the model, in TFLOP/s and per chip"),
    ("mfu", "the same as a share of the chip's peak; only if the peak is known"),
    ("learning_rate", "learning rate of the step"),
    ("grad_norm", "norm of the gradients, before they are clipped"),
    ("param_norm", "norm of the parameters"),
    ("time", "the time when the line was written, RFC 3339 in UTC"),
)
"""Keys of a step's line."""

TUNING = (
    ("epoch", "the passes over the examples that were begun, with the part of the current one"),
    ("examples", "examples of the step; a pair of answers is one"),
    ("counted_tokens", "tokens of the step that the loss counts"),
    ("examples_cut", "examples of this host since its start that were cut (tuning.tooLong), if there are any"),
    ("examples_dropped", "examples of this host since its start that were dropped, if there are any"),
    ("reward_chosen", "with pairs: mean reward of the better answers; eval_reward_chosen is that of an evaluation"),
    ("reward_rejected", "with pairs: mean reward of the worse answers"),
    ("reward_margin", "with pairs: mean difference of the two rewards"),
    ("reward_accuracy", "with pairs: share of pairs whose better answer has the higher reward"),
)
"""Further keys of a step's line of a fine-tuning."""

MIXTURE = (
    (
        "mixture",
        "for each source its `share` of the tokens of the step, in the sequences of the first host, and its `epoch`: "
        "the passes over it that were begun, with the part of the current one. The key `epoch` of a fine-tuning is "
        "then the smallest of them",
    ),
)
"""The further key of a step's line of a run with data.mixture."""

EVALUATIONS = (
    ("step", "the number of updates before the evaluation"),
    ("eval_loss", "loss on the held-out text"),
    ("time", "the time when the line was written"),
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
        "The launcher follows a run on a cluster by its log: the trainer prints each line of metrics.jsonl after "
        f"`{trainer.metrics.PREFIX.strip()}`, and each event after `{trainer.metrics.EVENT_PREFIX.strip()}`. The "
        "prefix can be anywhere in a line, because Ray adds the name of the worker in front of it. If a line occurs "
        "twice with the same `time`, count it once."
    )
    counted = (
        "In all texts that people read, such as the log, `launcher status`, a report and a model card, steps are "
        "counted from 1: step 60/60 is the last one of a run of 60 steps, and an evaluation after step 60 is that "
        "after 60 steps. The number of a checkpoint is the name of its folder, which MaxText counts from 0: the "
        "checkpoint 59 has the state after 60 steps. `launcher checkpoints` shows both, and `--step` and `from: "
        "RUN@STEP` take the number of the checkpoint. `step` in metrics.jsonl is counted from 0 for a step, as in "
        "MaxText, and is the number of steps done for an evaluation."
    )
    never = (
        "Both files are in the run's folder, `folder` of `launcher status -o json`. metrics.jsonl has exactly one line "
        "per step, even if processes of the run were killed. A number that is not finite is null."
    )
    return page(
        "Metrics and events",
        "trainer/metrics.py",
        never,
        "## How steps are counted",
        counted,
        "## metrics.jsonl",
        "One line per step:",
        table(("key", "is"), ((code(key), says) for key, says in METRICS)),
        "A fine-tuning has these keys, too:",
        table(("key", "is"), ((code(key), says) for key, says in TUNING)),
        "A run with `data.mixture` has this key, too:",
        table(("key", "is"), ((code(key), says) for key, says in MIXTURE)),
        "One line per held-out evaluation:",
        table(("key", "is"), ((code(key), says) for key, says in EVALUATIONS)),
        "## events.jsonl",
        table(("event", "further keys", "means"), events()),
        "## In a log",
        prefixes,
        "## Prometheus",
        "Every host serves these metrics at `/metrics` of port `tracking.metricsPort`, with the labels `run`, `team` "
        "and `host`. Only the first host has the metrics of the run. Values that a chip does not report are omitted.",
        table(("metric", "kind", "is"), exported()),
    )


def record() -> str:
    return page(
        "The record of a run",
        "launcher/products/records/record.schema.json",
        "A record is one JSON object in a file whose name ends with `.record.json`. The trainer and `launcher record` "
        "write it ([Keep the records of runs](../how-to/keep-records.md)). Its JSON Schema is "
        "[record.schema.json](../../launcher/products/records/record.schema.json). A reader ignores keys that it does "
        "not know, and refuses a later version.",
        str(records.schema()["description"]),
        table(("key", "type", "is"), _keys(records.schema())),
        "## Two records of one run",
        _MERGE,
        "## A damaged record",
        "A file that is not JSON, that the schema rejects, that has a time that is not RFC 3339, that is larger than "
        "4 MiB or that has a later version is left out. The reader names it, and the reason.",
    )


_MERGE = """\
The identity of a run is the uid of its object: two records with one uid are one run. A run that is submitted again
under its name has another object, so it is another run with the same folder. The trainer does not know the uid. Its
record belongs to the object with its name and its folder, and each attempt to the object that existed when the attempt
started, with 2 minutes for clocks that differ.

- A key has the value of the record that was written later, unless it is empty there.
- The cluster decides about the queue, the flavor, the restarts, the preemptions and the user; the trainer about steps,
  tokens, seconds, goodput and config.
- A time is the first one that is known. `attempts`, `held`, `notified` and `sources` are joined; two entries that begin
  within 2 seconds are one.
- A state that is an end (succeeded, failed, cancelled) stays. If both records have one, that of the cluster counts. A
  state without a reason gets that of the other record, if its state is the same.

The order of the two does not matter."""


def _keys(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    for key, entry in tree["properties"].items():
        kinds = [entry["type"]] if isinstance(entry["type"], str) else entry["type"]
        yield code(f"{path}{key}"), " or ".join(kinds), entry["description"]
        if "properties" in entry:
            yield from _keys(entry, f"{path}{key}.")
        elif "properties" in entry.get("items", {}):
            yield from _keys(entry["items"], f"{path}{key}[].")


def events() -> list[tuple[str, str, str]]:
    """Return the table of events: name, further keys, meaning."""
    return [
        (code(name), ", ".join(map(code, event.fields)), event.means) for name, event in trainer.metrics.EVENTS.items()
    ]


class _Device:
    """A chip that reports all values."""

    id = 0

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_in_use": 1, "peak_bytes_in_use": 1, "bytes_limit": 1}


class _Libtpu:
    def latest(self) -> dict[str, list[float]]:
        return {"duty_cycle_pct": [1.0], "tensorcore_util": [1.0]}


class _Mount:
    def latest(self) -> dict[str, list[float]]:
        return {"size": [1.0], "available": [1.0]}


def exported() -> list[tuple[str, str, str]]:
    """Return the metrics for Prometheus, as the endpoint describes them: name, kind and description."""
    labels = {"run": "r", "team": "t", "host": "0"}
    endpoint = Endpoint(labels)
    endpoint.registry.register(Storage(labels, _Mount()))  # type: ignore[arg-type]  # it samples a mount
    endpoint.registry.register(Chips([_Device()], labels, _Libtpu()))  # type: ignore[arg-type]  # it samples libtpu
    found = []
    for family in endpoint.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found.append((code(name), family.type, family.documentation))
    return found
