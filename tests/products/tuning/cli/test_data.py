"""`launcher data preview` as a user types it, with the tokenizer of MaxText's package."""

from __future__ import annotations

import json

import pytest

from launcher import api
from tests.cli.conftest import Launcher
from trainer import checks, config
from trainer.errors import ConfigError
from trainer.tuning.preview import preview

ROWS = [
    {"prompt": "What is 2 plus 2?", "completion": "4"},
    {
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "What is 1 plus 1?"},
            {"role": "assistant", "content": "2"},
        ]
    },
    {"instruction": "Say a.", "output": "a " * 100},
]
VALUES = """
run: {kind: local}
from: weights/base
slice: {accelerator: cpu, hosts: 1}
storage: {kind: local}
data: {files: [rows.jsonl], heldOut: {fraction: 0}}
tuning: {method: sft, template: plain}
train: {max_target_length: 64, per_device_batch_size: 1, steps: 2}
"""


@pytest.fixture
def values(launcher: Launcher) -> str:
    (launcher.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (launcher.folder / "tune.yaml").write_text(VALUES)
    return "tune.yaml"


def test_the_examples_as_the_trainer_reads_them(launcher: Launcher, values: str) -> None:
    result = launcher("data", "preview", values, "--count", "2")
    assert result.code == 0, result.err
    path = launcher.folder / "rows.jsonl"
    assert result.out.splitlines() == [
        f"{path}: line 1: 18 tokens, 3 counted",
        "Question: What is 2 plus 2?",
        "Answer:{+ 4</s>+}",
        "",
        f"{path}: line 2: 34 tokens, 5 counted",
        "System: Be short.",
        "Question: Hello",
        "Answer:{+ Hi</s>+}",
        "Question: What is 1 plus 1?",
        "Answer:{+ 2</s>+}",
        "",
        "3 examples: 116 tokens, 64 counted (55%); the longest example has 111 tokens.",
        "They fill about 2 sequences of 64 tokens.",
        "Too long and cut: 1 (tuning.tooLong).",
    ]


def test_pairs(launcher: Launcher, values: str) -> None:
    row = {"prompt": "Hello", "chosen": "Good morning", "rejected": "Hi"}
    (launcher.folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    result = launcher("data", "preview", values, "--set", "tuning.method=dpo")
    assert result.code == 0, result.err
    path = launcher.folder / "rows.jsonl"
    assert result.out.splitlines() == [
        f"{path}: line 1 (chosen): 11 tokens, 3 counted",
        "Question: Hello",
        "Answer:{+ Good morning</s>+}",
        "",
        f"{path}: line 1 (rejected): 10 tokens, 2 counted",
        "Question: Hello",
        "Answer:{+ Hi</s>+}",
        "",
        "1 example: 21 tokens, 5 counted (24%); the longest example has 21 tokens.",
        "They fill about 1 sequence of 64 tokens.",
    ]


NO_SYSTEM = (
    "{% for m in messages %}{% if m.role != 'system' %}{{ m.role + ' ' + m.content }}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


def test_a_text_that_the_template_drops_is_reported(launcher: Launcher, values: str) -> None:
    """By the preview, and by check, which reads the files of a run on this machine."""
    lost = (
        'In 1 of 3 examples, the chat template does not write the text of a message of the role "system", first in '
        f"{launcher.folder / 'rows.jsonl'}: line 2; set tuning.template to one that does, or remove the messages."
    )
    (launcher.folder / "chat.jinja").write_text(NO_SYSTEM)
    template = f"tuning.template={launcher.folder / 'chat.jinja'}"
    result = launcher("data", "preview", values, "--set", template)
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1] == lost
    path = launcher.folder / "run.json"
    tree = dict(api.plan([launcher.folder / values], [template], name="tuned").config)
    tree["data"]["files"] = [str(launcher.folder / "rows.jsonl")]
    (launcher.folder / "items").mkdir()
    tree["train"]["load_parameters_path"] = str(launcher.folder / "items")
    path.write_text(json.dumps(tree))
    summary = checks.check(config.read(path))
    assert summary["left_out"] == lost


def test_as_json(launcher: Launcher, values: str) -> None:
    result = launcher("data", "preview", values, "--count", "1", "-o", "json", "--set", "tuning.tooLong=drop")
    assert result.code == 0, result.err
    shown = json.loads(result.out)
    assert (shown["read"], shown["complete"], shown["dropped"], shown["cut"]) == (3, True, 1, 0)
    assert [part[1] for part in shown["examples"][0]["parts"]] == [False, True, False]


@pytest.mark.parametrize(
    ("row", "sets", "message"),
    [
        ("{", (), "line 2 is not valid JSON"),
        ('{"text": "a"}', (), "line 2 has none of the columns messages, or prompt and completion, or instruction and"),
        ('{"messages": [{"role": "boss", "content": "a"}]}', (), 'line 2 has messages[0] with the role "boss"; the'),
        ('{"prompt": "a", "completion": ""}', (), "line 2 has completion, an empty answer; remove the row."),
        ('{"prompt": "a </s>", "completion": "b"}', (), "line 2 has the special token </s> in the text of message 0"),
        (
            '{"prompt": "a", "completion": "b"}',
            ("tuning.template=",),
            "the tokenizer has no chat template; set it",
        ),
        (
            '{"prompt": "a", "completion": "b"}',
            ("tuning.tooLong=refuse",),
            "has 111 tokens, and train.max_target",
        ),
        (
            '{"prompt": "a", "completion": "b"}',
            ("tuning.method=pretrain", "tuning.template="),
            "tuning.method is pretrain; set it to a method",
        ),
    ],
)
def test_what_is_not_an_example_is_named(
    launcher: Launcher,
    values: str,
    monkeypatch: pytest.MonkeyPatch,
    row: str,
    sets: tuple[str, ...],
    message: str,
) -> None:
    """In this process: the command starts another one, which imports transformers for seconds."""
    monkeypatch.chdir(launcher.folder)
    (launcher.folder / "rows.jsonl").write_text(f"{json.dumps(ROWS[0])}\n{row}\n{json.dumps(ROWS[2])}\n")
    (launcher.folder / "run.json").write_text(json.dumps(dict(api.plan([values], sets, name="tuned").config)))
    with pytest.raises(ConfigError) as error:
        preview(config.read(launcher.folder / "run.json"), 1)
    assert message in str(error.value)


def test_an_error_is_the_message_of_the_command(launcher: Launcher, values: str) -> None:
    (launcher.folder / "rows.jsonl").write_text("{\n")
    result = launcher("data", "preview", values)
    assert (result.code, result.out) == (1, "")
    assert "rows.jsonl: line 1 is not valid JSON" in result.err


def test_the_data_of_a_cluster_is_not_on_this_machine(launcher: Launcher, values: str) -> None:
    cluster = ["--set", "run.kind=ray-job", "--set", "slice.accelerator=v6e", "--set", "slice.topology=2x4"]
    cluster += ["--set", "storage.kind=gcsfuse", "--set", "storage.bucket=some-bucket", "--set", "image.tag=v1"]
    cluster += ["--set", "image.repository=example.com/trainer", "--set", "from=base@3"]
    result = launcher("data", "preview", values, *cluster, "--set", "data.files=[/data/rows]", "--set", "slice.hosts=0")
    assert result.code == 1
    assert "/data/rows does not exist" in result.err
    assert "copy some of it, and add --set data.files='[FILE]'" in result.err
