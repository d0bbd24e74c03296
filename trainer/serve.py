"""python -m trainer.serve: serve a model with OpenAI's API on a loopback port, until it is stopped.

The model is in a Hugging Face folder, or is a checkpoint of a run. The first line of stdin is the API key, because
other users can see the arguments of a process. When the model has generated a token, the program prints a line with
SERVING_PREFIX and JSON: the port, the name of the model, its context, and whether it has a chat template.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from trainer.errors import ConfigError
from trainer.inference.exported import add_source, model_folder
from trainer.metrics import print_line
from trainer.serving.engines import check
from trainer.serving.openai_api import Api

SERVING_PREFIX = "SLIPWAY_SERVING "
_LOOPBACK = "127.0.0.1"


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code. 2: the model cannot be served; stderr has the sentence."""
    arguments = _parser().parse_args(argv)
    try:
        with _bound(arguments.port) as listener:
            asyncio.run(_serve(arguments, listener, _read_key()))
    except ConfigError as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)  # noqa: T201 - the message
        return 2
    return 0


class _Server(uvicorn.Server):  # type: ignore[misc]  # mypy does not read uvicorn's types
    """Prints `line` when it accepts requests."""

    def __init__(self, config: uvicorn.Config, line: str) -> None:
        super().__init__(config)
        self._line = line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            print_line(self._line)


async def _serve(arguments: argparse.Namespace, listener: socket.socket, key: str) -> None:
    # The folder has everything: nothing is requested from the Hub. huggingface_hub reads this when it is imported.
    os.environ["HF_HUB_OFFLINE"] = "1"
    from trainer.serving.mlx_engine import MlxEngine

    failed = asyncio.Event()
    loop = asyncio.get_running_loop()
    engine = MlxEngine(
        str(model_folder(arguments)),
        limit=arguments.context_length,
        at_once=arguments.at_once,
        on_failure=lambda: loop.call_soon_threadsafe(failed.set),
    )
    await engine.start()
    await check(engine)
    api = Api(engine, arguments.name, key)
    methods = ["GET", "POST", "PUT", "DELETE"]
    app = Starlette(routes=[Route("/{path:path}", api.handle, methods=methods)])
    port = listener.getsockname()[1]
    ready: dict[str, Any] = {
        "port": port,
        "model": arguments.name,
        "context": engine.context_length,
        "chat": bool(getattr(engine.tokenizer, "chat_template", None)),
    }
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    server = _Server(config, SERVING_PREFIX + json.dumps(ready))

    async def end_with_the_engine() -> None:
        await failed.wait()
        server.should_exit = True

    watching = asyncio.create_task(end_with_the_engine())
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
        await engine.stop()
    if engine.failure is not None:
        raise ConfigError(f"The engine has ended: {engine.failure}") from engine.failure


def _bound(port: int) -> socket.socket:
    """Return a socket of the port, on loopback only. It does not accept connections yet."""
    listener = socket.socket()
    # A port can be used again at once after the end of another server.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"The port {port} of this machine cannot be used: {error.strerror}.") from error
    return listener


def _read_key() -> str:
    key = sys.stdin.readline().strip()
    if not key:
        raise ConfigError("The API key, the first line of stdin, is empty.")
    return key


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.serve", description=__doc__)
    add_source(parser)
    parser.add_argument("--name", required=True, help="the model's name in requests")
    parser.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    parser.add_argument(
        "--context-length",
        type=int,
        default=8192,
        metavar="N",
        help="the most tokens of a request and its answer, if the model's context is longer",
    )
    parser.add_argument("--at-once", type=int, default=8, metavar="N", help="the requests that are computed in turn")
    return parser


if __name__ == "__main__":
    sys.exit(main())
