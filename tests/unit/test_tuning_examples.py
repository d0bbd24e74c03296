"""Rows of the forms that people have become conversations, and other rows are refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainer.tuning.examples import BadRowError, example

QUESTION = {"role": "user", "content": "What is 1 plus 1?"}
ANSWER = {"role": "assistant", "content": "2"}
CALL = {"function": {"name": "add", "arguments": {"a": 1}}}


NAMELESS: list[dict[str, Any]] = [{}, {"function": {}}, {"function": "add"}, {"function": {"name": 5}}]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [QUESTION, ANSWER]},
        {"messages": [{"from": "human", "value": QUESTION["content"]}, {"from": "gpt", "value": "2"}]},
        {"messages": '[{"role": "user", "content": "What is 1 plus 1?"}, {"role": "assistant", "content": "2"}]'},
        {"messages": [{**QUESTION, "name": None}, {**ANSWER, "tool_calls": None}]},  # as Parquet has it
        {"messages": [{**QUESTION, "content": [{"type": "text", "text": QUESTION["content"]}]}, ANSWER]},
        {"prompt": QUESTION["content"], "completion": "2"},
        {"prompt": [QUESTION], "completion": [ANSWER]},
        {"instruction": QUESTION["content"], "output": "2"},
        {"instruction": QUESTION["content"], "input": "", "output": "2"},
        {"instruction": QUESTION["content"], "input": None, "output": "2", "messages": None},
    ],
    ids=str,
)
def test_rows_with_the_same_conversation(row: dict[str, Any]) -> None:
    assert example(row, {}).messages == [QUESTION, ANSWER]


def test_an_input_follows_the_instruction() -> None:
    row = {"instruction": "Add.", "input": "1 1", "output": "2"}
    assert example(row, {}).messages[0]["content"] == "Add.\n\n1 1"


def test_columns_with_other_names() -> None:
    row = {"q": "What is 1 plus 1?", "a": "2", "id": 7}
    assert example(row, {"prompt": "q", "completion": "a"}).messages == [QUESTION, ANSWER]


@pytest.mark.parametrize(
    "calls",
    [
        {"tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1}'}}]},
        {"tool_calls": '[{"function": {"name": "add", "arguments": "{\\"a\\": 1}"}}]'},
        {"tool_calls": [CALL], "content": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("tools", ['[{"type": "function"}]', [{"type": "function"}], ['{"type": "function"}']])
def test_tools_and_calls_are_passed_on(calls: dict[str, Any], tools: Any) -> None:
    conversation = example({"messages": [QUESTION, {"role": "assistant", **calls}], "tools": tools}, {})
    assert conversation.messages[1]["tool_calls"] == [CALL]
    assert conversation.tools == [{"type": "function"}]


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        ({"tool_calls": [{"name": "add", "arguments": '{"a": 1}'}]}, [CALL["function"]]),
        ({"tool_calls": [{"name": "now", "arguments": ""}]}, [{"name": "now", "arguments": {}}]),
        ({"function_call": {"name": "add", "arguments": '{"a": 1}'}}, [{"type": "function", **CALL}]),
    ],
    ids=["flat", "no arguments", "before tools"],
)
def test_calls_of_other_forms(answer: dict[str, Any], calls: list[Any]) -> None:
    """Their arguments are objects, which a template writes as JSON; it would write a text as a JSON string."""
    row = {"messages": [QUESTION, {"role": "assistant", **answer}], "tools": ""}
    assert example(row, {}).messages[1]["tool_calls"] == calls
    assert example(row, {}).tools is None


def test_json_in_a_text_has_no_halves_of_characters() -> None:
    row = {"messages": json.dumps([QUESTION, {"role": "assistant", "content": "cut \ud83d\0"}])}
    assert example(row, {}).messages[1]["content"] == "cut \ufffd"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "a"}, "none of the columns messages, or prompt and completion, or instruction and output (it has"),
        ({}, "(it has none); set tuning.columns"),
        ({"messages": []}, 'has a column "messages" that is not a list of messages'),
        ({"messages": 7}, 'has a column "messages" that is not a list of messages'),
        ({"messages": "{"}, 'has a column "messages" that is not valid JSON'),
        ({"messages": ["a"]}, 'has messages[0], which is not an object with "role" and "content"'),
        ({"messages": [{"role": "boss", "content": "a"}]}, 'messages[0] with the role "boss"; the roles are system,'),
        ({"messages": [{"content": "a"}]}, 'has messages[0] with the role "None"'),
        ({"messages": [QUESTION]}, "has no message of the assistant, so no token counts"),
        ({"messages": [QUESTION, {"role": "assistant", "content": " "}]}, "has messages[1], an empty answer"),
        ({"messages": [{**QUESTION, "content": [{"type": "image"}]}]}, "has messages[0], whose content is not text"),
        ({"messages": [QUESTION, {**ANSWER, "tool_calls": ["a"]}]}, "messages[1], whose tool_calls are not objects"),
        ({"messages": [QUESTION, {**ANSWER, "tool_calls": 5}]}, "messages[1], whose tool_calls are not objects"),
        ({"messages": [{"role": "user", "content": None}, ANSWER]}, "has messages[0], which has no content"),
        ({"messages": [QUESTION, {**ANSWER, "weight": 0.5}]}, "has messages[1] with the weight 0.5; write 0 or 1"),
        ({"messages": [QUESTION, {**ANSWER, "weight": "0"}]}, "has messages[1] with the weight '0'; write 0 or 1"),
        ({"messages": [QUESTION, ANSWER], "tools": {"type": "function"}}, 'has a column "tools" that is not a list'),
        ({"prompt": "a", "completion": ""}, "has completion, an empty answer"),
        ({"prompt": 7, "completion": "a"}, 'has a column "prompt" that is neither a text nor a list of messages'),
        ({"prompt": b"a", "completion": "a"}, 'has a column "prompt" that is neither a text nor a list of messages'),
        ({"prompt": "a", "completion": None}, "(it has prompt, completion without a value); set tuning.columns"),
        (
            {"messages": [{**QUESTION, "content": [{"type": "image", "text": "a cat"}]}, ANSWER]},
            "messages[0], whose content is not text",
        ),
        *(
            (
                {"messages": [QUESTION, {"role": "assistant", "tool_calls": [function]}]},
                "has messages[1].tool_calls without the name of a function; write each as in the API of OpenAI",
            )
            for function in NAMELESS
        ),
        ({"instruction": ["a"], "output": "b"}, 'has a column "instruction" or "input" that is not text'),
    ],
)
def test_other_rows_are_refused(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRowError) as error:
        example(row, {})
    assert reason in str(error.value)
