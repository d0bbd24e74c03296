"""The tokenizer of a run as files that transformers.AutoTokenizer loads: it returns the ids of the training."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPACE = "\u2581"  # how sentencepiece writes a space
# Texts that a conversion can get wrong: spaces at the ends and in rows, lines, tabs, digits, accents that are composed
# or not, scripts without spaces, and characters that no piece has.
_SAMPLES = (
    "Hello world",
    " two  leading   runs of    spaces ",
    "def f(x):\n    return x + 1\n\n\n\tprint('a\tb')\r\n",
    "1234567890 3.14 0x1F",
    "caf\u00e9 cafe\u0301 na\u00efve \u00dcberma\u00df \ufb01n \u2460 \uff21\uff22",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0 \u4e2d\u6587 \ud55c\uad6d\uc5b4",
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\U0001f600\U0001f469\u200d\U0001f680 \u00a0\u2003\u200b|",
    "don't I'LL we've https://example.com/a?b=c&d=%20 <b>x</b> {}[]",
    "",
)


@dataclass(frozen=True)
class Tokens:
    """The ids of the special tokens; None if the tokenizer has none."""

    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    size: int = 0


def write(path: str, kind: str, folder: Path, *, add_bos: bool = False, add_eos: bool = False) -> Tokens:
    """Write tokenizer.json and tokenizer_config.json. Raises ConfigError if there is no tokenizer.

    `add_bos` and `add_eos` are MaxText's keys: the special tokens that it adds to a text.
    """
    if kind != "huggingface" and not Path(path).is_file():
        raise ConfigError(
            f"data.tokenizer.path: {path} is not a file here; copy the run's tokenizer there, and start again."
        )
    match kind:
        case "sentencepiece":
            return _from_sentencepiece(Path(path), folder, add_bos=add_bos, add_eos=add_eos)
        case "tiktoken":
            return _from_tiktoken(Path(path), folder, add_bos=add_bos)
        case "huggingface":
            return _copy(path, folder)
    raise ConfigError(f"data.tokenizer.kind: {kind} is not known; use sentencepiece, tiktoken or huggingface.")


def _from_sentencepiece(path: Path, folder: Path, *, add_bos: bool, add_eos: bool) -> Tokens:
    import sentencepiece
    import tokenizers

    try:
        original = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"data.tokenizer.path: {path} is not a sentencepiece model.") from error
    converted = _convert(original, path)
    pieces = original.vocab_size()
    bos, eos, pad = (each if each >= 0 else None for each in (original.bos_id(), original.eos_id(), original.pad_id()))
    for text in _SAMPLES:
        ids = converted.encode(text, add_special_tokens=False).ids
        if ids != original.encode(text):
            raise ConfigError(
                f"data.tokenizer.path: the tokenizer {path} cannot be converted: for the text {text!r} it returns "
                f"{original.encode(text)}, and the converted one {ids}."
            )
    if add_bos and bos is not None:
        token = original.id_to_piece(bos)
        converted.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, bos)]
        )
    special = {
        name: original.id_to_piece(number) if number is not None else None
        for name, number in (
            ("bos_token", bos),
            ("eos_token", eos),
            ("pad_token", pad),
            ("unk_token", original.unk_id()),
        )
    }
    _save(converted, folder, special, add_bos=add_bos and bos is not None)
    return Tokens(bos, eos, pad, pieces)


def _convert(original: Any, path: Path) -> Tokenizer:
    """Return a sentencepiece model as a tokenizer of the library `tokenizers`."""
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(path.read_bytes())
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    model: Any
    if trainer.model_type == trainer.BPE:
        vocabulary = {piece.piece: number for number, piece in enumerate(proto.pieces)}
        model = models.BPE(
            vocabulary,
            _merges(proto, vocabulary),
            unk_token=proto.pieces[original.unk_id()].piece,
            fuse_unk=True,
            byte_fallback=trainer.byte_fallback,
            ignore_merges=False,
        )
    elif trainer.model_type == trainer.UNIGRAM:
        model = models.Unigram(
            [(piece.piece, piece.score) for piece in proto.pieces], original.unk_id(), trainer.byte_fallback
        )
    else:
        raise ConfigError(f"data.tokenizer.path: {path} has neither the type BPE nor unigram; it cannot be converted.")
    converted = Tokenizer(model)
    steps: list[Any] = []
    if normalizer.precompiled_charsmap:
        steps.append(normalizers.Precompiled(normalizer.precompiled_charsmap))
    if normalizer.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if normalizer.add_dummy_prefix:
        steps.append(normalizers.Prepend(_SPACE))
    steps.append(normalizers.Replace(" ", _SPACE))
    converted.normalizer = normalizers.Sequence(steps)
    ends: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if normalizer.add_dummy_prefix:
        ends.append(decoders.Strip(" ", 1, 0))
    converted.decoder = decoders.Sequence(ends)
    control = [piece.piece for piece in proto.pieces if piece.type in (kinds.CONTROL, kinds.UNKNOWN)]
    converted.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in control])
    defined = [piece.piece for piece in proto.pieces if piece.type == kinds.USER_DEFINED]
    converted.add_tokens([AddedToken(each, normalized=True, special=False) for each in defined])
    return converted


def _merges(proto: Any, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """Return the pairs of pieces that make a piece, best first: sentencepiece merges the pair with the best result.

    It merges the leftmost of equal pairs, as in rows of spaces, whose pieces all have the same score in some models.
    The leftmost piece has grown the longest then, so pairs with a longer left part come first.
    """
    scored: list[tuple[float, int, int, str, str]] = []
    for piece in proto.pieces:
        text = piece.piece
        if piece.type != piece.NORMAL:  # merges result in normal pieces only
            continue
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in vocabulary and right in vocabulary:
                scored.append((-piece.score, -len(left), vocabulary[left], left, right))
    scored.sort()
    return [(left, right) for *_, left, right in scored]


def _from_tiktoken(path: Path, folder: Path, *, add_bos: bool) -> Tokens:
    import tokenizers
    from maxtext.input_pipeline.tokenizer import TikTokenTokenizer

    original = TikTokenTokenizer(str(path), add_bos=False, add_eos=False)
    converted = _of_ranks(original.model._mergeable_ranks, original.pat_str)
    converted.add_special_tokens(
        [tokenizers.AddedToken(each, normalized=False, special=True) for each in original.special_tokens]
    )
    for text in _SAMPLES:
        if (ids := converted.encode(text, add_special_tokens=False).ids) != (expected := original.encode(text)):
            raise ConfigError(
                f"data.tokenizer.path: the tokenizer {path} cannot be converted: for the text {text!r} it returns "
                f"{expected}, and the converted one {ids}."
            )
    bos, eos = "<|begin_of_text|>", "<|end_of_text|>"
    if add_bos:
        converted.post_processor = tokenizers.processors.Sequence(
            [
                tokenizers.processors.ByteLevel(trim_offsets=False),
                tokenizers.processors.TemplateProcessing(
                    single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, original.bos_id)]
                ),
            ]
        )
    _save(converted, folder, {"bos_token": bos, "eos_token": eos}, add_bos=add_bos)
    return Tokens(original.bos_id, original.eos_id, None, original.n_words)


def _of_ranks(ranks: Mapping[bytes, int], pattern: str) -> Tokenizer:
    """Return a tokenizer of bytes: `pattern` splits a text into words, and the pair with the lowest rank is merged."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    # The library has a character for each byte, as GPT-2: that of the byte itself if it is printable.
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    characters = [chr(byte if byte in printable else next(others)) for byte in range(256)]

    def text(token: bytes) -> str:
        return "".join(characters[byte] for byte in token)

    merges = [
        (rank, ranks[token[:cut]], ranks[token[cut:]], text(token[:cut]), text(token[cut:]))
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
    merges.sort()
    # A word that is a token is not split, even if no merges lead to it.
    converted = Tokenizer(
        models.BPE(
            {text(token): rank for token, rank in ranks.items()},
            [(left, right) for *_, left, right in merges],
            ignore_merges=True,
        )
    )
    converted.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    converted.decoder = decoders.ByteLevel()
    return converted


def _copy(path: str, folder: Path) -> Tokens:
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, token=os.environ.get("HF_TOKEN"))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"data.tokenizer.path: the tokenizer {path} cannot be loaded ({str(error).splitlines()[0].rstrip('.')}); "
            "check the path, or set HF_TOKEN if it is private."
        ) from error
    tokenizer.save_pretrained(folder)
    return Tokens(tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, len(tokenizer))


def _save(converted: Tokenizer, folder: Path, special: dict[str, str | None], *, add_bos: bool) -> None:
    converted.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": add_bos,
        # The training ends each document with the token; a prompt has no end.
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        **{name: token for name, token in special.items() if token is not None},
    }
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
