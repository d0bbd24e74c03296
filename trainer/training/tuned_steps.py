"""The additions to a step of fine-tuning: the reference of DPO, the measures of pairs, and samples."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from trainer.config import RunConfig
from trainer.metrics import write_event
from trainer.run_log import RunLog
from trainer.training.batches import Batches
from trainer.tuning import lora, pipeline, precomputed, preferences, reading, samples
from trainer.tuning.settings import DPO


class TunedSteps:
    """The additions to the steps of a run. Does nothing for a run on plain text."""

    def __init__(self, config: RunConfig, batches: Batches, log: RunLog) -> None:
        self.config, self.batches, self.log = config, batches, log
        self._evaluation = preferences.Evaluation() if config.tuning.reads_pairs else None
        self._reference: preferences.Reference | None = None
        self._samples: samples.Samples | None = None

    def start(self, step: int, device_state: dict[str, Any], constants: Mapping[str, Any], *, evaluates: bool) -> None:
        """Prepare the additions, before the first step of this start."""
        config, mesh, model = constants["config"], device_state["mesh"], device_state["model"]
        tuning, reader = self.config.tuning, self.batches.reader
        if tuning.is_precomputed:
            if step == 0:  # a later one has a checkpoint, and so all numbers
                self._precompute(device_state, constants)
        elif tuning.method == DPO:
            self._reference = preferences.Reference(tuning, config, mesh, model)
        if reader is not None and tuning.samples and evaluates:
            self._samples = samples.Samples(tuning.samples, reader.template, config, mesh, model)
        if tuning.lora is not None:
            self.log.adapters(*lora.size(device_state["state"]))
        if self._evaluation is not None and device_state["p_eval_step"] is not None:
            device_state["p_eval_step"] = self._with_measures(device_state["p_eval_step"])

    def batch(self, batch: Any, state: Any) -> Any:
        """Return the batch with the log probabilities of the reference, if the loss needs them."""
        if self._reference is None:
            return batch
        return {**batch, preferences.REFERENCE: self._reference.of(batch, state["model"])}

    def evaluated(self) -> dict[str, Any]:
        """Return the measures of the pairs of the last evaluation, as fields of its line in metrics.jsonl."""
        return self._evaluation.take() if self._evaluation is not None else {}

    def write_samples(self, device_state: dict[str, Any], constants: Mapping[str, Any], steps_done: int) -> bool:
        """Write the answers to the prompts of tuning.samples, after an evaluation. Returns whether there are any."""
        if self._samples is None:
            return False
        import jax
        from flax.core.spmd import logical_axis_rules

        self.log.enter("evaluation")
        with jax.set_mesh(device_state["mesh"]), logical_axis_rules(constants["logical_axis_rules_for_eval"]):
            answers = self._samples.answers(device_state["state"]["model"])
        if jax.process_index() == 0:
            for prompt, answer in zip(self._samples.prompts, answers, strict=True):
                write_event(self.config.folder, "sample", step=steps_done, prompt=prompt, message=answer)
        return True

    def _precompute(self, device_state: dict[str, Any], constants: Mapping[str, Any]) -> None:
        """Compute the log probabilities of all pairs with the weights that the run starts from."""
        import jax
        import numpy as np
        from flax.core.spmd import logical_axis_rules

        config, mesh, corpus = constants["config"], device_state["mesh"], self.config.corpus
        table = reading.reference_table(self.config)
        if corpus is None or table is None:
            raise TypeError("the reference belongs to pairs")
        sums = precomputed.sums_of(config, mesh, device_state["model"], device_state["state"]["model"])
        shape = (self.batches.size(config), config.max_target_length)
        empty = {key: np.zeros(shape, np.int32) for key in (*pipeline.ARRAYS, *precomputed.KEYS)}
        started, pairs = time.perf_counter(), 0
        with jax.set_mesh(mesh), logical_axis_rules(constants["logical_axis_rules_for_train"]):
            for held_out in (False, True) if corpus.held_out else (False,):
                batches = self.batches.once(config, precomputed.KEYS, held_out=held_out)
                pairs += precomputed.compute(table, batches, sums, empty)
        self.log.reference(pairs, time.perf_counter() - started)

    def _with_measures(self, eval_step: Any) -> Any:
        """Return the compiled evaluation of a batch of pairs, with its measures recorded."""

        def step(state: Any, batch: Any, *args: Any) -> Any:
            metrics = eval_step(state, self.batch(batch, state), *args)
            if self._evaluation is not None:
                self._evaluation.add(metrics["scalar"])
            return metrics

        return step
