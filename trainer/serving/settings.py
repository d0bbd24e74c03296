"""The arguments of the application, as charts/serve writes them into Ray Serve's config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True)
class Settings:
    """What is served, and how.

    `model` is a folder or a name on Hugging Face, `name` the model's name in requests. `context_length` is the maximum
    number of tokens of a request and its answer; 0: that of the model. The last three are of vLLM only: the number of
    chips of a replica, the number of their hosts, and additional arguments of the engine.
    """

    model: str
    name: str
    engine: str
    require_api_key: bool
    context_length: int = 0
    dtype: str = "auto"
    max_requests: int = 64
    tensor_parallel_size: int = 1
    hosts: int = 1
    engine_args: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the settings in the arguments. Raises ValueError with a sentence that names a wrong argument."""
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(arguments) - known):
            raise ValueError(f"The application has no argument {unknown[0]}; it has {', '.join(sorted(known))}.")
        required = {each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING}
        if missing := sorted(required - set(arguments)):
            raise ValueError(f"The application requires the argument {missing[0]}.")
        settings = cls(**arguments)
        if settings.engine not in ("vllm", "mlx"):
            raise ValueError(f"The engine must be vllm or mlx, not {settings.engine}.")
        return settings
