"""Reads a row of a file as a conversation: a list of messages with roles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from trainer.data.text import cleaned
from trainer.errors import ConfigError

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
_OTHER_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant", "function": "tool"}
"""Roles of ShareGPT and of older data sets, and what they are called in chat templates."""
_COLUMNS = ("messages", "prompt", "completion", "chosen", "rejected", "instruction", "input", "output", "tools")
_FORMS = (("messages",), ("prompt", "completion"), ("instruction", "output"))
"""The columns that a row needs: the first form whose columns it has applies."""


@dataclass(frozen=True)
class Example:
    """A conversation; `tools` are the definitions that the template passes to the model.

    Answers before the message `first` do not count.
    """

    messages: list[Message]
    tools: list[Any] | None = None
    first: int = 0


@dataclass(frozen=True)
class Pair:
    """Two conversations that start with the same messages; people prefer the end of `chosen`."""

    chosen: Example
    rejected: Example


class BadRowError(ConfigError):
    """A row that is not a conversation. The reader adds its place."""


def example(row: Mapping[str, Any], columns: Mapping[str, str]) -> Example:
    """Return the conversation of a row. `columns` maps the names of Slipway to those of the file.

    Raises BadRowError for a row without the columns of a form, an unknown role, or an empty answer.
    """
    names, values = _named(row, columns)
    form = next((form for form in _FORMS if all(name in values for name in form)), None)
    if form is None:
        shown = [f"{key} (null)" if value is None else str(key) for key, value in row.items()]
        raise BadRowError(
            f"has none of the columns {', or '.join(' and '.join(names[name] for name in form) for form in _FORMS)} "
            f"(it has {', '.join(shown[:20]) or 'none'}); set tuning.columns"
        )
    if form == ("messages",):
        messages = _messages(values["messages"], names["messages"])
    elif form == ("prompt", "completion"):
        messages = _turn(values["prompt"], "user", names["prompt"])
        messages += _turn(values["completion"], "assistant", names["completion"])
    else:
        instruction, more = values["instruction"], values.get("input") or ""
        if not isinstance(instruction, str) or not isinstance(more, str):
            raise BadRowError(
                f'has a column "{names["instruction"]}" or "{names["input"]}" that is not text; write a text'
            )
        messages = [{"role": "user", "content": f"{instruction}\n\n{more}" if more else instruction}]
        messages += _turn(values["output"], "assistant", names["output"])
    if not any(message["role"] == "assistant" for message in messages):
        raise BadRowError("has no message of the assistant, so no token counts; remove the row")
    return Example(messages, _tools(values, names))


def pair(row: Mapping[str, Any], columns: Mapping[str, str]) -> Pair:
    """Return the pair of a row with a better and a worse answer. `columns` is as for `example`.

    Each is a text or a list of messages. The prompt is a column of its own, or the first messages of both lists. The
    messages that both share do not count. Raises BadRowError for a row without these columns, for a pair of the same
    answers, and as `example` does.
    """
    names, values = _named(row, columns)
    if missing := [names[name] for name in ("chosen", "rejected") if name not in values]:
        raise BadRowError(
            f"has no column {' and '.join(missing)} (it has {', '.join(list(map(str, row))[:20]) or 'none'}); "
            "set tuning.columns"
        )
    prompt = _turn(values["prompt"], "user", names["prompt"]) if "prompt" in values else []
    chosen, rejected = (_after(prompt, values[name], names[name], names) for name in ("chosen", "rejected"))
    if chosen == rejected:
        raise BadRowError(f"has the same {names['chosen']} and {names['rejected']}; remove the row")
    shared = next(at for at, (one, other) in enumerate(zip_longest(chosen, rejected)) if one != other)
    for name, messages in (("chosen", chosen), ("rejected", rejected)):
        if not any(message["role"] == "assistant" for message in messages[shared:]):
            raise BadRowError(f"has no answer in {names[name]} after the messages that both share; remove the row")
    tools = _tools(values, names)
    return Pair(Example(chosen, tools, shared), Example(rejected, tools, shared))


def _after(prompt: list[Message], value: Any, column: str, names: Mapping[str, str]) -> list[Message]:
    """Return the messages of a prompt and an answer. A list that starts with its own prompt is returned as it is."""
    if isinstance(value, str) and (prompt or not value.lstrip().startswith("[")):  # else a list as JSON
        if not prompt:
            raise BadRowError(
                f"has a column {column} that is text, and no column {names['prompt']} with the question; add it, or "
                "set tuning.columns"
            )
        return [*prompt, _message({"role": "assistant", "content": value}, column)]
    messages = _messages(value, column)
    return [*prompt, *messages] if messages[0]["role"] in ("assistant", "tool") else messages


def _named(row: Mapping[str, Any], columns: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the names of the columns in the file by ours, and the values of those that the row has."""
    names = {name: columns.get(name, name) for name in _COLUMNS}
    return names, {name: row[key] for name, key in names.items() if row.get(key) is not None}


def _tools(values: Mapping[str, Any], names: Mapping[str, str]) -> list[Any] | None:
    """Return the definitions of a row: a list of objects, each of which, as the list, can be a text with JSON."""
    tools = _parsed(values.get("tools"), names["tools"])
    if tools is not None and not isinstance(tools, list):
        raise BadRowError(f'has a column "{names["tools"]}" that is not a list of definitions; write one')
    return [_parsed(tool, names["tools"]) for tool in tools or ()] or None


def _turn(value: Any, role: str, column: str) -> list[Message]:
    """Return a text as one message of the role, or a list of messages as it is."""
    if not isinstance(value, str):
        return _messages(value, column)
    return [_message({"role": role, "content": value}, column)]


def _messages(value: Any, column: str) -> list[Message]:
    value = _parsed(value, column)
    if not isinstance(value, Sequence) or not value:
        raise BadRowError(
            f'has a column "{column}" that is not a list of messages; write objects with role and content'
        )
    return [_message(item, f"{column}[{number}]") for number, item in enumerate(value)]


def _message(value: Any, place: str) -> Message:
    if not isinstance(value, Mapping):
        raise BadRowError(f'has {place}, which is not an object with "role" and "content"; write it as one')
    message = {key: field for key, field in value.items() if field is not None}  # Parquet adds absent keys
    if "from" in message and "value" in message:  # ShareGPT
        message = {"role": message.pop("from"), "content": message.pop("value"), **message}
    role = message.get("role")
    role = _OTHER_ROLES.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise BadRowError(f'has {place} with the role "{role}"; the roles are {", ".join(ROLES)}; rename it')
    message["role"] = role
    if message.get("weight", 1) not in (0, 1):
        raise BadRowError(f"has {place} with the weight {message['weight']!r}; write 0 or 1, or remove it")
    if "content" in message:
        message["content"] = _text(message["content"], place)
    if "function_call" in message:  # the API of OpenAI before tools
        message["tool_calls"] = [{"type": "function", "function": message.pop("function_call")}]
    if "tool_calls" in message:
        message["tool_calls"] = _calls(_parsed(message["tool_calls"], f"{place}.tool_calls"), place)
    content = message.get("content")
    if not message.get("tool_calls") and (content is None or (role == "assistant" and not content.strip())):
        what = "an empty answer" if role == "assistant" else "which has no content"
        raise BadRowError(f"has {place}, {what}; remove the row")
    return message


def _text(content: Any, place: str) -> str:
    """Return the content of a message; the texts of a list of parts are joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    raise BadRowError(f"has {place}, whose content is not text; write the text only, or remove the row")


def _calls(calls: Any, place: str) -> list[Any]:
    """Return tool calls with their arguments as objects, which chat templates write as JSON."""
    if not isinstance(calls, list | None) or not all(isinstance(call, Mapping) for call in calls or ()):
        raise BadRowError(f"has {place}, whose tool_calls are not objects; write each as in the API of OpenAI")
    return [_call(call, f"{place}.tool_calls") for call in calls or ()]


def _call(call: Mapping[str, Any], column: str) -> dict[str, Any]:
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _call(call["function"], column)}
    return {**call, "arguments": _parsed(call.get("arguments") or {}, column)}


def _parsed(value: Any, column: str) -> Any:
    """Return a value, or what the JSON in a text is; None for an empty text."""
    if not isinstance(value, str):
        return value
    try:
        return cleaned(json.loads(value)) if value.strip() else None
    except (ValueError, RecursionError) as error:
        raise BadRowError(f'has a column "{column}" that is not valid JSON; fix or remove the row') from error
