"""The batches of a run: Slipway's stream of documents in MaxText's pipeline, or in ours for fine-tuning."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainer import data
from trainer.config import RunConfig
from trainer.training import end_token, mixture
from trainer.tuning import pipeline, preferences, reading


class Batches:
    """The source of this host's batches. `reader` reads examples of fine-tuning, `shares` counts those of a mixture."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.reader: pipeline.Reader | None = None
        self.shares: mixture.Shares | None = None
        self._host = (0, 1)
        self._resources = contextlib.ExitStack()

    def install(self, replace: Callable[..., Any], resources: contextlib.ExitStack) -> None:
        """Replace MaxText's source of documents and its pipeline, until `resources` are closed."""
        if self.config.corpus is None:
            return
        from maxtext.input_pipeline import grain_data_processing

        self._resources = resources
        replace(grain_data_processing, "get_datasets", self._documents)
        self._of_text = replace(grain_data_processing, "pretrain_preprocessing_pipeline", self._batches)

    def counts(self, batch: Any) -> dict[str, Any]:
        """Return what is counted in a batch, as scalars of its step. The step donates the batch, so count before it."""
        counts = pipeline.counts(batch, pairs=self.config.tuning.reads_pairs) if self.reader is not None else {}
        return counts | (self.shares.scalars() if self.shares is not None else {})

    def measured(self, scalars: Mapping[str, Any]) -> dict[str, Any]:
        """Return these counts as fields of the step's line in metrics.jsonl."""
        line = self.reader.measured(scalars) if self.reader is not None else {}
        if self.shares is not None:
            line["mixture"] = self.shares.of(scalars)
            if "epoch" in line:
                line["epoch"] = min(source["epoch"] for source in line["mixture"].values())
        return line

    def once(self, config: Any, further: Sequence[str], *, held_out: bool) -> Any:
        """Return the batches of one pass over the text, in its order, with the keys of each example."""
        corpus = self.config.corpus
        if self.reader is None or corpus is None:
            raise TypeError("keys belong to examples of fine-tuning")
        read = self.reader.keyed()
        return self._examples(config, further)(
            self._read(corpus, held_out=held_out, shuffle=False, epochs=1, read=read)
        )

    def size(self, config: Any) -> int:
        """Return the number of sequences that this host reads for a step."""
        from maxtext.input_pipeline import data_processing_utils

        return int(data_processing_utils.get_local_batch_size(config))

    def _documents(self, *args: Any, **options: Any) -> Any:
        """Replaces MaxText's file reader: Slipway's stream of documents, or one for each source of a mixture."""
        corpus = self.config.corpus
        if corpus is None:
            raise TypeError("MaxText requested documents, but the run config sets none")
        held_out = options["split"] == "eval"
        self._host = options["dataloading_host_index"], options["dataloading_host_count"]
        if self.config.tuning.applies and self.reader is None:
            self.reader = reading.reader(self.config)
        if not corpus.sources or (held_out and data.is_separate(corpus)):
            return self._stream(corpus, options, held_out=held_out)
        if not held_out:
            self.shares = mixture.Shares(list(corpus.sources))
        return mixture.Mixture(
            {name: self._stream(each, options, held_out=held_out, name=name) for name, each in corpus.sources.items()},
            {name: each.weight for name, each in corpus.sources.items()},
            None if held_out else self.shares,
        )

    def _stream(self, corpus: data.Corpus, options: Mapping[str, Any], *, held_out: bool, name: str = "") -> Any:
        """Return the documents of a corpus, or of the source `name` of a mixture."""
        read = data.reader(corpus)
        if self.reader is not None:
            read = (self.reader.for_held_out() if held_out else self.reader).of_stream()
        if name and not held_out and self.shares is not None:
            read = self.shares.reading(name, read)
        # MaxText's default is one pass. A run with more steps than its text provides repeats the text.
        epochs = None if held_out else self.config.train.get("num_epoch")
        shuffle, seed = options["shuffle"], options["shuffle_seed"]
        return self._read(corpus, held_out=held_out, shuffle=shuffle, seed=seed, epochs=epochs, read=read)

    def _read(self, corpus: data.Corpus, *, seed: int = 0, **options: Any) -> Any:
        index, count = self._host
        return data.train_dataset(corpus, host_index=index, host_count=count, seed=seed, **options)

    def _batches(self, dataset: Any, config: Any, *args: Any, **options: Any) -> Any:
        """Replaces MaxText's pipeline: its own for plain text, ours for fine-tuning, for each source of a mixture."""
        if self.config.tuning.applies:
            batches = self._examples(config, (preferences.REFERENCE,) if self.config.tuning.is_precomputed else ())
        else:
            self._resources.enter_context(end_token.counted(config))
            batches = functools.partial(self._of_text, *args, config=config, **options)
        return dataset.batches(batches, self.size(config)) if isinstance(dataset, mixture.Mixture) else batches(dataset)

    def _examples(self, config: Any, further: Sequence[str]) -> Callable[[Any], Any]:
        return functools.partial(
            pipeline.batches,
            length=config.max_target_length,
            batch_size=self.size(config),
            packing=config.packing,
            pairs=self.config.tuning.reads_pairs,
            further=further,
        )
