"""OpenAI's API for one model: /v1/chat/completions, /v1/completions and /v1/models, and /healthz.

A request field that would change the answer and is not supported is refused with status 400, and not ignored.
"""

from __future__ import annotations

import hmac
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import jinja2
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from trainer.serving.engines import Engine, EngineError, Sampling

_MAX_BODY_BYTES = 16 * 2**20
_DEFAULT_TOKENS = 16
"""The default of max_tokens in OpenAI's completions. A chat has none: the answer can fill the context."""


NO_CHAT_TEMPLATE = "no_chat_template"
"""The code of the error for a chat with a model that has no chat template. `launcher chat` reads it."""


class _StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class _Common(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)  # OpenAI's range, and that of torch
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    # Fields whose only supported value is the default.
    n: Literal[1] | None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logit_bias: None = None
    # Fields that do not change the answer.
    user: str | None = None
    metadata: Any = None
    store: bool | None = None
    service_tier: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)


class _TextPart(BaseModel):
    model_config = ConfigDict(extra="ignore")
    type: Literal["text"]
    text: str


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_TextPart]
    name: str | None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class _Chat(_Common):
    messages: list[_Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: Literal[False] | None = None
    response_format: dict[Literal["type"], Literal["text"]] | None = None


class _Completion(_Common):
    prompt: str | list[int] | list[str]
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    logprobs: None = None
    suffix: None = None


class _Refused(Exception):
    """The request cannot be answered; the text is a sentence for its sender."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.param, self.code = status, kind, param, code

    def response(self) -> JSONResponse:
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return JSONResponse(_error(str(self), self.kind, self.param, self.code), self.status, headers)


def _error(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class _Form:
    """How answers of one endpoint look: their id, and the names of their objects."""

    prefix: str
    whole: str
    part: str
    chat: bool

    def choice(self, text: str, reason: str | None, *, part: bool, first: bool = False) -> dict[str, Any]:
        common = {"index": 0, "finish_reason": reason, "logprobs": None}
        if not self.chat:
            return {**common, "text": text}
        if part:
            role = {"role": "assistant"} if first else {}
            return {**common, "delta": {**role, **({"content": text} if text or first else {})}}
        return {**common, "message": {"role": "assistant", "content": text, "refusal": None}}


_CHAT = _Form("chatcmpl", "chat.completion", "chat.completion.chunk", chat=True)
_COMPLETION = _Form("cmpl", "text_completion", "text_completion", chat=False)


class Api:
    """The endpoints of one model. `key` is the API key; None: requests need none."""

    def __init__(self, engine: Engine, name: str, key: str | None) -> None:
        self._engine = engine
        self._name = name
        self._key = None if key is None else key.encode()
        self._created = int(time.time())

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        path = request.url.path.rstrip("/")
        try:
            return await self._respond(path, request)
        except _Refused as refused:
            return refused.response()
        except EngineError as error:
            return JSONResponse(_error(str(error), "server_error"), 503)

    async def _respond(self, path: str, request: Request) -> Response:
        if path == "/healthz":
            self._allows(request, "GET")
            return JSONResponse({"status": "ok"})
        self._authenticate(request)
        if path == "/v1/models":
            self._allows(request, "GET")
            return JSONResponse({"object": "list", "data": [self._card()]})
        if path == f"/v1/models/{self._name}":
            self._allows(request, "GET")
            return JSONResponse(self._card())
        if path == "/v1/chat/completions":
            self._allows(request, "POST")
            return await self._chat(_parse(_Chat, await _body(request)))
        if path == "/v1/completions":
            self._allows(request, "POST")
            return await self._complete(_parse(_Completion, await _body(request)))
        raise _Refused(404, f"There is no {request.url.path}.", "not_found_error")

    def _allows(self, request: Request, method: str) -> None:
        if request.method != method:
            raise _Refused(405, f"{request.url.path} accepts {method}, not {request.method}.", "invalid_request_error")

    def _authenticate(self, request: Request) -> None:
        if self._key is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # compare_digest takes the same time for each key of the same length.
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._key):
            raise _Refused(401, "The API key is missing or wrong.", "authentication_error")

    def _card(self) -> dict[str, Any]:
        return {"id": self._name, "object": "model", "created": self._created, "owned_by": "slipway"}

    async def _chat(self, wanted: _Chat) -> Response:
        if not getattr(self._engine.tokenizer, "chat_template", None):
            message = f"The model {self._name} has no chat template; use /v1/completions."
            raise _Refused(400, message, "invalid_request_error", "messages", NO_CHAT_TEMPLATE)
        messages = [{"role": message.role, "content": message.text} for message in wanted.messages]
        try:
            text = self._engine.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except jinja2.TemplateError as error:  # the model's own code, which rejects, for example, a role
            raise _Refused(400, f"The chat template: {error}.", "invalid_request_error", "messages") from error
        # The template contains the special tokens.
        prompt = self._engine.tokenizer.encode(text, add_special_tokens=False)
        limit = wanted.max_completion_tokens or wanted.max_tokens
        return await self._answer(wanted, prompt, limit or self._engine.context_length, _CHAT)

    async def _complete(self, wanted: _Completion) -> Response:
        given = wanted.prompt
        if isinstance(given, list) and given and isinstance(given[0], str):
            if len(given) > 1:
                raise _Refused(400, "prompt: send one prompt in each request.", "invalid_request_error", "prompt")
            given = str(given[0])
        prompt = self._engine.tokenizer.encode(given) if isinstance(given, str) else [int(token) for token in given]
        if not isinstance(given, str) and not all(0 <= token < len(self._engine.tokenizer) for token in prompt):
            raise _Refused(400, "prompt has a token that the model does not have.", "invalid_request_error", "prompt")
        return await self._answer(wanted, prompt, wanted.max_tokens or _DEFAULT_TOKENS, _COMPLETION)

    async def _answer(self, wanted: _Common, prompt: Sequence[int], limit: int, form: _Form) -> Response:
        if wanted.model != self._name:
            message = f"The model {wanted.model} does not exist; this serves {self._name}."
            raise _Refused(404, message, "not_found_error", "model")
        room = self._engine.context_length - len(prompt)
        if not prompt:
            raise _Refused(400, "The prompt is empty.", "invalid_request_error", "prompt")
        if room < 1:
            message = f"The prompt has {len(prompt)} tokens; the model accepts {self._engine.context_length - 1}."
            raise _Refused(400, message, "invalid_request_error", "prompt")
        sampling = Sampling(
            max_tokens=min(limit, room),
            temperature=1.0 if wanted.temperature is None else wanted.temperature,
            top_p=1.0 if wanted.top_p is None else wanted.top_p,
            seed=wanted.seed,
            stop=wanted.stops,
        )
        about = {"id": f"{form.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": self._name}
        if wanted.stream:
            usage = wanted.stream_options is not None and wanted.stream_options.include_usage
            events = self._events({**about, "object": form.part}, prompt, sampling, form, usage=usage)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        texts, tokens, reason = [], 0, ""
        async with aclosing(self._engine.generate(prompt, sampling)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                texts.append(piece.text)
                tokens += piece.tokens
                reason = piece.finish_reason
        choice = form.choice("".join(texts), reason, part=False)
        return JSONResponse(
            {**about, "object": form.whole, "choices": [choice], "usage": _usage(len(prompt), tokens)},
        )

    async def _events(
        self, about: Mapping[str, Any], prompt: Sequence[int], sampling: Sampling, form: _Form, *, usage: bool
    ) -> AsyncIterator[str]:
        """Yield the events of a stream. After the first one the status is sent, so an error is an event, too."""
        tokens, first = 0, True
        try:
            async with aclosing(self._engine.generate(prompt, sampling)) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    tokens += piece.tokens
                    if piece.text or piece.finish_reason or first:
                        choice = form.choice(piece.text, piece.finish_reason or None, part=True, first=first)
                        yield _event({**about, "choices": [choice]})
                        first = False
        except EngineError as error:
            yield _event(_error(str(error), "server_error"))
            return
        if usage:
            yield _event({**about, "choices": [], "usage": _usage(len(prompt), tokens)})
        yield "data: [DONE]\n\n"


def _event(content: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def _usage(prompt: int, answer: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


async def _body(request: Request) -> bytes:
    """Return the body of a request, which can have at most 16 MiB."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > _MAX_BODY_BYTES:
            raise _Refused(413, "The request is larger than 16 MiB.", "invalid_request_error")
        parts.append(part)
    return b"".join(parts)


def _parse[T: BaseModel](kind: type[T], body: bytes) -> T:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            message = f"{where} is not supported."
        else:
            message = f"{where}: {first['msg']}." if where else f"The request is not valid JSON: {first['msg']}."
        raise _Refused(400, message, "invalid_request_error", where or None) from error
