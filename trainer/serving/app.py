"""The application of Ray Serve: `trainer.serving.app:build`, which charts/serve names in serveConfigV2.

Annotations are not postponed in this module: FastAPI reads those of `answer`, and cannot resolve them as text after Ray
has sent the class to a replica.
"""

import os
from typing import Any

from fastapi import FastAPI, Request
from ray import serve

from trainer.serving.engines import check, engine_for
from trainer.serving.openai_api import Api
from trainer.serving.settings import Settings

KEY_VARIABLE = "SLIPWAY_API_KEY"
_app = FastAPI(openapi_url=None)


@serve.deployment(name="Model")
@serve.ingress(_app)
class Model:
    """A replica: one engine and the API in front of it. It is ready after it has generated a token."""

    async def __init__(self, settings: Settings) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        key = os.environ.get(KEY_VARIABLE) or None
        if settings.require_api_key and key is None:
            raise ValueError(f"{KEY_VARIABLE} is not set; name the Secret with the API key in serve.apiKey.")
        self._engine = engine_for(settings)
        await self._engine.start()
        self._api = Api(self._engine, settings.name, key if settings.require_api_key else None)
        await self.check_health()

    async def check_health(self) -> None:
        """Generate a token. Ray Serve calls this, and replaces the replica if it raises an error."""
        await check(self._engine)

    @_app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "DELETE"])  # type: ignore[untyped-decorator]
    async def answer(self, request: Request) -> Any:
        return await self._api.handle(request)

    async def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None:
            await engine.stop()


def build(arguments: dict[str, Any]) -> serve.Application:
    """Return the application for the arguments of charts/serve."""
    return Model.bind(Settings.of(arguments))  # type: ignore[attr-defined]
