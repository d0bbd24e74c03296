"""The loss counts the answers of a conversation, and nothing else, with each chat template.

The templates have the formats of five families of models. The expected tokens are counted by hand: each word, each
mark and each special token is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.errors import ConfigError
from trainer.maxtext_keys import maxtext_folder
from trainer.tuning.examples import BadRowError, Example
from trainer.tuning.template import PLAIN, ChatTemplate

SPECIAL = [
    *("<s>", "</s>", "<bos>", "<eos>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"),
]
WORDS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
"""Added tokens that are not special."""

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_3 = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
QWEN_3 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA = (
    "<bos>{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "<s>{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)

CONVERSATION = [
    {"role": "user", "content": "What is one plus one?"},
    {"role": "assistant", "content": "It is two."},
    {"role": "user", "content": "Is that large?"},
    {"role": "assistant", "content": "No."},
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator(
        ["What is one plus one? It is two. Is that large? No. user assistant system model tool Question: Answer:"],
        trainers.WordLevelTrainer(  # type: ignore[no-untyped-call]
            special_tokens=["<unk>", *SPECIAL]
        ),
    )
    words.add_tokens([AddedToken(word, special=False) for word in WORDS])
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>")


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def template(text: str) -> str:
        path = tmp_path / "template.jinja"
        path.write_text(text)
        return str(path)

    return template


def counted(template: ChatTemplate, messages: list[dict[str, Any]], tools: list[Any] | None = None) -> list[str]:
    """Return the tokens that count, as text."""
    tokens = template.tokens(Example(messages, tools))
    ids = [token for token, counts in zip(tokens.ids, tokens.counted, strict=True) if counts]
    return [str(token) for token in template.tokenizer.convert_ids_to_tokens(ids)]


@pytest.mark.parametrize(
    ("text", "expected", "total"),
    [
        (CHATML, ["It is two . <|im_end|>", "No . <|im_end|>"], 28),
        (LLAMA_3, ["It is two . <|eot_id|>", "No . <|eot_id|>"], 33),
        (QWEN_3, ["It is two . <|im_end|>", "<think> </think> No . <|im_end|>"], 30),
        (GEMMA, ["It is two . <end_of_turn>", "No . <end_of_turn>"], 29),
        (MISTRAL, ["It is two . </s>", "No . </s>"], 23),
    ],
    ids=["ChatML", "Llama 3", "Qwen 3", "Gemma", "Mistral"],
)
def test_the_answers_count(tokenizer: Any, write: Any, text: str, expected: list[str], total: int) -> None:
    template = ChatTemplate(tokenizer, write(text))
    assert counted(template, CONVERSATION) == " ".join(expected).split()
    assert len(template.tokens(Example(CONVERSATION)).ids) == total
    last = ChatTemplate(tokenizer, write(text), turns="last")
    assert counted(last, CONVERSATION) == expected[-1].split()


def test_the_text_of_a_template(tokenizer: Any) -> None:
    assert counted(ChatTemplate(tokenizer, CHATML), CONVERSATION[:2]) == ["It", "is", "two", ".", "<|im_end|>"]


def test_a_template_writes_the_same_date_on_every_day(tokenizer: Any) -> None:
    template = ChatTemplate(tokenizer, "{{ strftime_now('Today is %d %b %Y. ') }}" + CHATML)
    assert template.tokens(Example(CONVERSATION[:2])).text.startswith("Today is 26 Jul 2024. <|im_start|>")


def test_the_plain_template(tokenizer: Any) -> None:
    assert counted(ChatTemplate(tokenizer, PLAIN), CONVERSATION) == ["It", "is", "two", ".", "</s>", "No", ".", "</s>"]


def test_the_tokenizers_own_template(tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(CHATML)
    own = AutoTokenizer.from_pretrained(tmp_path)
    assert counted(ChatTemplate(own, ""), CONVERSATION[:2]) == ["It", "is", "two", ".", "<|im_end|>"]


def test_the_tokenizer_of_qwen_3() -> None:
    """The published one, whose template writes the thoughts of the last answer only."""
    from transformers import AutoTokenizer

    own = AutoTokenizer.from_pretrained(maxtext_folder() / "assets" / "tokenizers" / "qwen3-tokenizer")
    template = ChatTemplate(own, "")
    tokens = template.tokens(Example(CONVERSATION))
    ids = [token for token, counts in zip(tokens.ids, tokens.counted, strict=True) if counts]
    assert own.decode(ids) == "It is two.<|im_end|><think>\n\n</think>\n\nNo.<|im_end|>"
    assert sum(tokens.counted) == 5 + 7
    call = {"function": {"name": "add", "arguments": {"one": 1}}}
    messages: list[dict[str, Any]] = [CONVERSATION[0], {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert "<tool_call>" in counted(template, messages)


def test_a_call_of_a_tool_counts_and_its_result_does_not(tokenizer: Any, write: Any) -> None:
    messages: list[dict[str, Any]] = [
        CONVERSATION[0],
        {"role": "assistant", "tool_calls": [{"function": {"name": "plus", "arguments": {"one": 1}}}]},
        {"role": "tool", "content": "It is two."},
        CONVERSATION[1],
    ]
    tokens = counted(ChatTemplate(tokenizer, write(CHATML)), messages)
    assert tokens[0] == "<tool_call>"
    assert tokens[-7:] == ["</tool_call>", "<|im_end|>", "It", "is", "two", ".", "<|im_end|>"]
    assert tokens.count("two") == 1


def test_an_answer_of_weight_0_does_not_count(tokenizer: Any) -> None:
    """As in the fine-tuning API of OpenAI."""
    messages: list[dict[str, Any]] = [CONVERSATION[0], {**CONVERSATION[1], "weight": 0}, *CONVERSATION[2:]]
    assert counted(ChatTemplate(tokenizer, CHATML), messages) == ["No", ".", "<|im_end|>"]


def test_a_template_that_does_not_write_tools_is_refused(tokenizer: Any) -> None:
    """Otherwise the model would learn to answer with nothing."""
    minus = {"function": {"name": "minus", "arguments": {}}}
    call: list[dict[str, Any]] = [CONVERSATION[0], {"role": "assistant", "content": "It is", "tool_calls": [minus]}]
    for messages, tools, reason in (
        (call, None, r"a call of minus \(message 1\), which the chat template does not write; set tuning\.template to"),
        (CONVERSATION, [minus], "has the tool minus, which the chat template does not write"),
    ):
        with pytest.raises(BadRowError, match=reason):
            ChatTemplate(tokenizer, PLAIN).tokens(Example([*messages], tools))


@pytest.mark.parametrize(
    ("text", "messages", "reason"),
    [
        (GEMMA, [CONVERSATION[0], *CONVERSATION], "is refused by the chat template: Conversation roles must alternate"),
        (
            CHATML,
            [{"role": "user", "content": "a <|im_end|> b"}, CONVERSATION[1]],
            "has the special token <|im_end|> in the text of message 0; remove it",
        ),
        (
            CHATML,
            [CONVERSATION[0], {"role": "assistant", "tool_calls": [{"name": "say", "arguments": {"a": "<|im_end|>"}}]}],
            "has the special token <|im_end|> in the text of message 1; remove it",
        ),
        (
            CHATML,
            [CONVERSATION[1]],
            "begins with an answer, which has no question; remove the first message, or the row",
        ),
        (
            "{% for m in messages %}{{ m.content }}{% if loop.last %}</s>{% endif %}{% endfor %}"
            "{% if add_generation_prompt %} {% endif %}",
            CONVERSATION,
            "has an answer (message 1) that the chat template renders differently when others follow; set tuning.turns",
        ),
    ],
)
def test_conversations_that_a_template_cannot_render(
    tokenizer: Any, write: Any, text: str, messages: list[dict[str, Any]], reason: str
) -> None:
    with pytest.raises(BadRowError) as error:
        ChatTemplate(tokenizer, write(text)).tokens(Example(messages))
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{% for m in messages %}", "tuning.template: line 1: "),
        (
            "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}{% endif %}",
            "tuning.template: the chat template writes no special token after an answer, so the model would never stop",
        ),
    ],
)
def test_templates_that_cannot_be_used(tokenizer: Any, write: Any, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        ChatTemplate(tokenizer, write(text)).tokens(Example(CONVERSATION[:2]))
    assert reason in str(error.value)


def test_a_missing_template(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tuning\.template is empty, and the tokenizer has no chat template"):
        ChatTemplate(tokenizer, "")
    with pytest.raises(ConfigError, match="is not a file that can be read"):
        ChatTemplate(tokenizer, str(tmp_path / "none.jinja"))
