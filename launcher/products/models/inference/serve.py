"""Serve the model of a run or of a Hugging Face folder on this machine, with OpenAI's API."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import LauncherError, UsageError
from launcher.json_object import json_object
from launcher.products.common.storage import is_path
from launcher.products.models.inference import child, memory, served
from launcher.products.models.inference.source import ClusterSource, Source, prepare
from launcher.trainer_output import SERVING_PREFIX

KEY_VARIABLE = "SLIPWAY_API_KEY"
_MODULE = "trainer.serve"
_LOOPBACK = "127.0.0.1"
_AT_ONCE = 8
_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Served:
    """A model that answers requests. `url` ends with /v1; `context` is the most tokens of a request and its answer.

    `chat` is whether the model has a chat template, and `wait` waits until the server ends, which is an error.
    """

    model: str
    step: int | None
    url: str
    key: str
    context: int
    chat: bool
    wait: Callable[[], None]


def name_of(name: str) -> str:
    """Return the name of a model in requests, by default: that of the run or of the folder."""
    return Path(name).expanduser().absolute().name if is_path(name) else name


def read_key(file: str | None) -> str | None:
    """Return the API key in a file, or in SLIPWAY_API_KEY; None if neither is given.

    Raises LauncherError if the file cannot be read, or the key is not one word of ASCII characters.
    """
    if file is not None:
        try:
            key, where = Path(file).expanduser().read_text(encoding="utf-8").strip(), file
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise LauncherError(f"The API key {file} cannot be read: {reason}.") from error
    else:
        key, where = os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE
        if not key:
            return None
    if not _KEY.fullmatch(key):
        raise LauncherError(f"{where} is not an API key: use one word of ASCII characters.")
    return key


@contextlib.contextmanager
def serve(
    source: Source | ClusterSource,
    *,
    model: str,
    port: int,
    context: int,
    key: str | None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Served]:
    """Serve the model until the end of the context. It is yielded when it has generated a token.

    `model` is its name in requests. `port` is the port on loopback, 0 for a free one. `context` is the most tokens of a
    request and its answer, if the model's context is longer. `key` is the API key, None for a new random one. Raises
    LauncherError if the model does not fit this machine, or if the port or the name is used.
    """
    if isinstance(source, ClusterSource):
        raise LauncherError(
            f"{source.name} is a run on a cluster, whose model this machine cannot serve.",
            f"To serve it on its cluster: launcher export {source.name}, and then launcher serve {source.name} -f FILE "
            "(docs/how-to/serve-a-model.md).",
        )
    if not model or not model.isprintable():
        raise UsageError("--name must be a name for the model in requests.")
    _check_port(port)
    key = key or secrets.token_urlsafe(24)
    with served.reserve(model) as record:
        prepare(source, context, extra=child.GENERATE, say=say)
        at_once = memory.requests_at_once(source.model, source.model_config(), context, _AT_ONCE)
        options = {"--name": model, "--port": port, "--context-length": context, "--at-once": at_once}
        say(f"Loading {source.label}.")
        arguments = [f"{option}={value}" for option, value in options.items()]
        lines = child.lines(_MODULE, [*source.arguments, *arguments], key + "\n")
        with contextlib.closing(lines):
            ready = None
            while ready is None:
                line = next(lines, None)
                if line is None:
                    raise LauncherError(f"The server of {model} ended before it was ready.")
                _, prefix, text = line.partition(SERVING_PREFIX)
                ready = json_object(text) if prefix else None

            def wait() -> None:
                for _ in lines:
                    pass
                raise LauncherError(f"The server of {model} ended.")

            url = f"http://{_LOOPBACK}:{ready['port']}"
            record.write(served.Record(model, url, key))
            yield Served(model, source.step, f"{url}/v1", key, int(ready["context"]), bool(ready["chat"]), wait)


def _check_port(port: int) -> None:
    """Raise LauncherError if the port cannot be used, before the model is exported and loaded."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError as error:
            used = error.errno == errno.EADDRINUSE
            reason = "is already in use" if used else f"cannot be used: {error.strerror}"
            raise LauncherError(f"The port {port} of this machine {reason}.", "Choose another: --port PORT") from error
