"""A conversation with a model behind OpenAI's API: one that `launcher serve` serves, or any other URL."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from launcher.errors import LauncherError, UsageError
from launcher.json_object import json_object
from launcher.loopback import is_loopback
from launcher.products.models.inference import served
from launcher.products.models.inference.serve import KEY_VARIABLE, name_of, read_key

NO_CHAT_TEMPLATE = "no_chat_template"
"""The code of the error of trainer/serving/openai_api.py for a model that has no chat template."""
_TEXT_TOKENS = 100
# The next piece may take long: many requests may be in front of this one.
_TIMEOUT = urllib3.Timeout(connect=10, read=600)


class Refused(LauncherError):
    """The model refused a message, such as one that is too long. The conversation continues without it."""


@dataclass(frozen=True)
class Options:
    """How answers are generated. Without `max_tokens`, an answer of a model with a chat template can fill the context,
    and one of a model without has at most 100 tokens."""

    system: str = ""
    max_tokens: int | None = None
    temperature: float = 0.8


def connect(name: str | None, url: str | None, *, key_file: str | None = None) -> served.Record:
    """Return where a model is served: the model `name` of this machine, or that behind a URL.

    The API key for a URL is in `key_file` or SLIPWAY_API_KEY. Raises LauncherError if nothing answers there.
    """
    if url is None:
        if name is None:
            raise UsageError("Give the NAME of a model that launcher serve serves, or --url URL.")
        if key_file is not None:
            raise UsageError("--api-key-file is for --url; launcher serve has stored the key of its model.")
        served_model = served.find(name) or served.find(name_of(name))
        if served_model is None:
            others = ", ".join(served.names())
            raise LauncherError(
                f"No model {name} is served on this machine{f', only {others}' if others else ''}.",
                f"To serve it: launcher serve {name}. For a model elsewhere, give its URL: --url URL",
            )
        return served_model
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--url {url} is not a URL; give one such as http://127.0.0.1:8000/v1.")
    base = url.rstrip("/").removesuffix("/v1")
    record = served.Record(name or "", base, read_key(key_file) or "")
    if name is None:
        models = _Client(record).models()
        if not models:
            raise LauncherError(f"{base} serves no model.")
        record = served.Record(models[0], base, record.key)
    return record


class Chat:
    """A conversation. `on_text` is called once if the model has no chat template, so that it continues a text."""

    def __init__(self, record: served.Record, options: Options, on_text: Callable[[], None] = lambda: None) -> None:
        self.model = record.model
        self._client, self._options, self._on_text = _Client(record), options, on_text
        self._has_template = True
        self.restart()

    def restart(self) -> None:
        """Begin a new conversation."""
        system = self._options.system
        self._messages = [{"role": "system", "content": system}] if system else []
        self._text = f"{system}\n" if system else ""

    def send(self, message: str) -> Generator[str]:
        """Yield the pieces of the answer. If the caller stops, the model stops, and the answer ends there.

        Raises Refused if the model refuses the message, which is then not a part of the conversation.
        """
        if self._has_template:
            asked = [*self._messages, {"role": "user", "content": message}]
            try:
                yield from self._answer("chat/completions", {"messages": asked}, self._options.max_tokens, asked)
            except _NoTemplate:
                self._has_template = False
                self._on_text()
            else:
                return
        limit = self._options.max_tokens or _TEXT_TOKENS
        yield from self._answer("completions", {"prompt": self._text + message}, limit, None)

    def _answer(
        self, endpoint: str, body: Mapping[str, Any], limit: int | None, asked: list[dict[str, str]] | None
    ) -> Iterator[str]:
        body = {**body, "model": self.model, "temperature": self._options.temperature, "stream": True}
        pieces: list[str] = []
        begun = False
        try:
            for piece in self._client.stream(endpoint, body | ({"max_tokens": limit} if limit else {})):
                begun = True
                if piece:
                    pieces.append(piece)
                    yield piece
        finally:
            if begun and asked is not None:
                self._messages = [*asked, {"role": "assistant", "content": "".join(pieces)}]
            elif begun:
                self._text = f"{body['prompt']}{''.join(pieces)}\n"


class _NoTemplate(Exception):
    """The model has no chat template."""


class _Client:
    def __init__(self, record: served.Record) -> None:
        self._base, self._key = record.url, record.key
        parts = urlsplit(record.url)
        host = parts.hostname or ""
        # A proxy cannot reach this machine's loopback.
        proxy = "" if is_loopback(host) or proxy_bypass(host) else getproxies().get(parts.scheme, "")
        self._pool = urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager()

    def models(self) -> list[str]:
        with self._request("GET", "models") as response:
            answer = json_object(response.data) or {}
        listed = answer.get("data")
        return [str(one.get("id")) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []

    def stream(self, endpoint: str, body: Mapping[str, Any]) -> Iterator[str]:
        """Yield the texts of the events of an answer, which can be empty."""
        with self._request("POST", endpoint, body) as response:
            try:
                for line in response:
                    name, _, text = line.decode(errors="replace").partition(":")
                    if name != "data":
                        continue
                    if text.strip() == "[DONE]":
                        return
                    yield self._piece(json_object(text) or {})
            except urllib3.exceptions.HTTPError as error:
                raise LauncherError(f"The answer of {self._base} is incomplete: the connection ended.") from error
        raise LauncherError(f"The answer of {self._base} is incomplete: it has no end.")

    def _piece(self, event: Mapping[str, Any]) -> str:
        if error := event.get("error"):
            raise LauncherError(f"The answer of {self._base} is incomplete: {_message(error)}")
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        delta = choice.get("delta")
        content = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        return content if isinstance(content, str) else ""

    @contextlib.contextmanager
    def _request(
        self, method: str, endpoint: str, body: Mapping[str, Any] | None = None
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        try:
            response = self._pool.request(
                method,
                f"{self._base}/v1/{endpoint}",
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                preload_content=False,
                timeout=_TIMEOUT,
                retries=False,
                redirect=False,
            )
        except (urllib3.exceptions.LocationValueError, ValueError) as error:
            raise LauncherError(f"{self._base} cannot be used: {_reason(error)}.") from error
        except urllib3.exceptions.HTTPError as error:
            raise LauncherError(
                f"{self._base} does not answer: {_reason(error)}.", "Check that the model is still served there."
            ) from error
        with contextlib.closing(response):
            if response.status != HTTPStatus.OK:
                raise self._error(response)
            yield response

    def _error(self, response: urllib3.BaseHTTPResponse) -> Exception:
        try:
            error = (json_object(response.data) or {}).get("error")
        except urllib3.exceptions.HTTPError:
            error = None
        code = response.status
        if code == HTTPStatus.UNAUTHORIZED:
            hint = f"Set {KEY_VARIABLE} to the API key of the model, or use --api-key-file FILE."
            return LauncherError(f"{self._base} rejects the API key.", hint)
        if isinstance(error, dict) and error.get("code") == NO_CHAT_TEMPLATE:
            return _NoTemplate()
        message = f"{self._base} answers with status {code}: {_message(error)}"
        return Refused(message) if code in (400, 413, 422) else LauncherError(message)


def _message(error: Any) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(text).split())[:500] if text else "there is no message."


def _reason(error: BaseException) -> str:
    """Return the last cause of an error of urllib3, whose own text is that of many layers."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    for link in reversed(causes):
        if isinstance(link, OSError) and link.errno:
            return os.strerror(link.errno) if link.errno > 0 else str(link.strerror)
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
