"""Convert generated tokens to text while they are generated, and find the texts at which to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# The decoder of a byte-level vocabulary returns this for bytes that are not UTF-8, such as half a character.
_INCOMPLETE = "\ufffd"
# A character has at most four bytes, and a token at least one.
_LONGEST_CHARACTER = 4
# The tokens of the prompt that the first new token is decoded with: tokenizers drop the space before the first word.
_BEFORE = 6


class TextStream:
    """The text of tokens that arrive one by one.

    A token alone does not determine its text: the space before a word depends on the token before it, and a character
    can take several tokens. So the stream decodes the last tokens together, and returns only whole characters.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(prompt[-_BEFORE:])
        self._start, self._shown = 0, len(self._tokens)

    def add(self, token: int) -> str:
        """Return the text that the token completes; "" if it ends in the middle of a character."""
        self._tokens.append(token)
        text = self._new()
        if text.endswith(_INCOMPLETE) and len(self._tokens) - self._shown < _LONGEST_CHARACTER:
            return ""
        self._start, self._shown = self._shown, len(self._tokens)
        return text

    def rest(self) -> str:
        """Return the text that is held back, after the last token."""
        text = self._new()
        self._shown = len(self._tokens)
        return text

    def _new(self) -> str:
        before = self._decode(self._tokens[self._start : self._shown])
        return self._decode(self._tokens[self._start :])[len(before) :]

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


class StopTexts:
    """Cuts a text at the first of several stop texts, which may arrive in parts."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found = False

    def add(self, text: str) -> str:
        """Return what is certainly before a stop text. An end that may begin one is held back."""
        if self.found:
            return ""
        self._held += text
        places = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if places:
            self.found = True
            text, self._held = self._held[: min(places)], ""
            return text
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text

    def rest(self) -> str:
        """Return what is held back, after the last text."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a beginning of `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
