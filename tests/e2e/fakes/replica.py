"""A replica of a served model as a process of this machine: the engine and the API of trainer.serving, without Ray.

    python replica.py PORT   (the arguments of the application, as JSON, are the first line of stdin)

tests/trainer/test_serving.py runs the same application under the real Ray Serve. Here, each pod would need a Ray node,
whose start takes longer than all that the suite does with a model.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from trainer.serving.engines import check, engine_for
from trainer.serving.openai_api import Api
from trainer.serving.settings import Settings


async def main(port: int, settings: Settings) -> None:
    if settings.require_api_key:  # the API server's proxy, by which the suite reaches a model, removes keys
        raise ValueError("The fakes serve no model with an API key.")
    engine = engine_for(settings)
    await engine.start()
    await check(engine)
    api = Api(engine, settings.name, None)

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("success")  # as Ray Serve's proxy, which the pods' readiness probe asks

    routes = [Route("/-/healthz", healthy), Route("/{path:path}", api.handle, methods=["GET", "POST"])]
    await uvicorn.Server(uvicorn.Config(Starlette(routes=routes), host="0.0.0.0", port=port)).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Settings.of(json.loads(sys.stdin.readline()))))
