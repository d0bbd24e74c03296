"""vLLM as an engine, on TPUs and GPUs.

It was run with vLLM 0.32 on a CPU, by hand: see tests/trainer/serving_run.py. A replica on several hosts was not; it
follows the sources of vLLM and tpu-inference.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import ray
from transformers import AutoTokenizer
from vllm import SamplingParams, TokensPrompt
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from trainer.serving.engines import EngineError, FinishReason, Piece, Sampling
from trainer.serving.settings import Settings

_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class VllmEngine:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._llm: AsyncLLM | None = None
        self.tokenizer = AutoTokenizer.from_pretrained(settings.model)
        self.context_length = settings.context_length

    async def start(self) -> None:
        settings = self._settings
        if settings.hosts > 1:
            # Without it, tpu-inference replaces the executor below by one that uses only this host.
            os.environ.setdefault("TPU_MULTIHOST_BACKEND", "ray")
        arguments = AsyncEngineArgs(
            model=settings.model,
            served_model_name=settings.name,
            dtype=settings.dtype,
            max_model_len=settings.context_length or None,
            tensor_parallel_size=settings.tensor_parallel_size,
            # On one host, the processes of the engine share the chips of the replica. On several, they are Ray actors
            # in the bundles of its placement group.
            distributed_executor_backend="ray" if settings.hosts > 1 else "mp",
            **settings.engine_args,
        )
        config = arguments.create_engine_config()
        if settings.hosts > 1:
            # The engine runs in a process of its own, in which Ray does not know the current placement group.
            config.parallel_config.placement_group = ray.util.get_current_placement_group()
        self._llm = AsyncLLM.from_vllm_config(config)
        self.context_length = config.model_config.max_model_len

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> AsyncIterator[Piece]:
        if self._llm is None or self._llm.errored:
            raise EngineError("vLLM has ended.")
        parameters = SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=None if sampling.seed is None else sampling.seed % 2**63,  # -1 would be no seed
            stop=list(sampling.stop),
            output_kind=RequestOutputKind.DELTA,
        )
        prompts = TokensPrompt(prompt_token_ids=list(prompt))
        # If the iterator is closed, vLLM aborts the request.
        try:
            async with aclosing(self._llm.generate(prompts, parameters, uuid.uuid4().hex)) as outputs:
                async for output in outputs:
                    (part,) = output.outputs
                    reason = part.finish_reason
                    if reason is not None and reason not in _REASONS:
                        # The answer is incomplete, and must not look like a whole one.
                        raise EngineError(f"vLLM ended the answer early ({reason}).")
                    yield Piece(part.text, len(part.token_ids), "" if reason is None else _REASONS[reason])
        except (EngineDeadError, EngineGenerateError) as error:
            raise EngineError(f"vLLM cannot generate: {error}") from error

    async def stop(self) -> None:
        if self._llm is not None:
            self._llm.shutdown()


def create(settings: Settings) -> VllmEngine:
    return VllmEngine(settings)
