"""vLLM as an engine, on TPUs and GPUs.

Neither runs where these tests run, so no test imports this module: it follows vLLM's documentation of AsyncLLM, and how
Ray Serve LLM passes a placement group to vLLM.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence

import ray
from transformers import AutoTokenizer
from vllm import SamplingParams, TokensPrompt
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from trainer.serving.engines import EngineError, Piece, Sampling
from trainer.serving.settings import Settings


class VllmEngine:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._llm: AsyncLLM | None = None
        self.tokenizer = AutoTokenizer.from_pretrained(settings.model)
        self.context_length = settings.context_length

    async def start(self) -> None:
        settings = self._settings
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
            seed=sampling.seed,
            stop=list(sampling.stop),
            output_kind=RequestOutputKind.DELTA,
        )
        # vLLM aborts the request if the iterator is closed.
        async for output in self._llm.generate(
            TokensPrompt(prompt_token_ids=list(prompt)), parameters, uuid.uuid4().hex
        ):
            (part,) = output.outputs
            reason = part.finish_reason or ""
            yield Piece(part.text, len(part.token_ids), "length" if reason == "length" else "stop" if reason else "")

    async def stop(self) -> None:
        if self._llm is not None:
            self._llm.shutdown()


def create(settings: Settings) -> VllmEngine:
    return VllmEngine(settings)
