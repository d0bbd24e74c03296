"""Renders conversations with a chat template, and marks the tokens that the loss counts: those of the answers.

A token counts if the model would generate it: the text after the generation prompt of each turn of the assistant, up to
and with the token that ends the turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError
from trainer.tuning.examples import BadRowError, Example, Message

PLAIN = "plain"
"""The name of a template for models without one, such as those trained on plain text."""
_PLAIN = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}{{ 'Answer: ' + message.content | trim + eos_token + '\n' }}"
    "{% else %}{{ ('System: ' if message.role == 'system' else 'Question: ') + message.content | trim + '\n' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Answer:' }}{% endif %}"
)
_DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""The day that a template with strftime_now writes, so that a run resumes with the same tokens on another day.

It is the default of Llama 3's template.
"""
_UNWRITTEN = "which the chat template does not write; set tuning.template to one for tools, or remove the row"
ALL, LAST = "all", "last"
"""Which turns of the assistant count."""


@dataclass(frozen=True)
class Tokens:
    """The tokens of a conversation; `counted` has 1 for each token that the loss counts, otherwise 0.

    `text` is the conversation, and `starts` is the position of each token in it.
    """

    ids: list[int]
    counted: list[int]
    text: str = ""
    starts: list[int] = field(default_factory=list)


class ChatTemplate:
    """A tokenizer of transformers with a chat template. `turns` is ALL or LAST."""

    def __init__(self, tokenizer: Any, template: str, turns: str = ALL) -> None:
        self.tokenizer = tokenizer
        self.text = named(template) if template else _own(tokenizer)
        self._turns = turns

    def tokens(self, example: Example) -> Tokens:
        """Return the tokens of an example. Raises BadRowError if the template cannot render it."""
        self.check(example)
        text = self._render(example, example.messages)
        if unwritten := [name for name in map(_name, example.tools or ()) if name not in text]:
            raise BadRowError(f"has the tool {unwritten[0]}, {_UNWRITTEN}")
        spans = self._spans(example, text)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        counted = [
            int(any(start <= first and last <= end for start, end in spans) and last > first)
            for first, last in encoded["offset_mapping"]
        ]
        return Tokens(encoded["input_ids"], counted, text, [first for first, _ in encoded["offset_mapping"]])

    def check(self, example: Example) -> None:
        """Raise BadRowError if a message has a special token."""
        for number, message in enumerate(example.messages):
            written = [value for key, value in message.items() if key != "role"]
            if match := self._any_special.search(json.dumps(written, ensure_ascii=False, default=str)):
                raise BadRowError(
                    f"has the special token {match[0]} in the text of message {number}; remove it: the tokenizer would "
                    "read it as the end of a turn, or as another command"
                )

    def prompt(self, text: str) -> list[int]:
        """Return the tokens of a user's message, up to where the answer starts."""
        asked = Example([{"role": "user", "content": text}])
        rendered = self._render(asked, asked.messages, generation_prompt=True)
        return list(self.tokenizer(rendered, add_special_tokens=False)["input_ids"])

    def _spans(self, example: Example, text: str) -> list[tuple[int, int]]:
        """Return the parts of the rendered text that count."""
        messages = example.messages
        answers = [
            number
            for number, message in enumerate(messages)
            if number >= example.first and message["role"] == "assistant" and message.get("weight", 1)
        ]
        spans = []
        if answers[:1] == [0]:
            raise BadRowError("begins with an answer, which has no question; remove the first message, or the row")
        for number in answers if self._turns == ALL else answers[-1:]:
            prompt = self._render(example, messages[:number], generation_prompt=True)
            if not text.startswith(prompt):
                raise BadRowError(
                    f"has an answer (message {number}) that the chat template renders differently when others follow; "
                    f"set tuning.turns: {LAST}, which counts the last answer only"
                    if number != answers[-1]
                    else f"has an answer (message {number}) whose prompt the chat template renders differently without "
                    "it; set tuning.template to a template that does not"
                )
            spans.append((len(prompt), self._end(text, len(prompt), messages[number])))
            answer = text[slice(*spans[-1])]
            if unwritten := [name for name in map(_name, messages[number].get("tool_calls", ())) if name not in answer]:
                raise BadRowError(f"has a call of {unwritten[0]} (message {number}), {_UNWRITTEN}")
        return spans

    def _end(self, text: str, start: int, answer: Message) -> int:
        """Return where the turn ends that starts at `start`: after the token that ends it, if there is one."""
        content = str(answer.get("content") or "").strip()
        at = text.find(content, start)
        end = self._end_of_turn.search(text, at + len(content) if at >= 0 else start)
        return end.end() if end else len(text)

    @cached_property
    def _end_of_turn(self) -> re.Pattern[str]:
        """Match the special token that follows the text of an answer."""
        answer = Example([{"role": "user", "content": "a"}, {"role": "assistant", "content": "\u00e6"}])
        text = self._render(answer, answer.messages)
        rest = text[text.rfind("\u00e6") + 1 :]
        ends = [token for token in self._special_tokens if token in rest]
        if not ends:
            raise ConfigError(
                "tuning.template: the chat template writes no special token after an answer, so the model would never "
                "stop; set a template that does."
            )
        return re.compile(re.escape(min(ends, key=rest.index)))

    @cached_property
    def _special_tokens(self) -> list[str]:
        added = self.tokenizer.added_tokens_decoder.values()
        return sorted({*self.tokenizer.all_special_tokens, *(str(token) for token in added if token.special)})

    @cached_property
    def _any_special(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self._special_tokens, key=len, reverse=True))) or r"(?!)")

    def _render(self, example: Example, messages: list[Message], *, generation_prompt: bool = False) -> str:
        import jinja2

        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages,
                    tools=example.tools,
                    chat_template=self.text,
                    tokenize=False,
                    add_generation_prompt=generation_prompt,
                    strftime_now=_DATE.strftime,
                )
            )
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"tuning.template: line {error.lineno}: {error.message}.") from error
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise BadRowError(
                f"is refused by the chat template: {str(error).rstrip('.')}; change the row, or set tuning.template"
            ) from error


def _name(tool: Any) -> str:
    """Return the name of the function in a definition or a call of a tool."""
    function = tool.get("function") or tool if isinstance(tool, Mapping) else {}
    return str(function.get("name") or "") if isinstance(function, Mapping) else ""


def named(template: str) -> str:
    """Return the text of PLAIN, of a Jinja text, or of a file. Raises ConfigError if it cannot be read."""
    if template == PLAIN:
        return _PLAIN
    if "{" in template:
        return template
    try:
        return Path(template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"tuning.template: {template} is not a file that can be read: {error}.") from error


def _own(tokenizer: Any) -> str:
    """Return the template of a tokenizer. Raises ConfigError if it has none."""
    own = tokenizer.chat_template
    own = own.get("default") if isinstance(own, Mapping) else own
    if not own:
        raise ConfigError(
            "tuning.template is empty, and the tokenizer has no chat template; set it to a Jinja file, or to "
            f"{PLAIN} (Question: ..., Answer: ...)."
        )
    return str(own)
