"""The model as lm-eval, the evaluation harness, calls it: log-likelihoods of texts, and generated texts.

mlx-lm has such a class too. This one differs: it limits a text to the model's context, conditions a text without
context on the token that starts texts, and computes the log-likelihood of a long text in windows, as lm-eval defines
it. The results are therefore comparable with those of lm-eval's own classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from mlx_lm.models.cache import make_prompt_cache

from trainer.errors import ConfigError
from trainer.inference.generation import Generation, Options
from trainer.inference.model import Model

LONGEST = 4096
"""The longest text, in tokens, that is scored at once, also if the model's context is longer."""
# The logits of a batch are float32: at most 256 MB.
_LOGITS = 64 << 20
_BATCH = 32
_MAX_NEW_TOKENS = 256  # lm-eval's default for a task that sets none


class Harness(TemplateLM):  # type: ignore[misc]  # lm-eval ships no types
    """A model for lm-eval. `report` is called with the number of requests that are done, and their total."""

    def __init__(self, model: Model, report: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        super().__init__()
        self.tokenizer = model.tokenizer
        self.max_length = min(model.context or LONGEST, LONGEST)
        self._model, self._report = model, report
        self._chunk = max(1, _LOGITS // model.vocabulary)

    @property
    def eot_token_id(self) -> int:
        token = self.tokenizer.eos_token_id
        return int(min(self._model.end_tokens, default=0) if token is None else token)

    @property
    def prefix_token_id(self) -> int:
        token = self.tokenizer.bos_token_id
        return self.eot_token_id if token is None else int(token)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        if add_special_tokens is None:
            return self._model.encode(string)
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, Sequence[int], Sequence[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each continuation after its context, and whether it is the most likely one."""
        scored = []
        for _text, context, continuation in requests:
            if len(continuation) > self.max_length:
                raise ConfigError(
                    f"A task has an answer of {len(continuation):,} tokens, but the model's context has "
                    f"{self.max_length:,}."
                )
            tokens = [*context, *continuation][-(self.max_length + 1) :]
            scored.append((tokens, min(len(continuation), len(tokens) - 1)))
        return self._scores(scored)

    def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
        """Return the log-likelihood of each whole text, in windows of the model's context."""
        windows, sizes = [], []
        for request in requests:
            tokens = self.tok_encode(request.args[0], add_special_tokens=False)
            pairs = map(
                make_disjoint_window, get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, 1)
            )
            window_pairs = [([*context, *predicted], len(predicted)) for context, predicted in pairs]
            windows += window_pairs
            sizes.append(len(window_pairs))
        scores = iter(self._scores(windows))
        return [sum(next(scores)[0] for _ in range(size)) for size in sizes]

    def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
        """Return the text that the model generates for each request: greedily, unless the task sets a temperature."""
        texts = []
        for number, request in enumerate(requests):
            context, wanted = request.args
            until = wanted.get("until") or []
            most = int(wanted.get("max_gen_toks") or wanted.get("max_tokens") or _MAX_NEW_TOKENS)
            temperature = float(wanted.get("temperature") or 0.0) if wanted.get("do_sample", True) else 0.0
            room = self.max_length - min(most, self.max_length // 2)
            tokens = self.tok_encode(context)[-room:] or [self.prefix_token_id]
            options = Options(most, temperature, stop=(until,) if isinstance(until, str) else tuple(until))
            texts.append("".join(Generation(self._model, tokens, options)))
            self._report(number + 1, len(requests))
        return texts

    def _scores(self, texts: Sequence[tuple[Sequence[int], int]]) -> list[tuple[float, bool]]:
        """Score the last tokens of each text: (tokens, how many). The results are in the order of `texts`."""
        results: list[tuple[float, bool]] = [(0.0, True)] * len(texts)
        done = 0
        for batch in self._batches(texts):
            for index, result in zip(batch, self._score([texts[index] for index in batch]), strict=True):
                results[index] = result
            done += len(batch)
            self._report(done, len(texts))
        return results

    def _batches(self, texts: Sequence[tuple[Sequence[int], int]]) -> Iterator[list[int]]:
        """Yield the indices of texts that are scored together, the longest first: they are padded to one length."""
        batch: list[int] = []
        for index in sorted(range(len(texts)), key=lambda index: -len(texts[index][0])):
            longest = len(texts[(batch or [index])[0]][0])
            if batch and (len(batch) == _BATCH or (len(batch) + 1) * longest > self._chunk):
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _score(self, texts: Sequence[tuple[Sequence[int], int]]) -> list[tuple[float, bool]]:
        width = max(len(tokens) for tokens, _ in texts)
        # The padding is after the text, so that no token of the text can see it.
        padded = np.zeros((len(texts), width), dtype=np.int32)
        for row, (tokens, _) in enumerate(texts):
            padded[row, : len(tokens)] = tokens
        chosen, best = self._log_probabilities(padded)
        results = []
        for row, (tokens, count) in enumerate(texts):
            at = slice(len(tokens) - 1 - count, len(tokens) - 1)
            results.append((float(chosen[row, at].sum(dtype=np.float64)), bool(best[row, at].all())))
        return results

    def _log_probabilities(self, tokens: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the log-probability of each token but the first, and whether it is the most likely one."""
        inputs, targets = mx.array(tokens[:, :-1]), mx.array(tokens[:, 1:])
        rows, width = inputs.shape
        step = max(1, self._chunk // rows)
        cache = make_prompt_cache(self._model.network) if width > step else None
        chosen, best = [], []
        for start in range(0, width, step):
            wanted = targets[:, start : start + step]
            logits = self._model.network(inputs[:, start : start + step], cache=cache).astype(mx.float32)
            of_wanted = mx.take_along_axis(nn.log_softmax(logits), wanted[..., None], axis=-1)[..., 0]
            top = mx.argmax(logits, axis=-1) == wanted
            mx.eval(of_wanted, top)
            chosen.append(np.array(of_wanted))
            best.append(np.array(top))
        return np.concatenate(chosen, axis=1), np.concatenate(best, axis=1)
