"""For every rule, a values file that breaks it, with the complete message. The quickstart breaks no rule."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from launcher.config.checks import rules as checks
from launcher.config.checks.rules import Problem
from launcher.config.checks.schema import leaves
from launcher.config.checks.value_rules import value_rules
from launcher.config.plan import check_launch
from launcher.config.values import files as values
from launcher.config.values.files import chart_defaults
from launcher.config.values.writer import dumps
from launcher.paths import presets_dir
from tests.large_machine import use_machine

DEFAULTS = chart_defaults("run")
GOOD: dict[str, Any] = {
    "run": {"name": "llama", "kind": "ray-job"},
    "team": {"name": "research"},
    "slice": {"accelerator": "v6e", "topology": "4x4"},
    "image": {"repository": "example.com/trainer", "tag": "1"},
    "storage": {"bucket": "bucket"},
    "train": {"model_name": "llama3-8b", "steps": 10, "dataset_type": "synthetic"},
}


def problems(text: str, *, over: dict[str, Any] | None = None, name: str | None = None) -> list[Problem]:
    """Return the problems of a values file that is merged into `over` (GOOD), the tree of another file."""
    base = values.read_text(dumps(GOOD if over is None else over).encode(), "good.yaml")
    return check_launch(values.merge(base, values.read_text(text.encode(), "v.yaml")), DEFAULTS, name=name)


def test_valid_values_have_no_problem() -> None:
    assert problems("") == []
    assert check_launch(values.load(["quickstart"]), DEFAULTS) == []


CASES = [
    # Unknown keys, and the correct keys.
    ("run: {nmae: x}\n", "unknown key run.nmae; did you mean run.name?"),
    ("run: {max_restarts: 1}\n", "unknown key run.max_restarts; did you mean run.maxRestarts?"),
    ("slise: {}\n", "unknown key slise; did you mean slice?"),
    ("steps: 10\n", "unknown key steps; did you mean train.steps?"),
    ("topology: 4x4\n", "unknown key topology; did you mean slice.topology?"),
    ("name: x\n", "unknown key name; did you mean run.name, team.name or queue.name?"),
    ("run_name: x\n", "unknown key run_name; did you mean run.name?"),
    ("foo: null\n", "unknown key foo; the top level has run, team, queue, slice, image, storage"),
    ("data: {tokenizer: {pth: x}}\n", "unknown key data.tokenizer.pth; did you mean data.tokenizer.path?"),
    ("common: {accelerators: {v6e: {kid: 1}}}\n", "unknown key common.accelerators.v6e.kid; did you mean"),
    # Types of values.
    ("run: {maxRestarts: four}\n", 'run.maxRestarts is text ("four"); it must be a whole number.'),
    ("run: {maxRestarts: -1}\n", "run.maxRestarts is -1; it must be at least 0 and at most 10000."),
    ("run: {maxRestarts: 1.5}\n", "run.maxRestarts is the number 1.5; it must be a whole number."),
    ("data: {files: a.txt}\n", 'data.files is text ("a.txt"); it must be a list, such as ["a.txt"].'),
    ("worker: {env: {A: 1}}\n", "worker.env.A is the number 1; it must be text; put it in quotes."),
    ("slice: null\n", "slice has no value (null); set a value, or remove the key."),
    ("slice: {count: null}\n", "slice.count has no value (null); set a value, or remove the key."),
    ("common: {prices: {mine: {}}}\n", "common.prices.mine.perChipHour is missing; set a value."),
    ("train: {attention: flashy}\n", 'Did you mean "flash"?'),
    ("train: {remat_policy: everything}\n", 'train.remat_policy is "everything"; it must be one of custom, full, '),
    ("train: []\n", "train is a list; it must be a map of keys to values."),
    ("common: null\n", "common has no value (null)"),
    (
        "run: {kind: rayjob}\n",
        'run.kind is "rayjob"; it must be one of local, ray-cluster, ray-job, job-set. Did you mean "ray-job"?',
    ),
    ("data: {heldOut: {fraction: 0.6}}\n", "data.heldOut.fraction is 0.6; it must be at least 0 and at most 0.5."),
    ("data: {heldOut: {files: ['']}}\n", "data.heldOut.files has an empty item; remove it, or name a file."),
    ("data: {heldOut: {files: ['gs://b/x.txt']}}\n", 'data.heldOut.files: "gs://b/x.txt" is a URL; the trainer reads'),
    ("run: {command: echo 'a b'}\n", 'it must be a list, such as ["echo", "a b"].'),
    ('run: {command: "echo \'"}\n', 'it must be a list, such as ["echo \'"].'),
    ("run: {command: [echo, 1]}\n", "run.command has an item that is the number 1; it must be text; put it in quotes."),
    ("run:\u00a0 {name: x}\n", "it contains the invisible character U+00A0; write the key again."),
    # MaxText's keys.
    ("train: {learning_rte: 1}\n", "MaxText has no key learning_rte; did you mean train.learning_rate?"),
    ("train: {learningRate: 1}\n", "MaxText has no key learningRate; did you mean train.learning_rate?"),
    ("train: {use_sft: true}\n", "train.use_sft is set by Slipway: use tuning.method: sft."),
    ("train: {sft: true}\n", "MaxText has no key sft; for fine-tuning on conversations, set tuning.method: sft."),
    ("train: {lora_rank: 8}\n", "no key lora_rank; for fine-tuning on conversations, set tuning.method: lora."),
    ("train: {use_dpo: true}\n", "train.use_dpo is set by Slipway: use tuning.method: dpo."),
    ("train: {lora: {rank: 8}}\n", "train.lora is set by Slipway: use tuning.method: lora, and tuning.lora."),
    ("train: {use_grpo: true}\n", "train.use_grpo is for reinforcement learning (GRPO) by another"),
    ("train: {dpo: {algo: orpo}}\n", "remove the key. Use tuning.method: dpo or orpo, and tuning.beta."),
    ("train: {orpo_x: 1}\n", "no key orpo_x; for training on pairs of answers, set tuning.method: orpo."),
    ("tuning: {method: grpo}\n", "The trainer generates no answers during a training; use maxtext.trainers."),
    ("tuning: {method: dpp}\n", 'it must be one of pretrain, sft, lora, qlora, dpo, orpo. Did you mean "dpo"?'),
    ("train: {name: x}\n", "MaxText has no key name; did you mean run.name, team.name or queue.name?"),
    ("train: {topology: x}\n", "MaxText has no key topology; did you mean slice.topology?"),
    ("train: {steps: many}\n", 'train.steps is text ("many"); MaxText requires a whole number.'),
    ("train: {steps: 1.5}\n", "train.steps is the number 1.5; MaxText requires a whole number."),
    ("train: {steps: yes}\n", "train.steps is true; MaxText requires a whole number."),
    ("train: {steps: -5}\n", "train.steps is -5; it must be at least 1."),
    ('train: {steps: "10"}\n', 'train.steps is text ("10"); MaxText requires a whole number; remove the quotes.'),
    ("train: {per_device_batch_size: 0}\n", "train.per_device_batch_size is 0; it must be more than 0."),
    (f"commonAnnotations: {{a/b: {'x' * 130_000}}}\n", "folders and globs. commonAnnotations is its largest part."),
    (
        "train: {checkpoint_period: often}\n",
        'train.checkpoint_period is text ("often"); MaxText requires a whole number or auto.',
    ),
    ("train: {checkpoint_period: 0}\n", "train.checkpoint_period is 0; it must be at least 1."),
    ("train: {head_dim: -2}\n", "train.head_dim is -2; it must be at least 1."),
    ("train: {steps: 0}\n", "train.steps is 0; it must be at least 1."),
    ("train: {learning_rate: 0}\n", "train.learning_rate is 0; it must be more than 0."),
    ("train: {dropout_rate: 1.5}\n", "train.dropout_rate is 1.5; it must be less than 1."),
    ("train: {adam_b1: 1}\n", "train.adam_b1 is 1; it must be less than 1."),
    ("train: {adam_b2: -0.1}\n", "train.adam_b2 is -0.1; it must be at least 0."),
    ("train: {max_num_checkpoints_to_keep: 0}\n", "train.max_num_checkpoints_to_keep is 0; it must be at least 1."),
    ("train: {max_target_length: 1}\n", "train.max_target_length is 1; it must be at least 2."),
    ("train: {data_shuffle_seed: -1}\n", "train.data_shuffle_seed is -1; it must be at least 0."),
    ("train: {data_shuffle_seed: 4294967296}\n", "it must be at most 4294967295."),
    ("train: {log_period: 0}\n", "train.log_period is 0; it must be at least 1."),
    ("train: {num_epoch: 0}\n", "train.num_epoch is 0; it must be at least 1."),
    ("train: {opt_type: adam}\n", 'train.opt_type is "adam"; it must be one of adamw, adam_pax, sgd, muon.'),
    ("train: {dtype: bf16}\n", 'train.dtype is "bf16"; it must be one of bfloat16, float32, float16'),
    ("train: {model_name: llama3-8}\n", 'train.model_name: MaxText 0.2.5 has no model "llama3-8"; did you mean'),
    ("train: {model_name: meta-llama/Llama-3.1-8B}\n", '"meta-llama/Llama-3.1-8B"; did you mean llama3.1-8b?'),
    ("train: {model_name: own}\n", 'has no model "own"; docs/reference/maxtext-keys.md lists the models.'),
    ("pods: {mounts: {}}\n", "unknown key pods.mounts; did you mean pods.extraVolumeMounts?"),
    ("train: {run_name: x}\n", "train.run_name is set by Slipway: use run.name."),
    ("train: {hardware: gpu}\n", "train.hardware is set by Slipway: use slice.accelerator."),
    ("train: {num_slices: 2}\n", "train.num_slices is set by Slipway: use slice.count."),
    ("train: {hf_access_token: x}\n", "train.hf_access_token is set by Slipway: set HF_TOKEN in the environment"),
    # Rules across keys.
    ("run: {name: My_Run}\n", 'run.name: "My_Run" is not a valid name; use lowercase letters, digits and hyphens,'
     ' starting with a letter and not ending with a hyphen. For example "my-run".'),
    ("run: {name: 1st}\n", 'starting with a letter and not ending with a hyphen. For example "run-1st".'),
    ("run: {name: Ünï}\n", 'starting with a letter and not ending with a hyphen. For example "uni".'),
    ("run: {name: x-}\n", 'run.name: "x-" is not a valid name;'),
    (f"run: {{name: {'x' * 36}}}\n", f'run.name: "{"x" * 36}" has 36 characters; the name of a ray-job run can'
     " have at most 35."),
    ("run: {kind: ray-cluster}\n", "run.kind is ray-cluster; run.cluster must name the long-lived Ray cluster."),
    (f"run: {{kind: ray-cluster, cluster: {'c' * 42}}}\n", f'run.cluster: "{"c" * 42}" has 42 characters;'),
    ("slice: {topology: 4x6}\n", 'slice.topology: "4x6" is not a topology of v6e. No v6e slice has 24 chips; the'
     " nearest are 4x4 (16) and 4x8 (32)."),
    ("slice: {hosts: 4}\n", "the topology of a v6e slice determines its hosts; remove slice.hosts."),
    ("slice: {reservation: r}\n", "slice.reservation requires slice.provisioning: reservation; it is on-demand."),
    ("slice: {provisioning: reservation}\n", "slice.provisioning is reservation; slice.reservation must name it."),
    ("storage: {bucket: ''}\n", "storage.kind is gcsfuse; storage.bucket must name the bucket."),
    ("storage: {mountPath: data}\n", 'storage.mountPath: "data" is not valid; it must start with "/" and name'),
]  # fmt: skip


def test_checkpoints_without_the_position_in_the_text_are_refused() -> None:
    keys = "train: {enable_emergency_checkpoint: true, enable_multi_tier_checkpointing: false}\n"
    (found,) = (each for each in problems(keys + "data: {corpus: python}\n") if each.rule == "no-position")
    assert found.message == (
        "With train.enable_emergency_checkpoint, a run that resumes would train on the beginning of its text again; "
        "remove the key."
    )
    assert not problems(keys)  # with synthetic data


@pytest.mark.parametrize(("text", "sentence"), CASES, ids=[text.strip()[:40] for text, _ in CASES])
def test_each_mistake_is_one_sentence(text: str, sentence: str) -> None:
    (found,) = problems(text)
    assert sentence in str(found)
    assert (found.file, found.line, found.severity) == ("v.yaml", 1, "error")


def test_missing_training_data_has_no_line() -> None:
    assert [str(problem) for problem in problems("", over={**GOOD, "train": {}})] == [
        "data: there is nothing to train on; set data.files, or data.corpus: python, or train.dataset_type (synthetic"
        " needs no text)."
    ]


def test_a_problem_shows_the_line_that_makes_it_one() -> None:
    (found,) = problems("data: {corpus: python}\n")
    assert str(found) == (
        "good.yaml:17: train.dataset_type is set by Slipway: data.files, data.mixture or data.corpus is set, and the "
        "text comes from there; remove one of the two."
    )


def test_a_null_removes_a_key_of_maxtext() -> None:
    assert problems("train: {steps: null, model_name: null}\n") == []


def test_a_run_needs_a_name_and_the_option_gives_one() -> None:
    text = 'run: {name: ""}\n'
    (found,) = problems(text)
    assert str(found) == "v.yaml:1: the run has no name; set it with --name NAME or run.name."
    assert problems(text, name="x") == []
    assert str(problems(text, name="X!")[0]).startswith('--name: run.name: "X!" is not a valid name;')


def test_a_local_run_requires_local_storage_and_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    use_machine(monkeypatch)
    found = [str(problem) for problem in problems("run: {kind: local}\n")]
    assert found == [
        "good.yaml:7: a local run uses this machine's CPU or GPUs: slice.accelerator must be cpu or a GPU of the "
        "table, not v6e.",
        "good.yaml:12: a local run keeps its files on this machine: storage.kind must be local, not gcsfuse.",
    ]


def test_files_and_corpus_exclude_each_other() -> None:
    found = problems("train: {dataset_type: null}\ndata:\n  files: [/data/a.txt]\n  corpus: python\n")
    assert [str(problem) for problem in found] == [
        'v.yaml:4: data.files and data.corpus are both set; remove one of them (to use the files, set data.corpus: "").'
    ]


def test_a_command_needs_no_training_data_and_warns_about_ignored_keys() -> None:
    over = {**GOOD, "train": {}}
    assert problems("run: {command: [sleep, infinity]}\n", over=over) == []
    (found,) = problems("run: {command: [sleep, infinity]}\n")
    assert (found.severity, found.key) == ("warning", "run.command")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("worker: {env: {PRICE: $$5}}\n", ["worker.env.PRICE"]),
        ("worker: {env: {NAME: x, A: 'hi $(NAME)', B: '$(date)', C: $5}}\n", ["worker.env.A"]),
        ("worker: {secretEnv: {T: {name: a, key: b}}, env: {A: '$(T)'}}\n", ["worker.env.A"]),
        ("run: {kind: job-set, command: [sh, -c, 'echo $$']}\n", ["run.command"]),
        ("run: {kind: ray-job, command: [sh, -c, 'echo $$']}\n", []),
    ],
)
def test_text_that_kubernetes_changes_in_a_pod_is_a_warning(text: str, keys: list[str]) -> None:
    found = [problem for problem in problems(text, over={**GOOD, "train": {}}) if problem.rule == "expansion"]
    assert [(problem.severity, problem.key) for problem in found] == [("warning", key) for key in keys]


def test_all_mistakes_come_at_once_sorted_by_file_and_line() -> None:
    found = problems("train:\n  stps: 1\nrun:\n  kind: lokal\n  nmae: x\nslice: {topology: 5x5}\n")
    assert [(problem.file, problem.line) for problem in found] == [("v.yaml", n) for n in (2, 4, 5, 6)]


def test_users_can_add_a_row_to_the_table() -> None:
    row = "{kind: gpu, label: x, rayAcceleratorType: X, dimensions: 0, machineTypes: {m: 2}, defaultMachineType: m,"
    text = f"common: {{accelerators: {{mine: {row} hbmGiB: 1, peakTflops: 1}}}}}}\n"
    assert problems(text + "slice: {accelerator: mine, topology: ''}\n") == []


def test_a_problem_as_json() -> None:
    (found,) = problems("run: {maxRestarts: -1}\n")
    assert json.loads(json.dumps(asdict(found))) == {
        "rule": "minimum",
        "severity": "error",
        "message": "run.maxRestarts is -1; it must be at least 0 and at most 10000.",
        "file": "v.yaml",
        "line": 1,
        "key": "run.maxRestarts",
    }


def test_a_check_imports_nothing_heavy(tmp_path: Path) -> None:
    """`check` reports a typing error in a fifth of a second; the import of jsonschema alone takes a third of that."""
    file = tmp_path / "v.yaml"
    file.write_text("run: {nmae: x}\ntrain: {stps: 1}\n")
    program = f"""
import sys
from launcher.config import plan; from launcher.config.values import files as values
assert len(plan.check_launch(values.load([{str(file)!r}]), values.chart_defaults("run"))) >= 2
print([name for name in ("jsonschema", "kubernetes", "pydantic", "ray", "jax", "click", "rich") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_rule_reads_keys_that_exist() -> None:
    """The keys that the table reads are tested in test_value_rules.py."""
    known = {".".join(path) for path in leaves(checks.schema("run"))}
    own = [rule for rule in checks.RULES if rule not in value_rules()]
    assert {key for reads, _ in own for key in reads} <= known


# --- First mistakes: a copy of the quickstart with one mistake ----------------------------------------------------

QUICKSTART = (presets_dir() / "quickstart.yaml").read_text()


def keys_of_the_quickstart() -> list[tuple[str, int]]:
    """Return each key of the file, with dots, and its line."""
    return [(".".join(path), origin.line) for path, origin in values.load(["quickstart"]).origins.items()]


SLIPS: dict[str, Callable[[str], str]] = {
    "two letters swapped": lambda key: key[:-2] + key[-1] + key[-2],
    "a letter twice": lambda key: key[:2] + key[1:],
    "a letter left out": lambda key: key[:1] + key[2:],
    "a wrong letter": lambda key: key[:-1] + "x",
    "in capitals": str.upper,
}


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize(("key", "line"), keys_of_the_quickstart())
def test_a_mistyped_key_is_one_problem_with_its_line_and_the_right_key(key: str, line: int, slip: str) -> None:
    lines = QUICKSTART.splitlines()
    *above, name = key.split(".")
    mistyped = SLIPS[slip](name)
    lines[line - 1] = lines[line - 1].replace(name, mistyped, 1)
    found = check_launch(values.read_text("\n".join(lines).encode(), "mine.yaml"), DEFAULTS)
    path = ".".join([*above, mistyped])
    what = f"{path}: MaxText has no key {mistyped}" if above == ["train"] else f"unknown key {path}"
    assert [str(problem) for problem in found] == [f"mine.yaml:{line}: {what}; did you mean {key}?"]


@pytest.mark.parametrize(("key", "line"), [row for row in keys_of_the_quickstart() if "." in row[0]])
def test_a_value_of_a_wrong_kind_is_one_problem_with_its_line(key: str, line: int) -> None:
    user = values.set_value(values.load(["quickstart"]), key.split("."), [["what"]], values.Origin("mine.yaml", line))
    found = check_launch(user, DEFAULTS)
    assert [(problem.file, problem.line, problem.key, problem.rule) for problem in found] == [
        ("mine.yaml", line, key, "type")
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "run: {name: x, kind: local, maxRestart: 1}\n",
            "v.yaml:1: unknown key run.maxRestart; did you mean run.maxRestarts?",
        ),
        (
            "run: {name: x, kind: local}\nslice: {acelerator: cpu}\n",
            "v.yaml:2: unknown key slice.acelerator; did you mean slice.accelerator?",
        ),
        (
            "run: {kind: ray-job}\nslice: {accelerator: v6e, topolgy: 4x4}\n",
            "v.yaml:2: unknown key slice.topolgy; did you mean slice.topology?",
        ),
        (
            "run: {name: x, kind: local}\nslice: {accelerator: cpuu}\nstorage: {kind: local}\ndata: {corpus: python}\n",
            'v.yaml:2: slice.accelerator: unknown accelerator "cpuu"',
        ),
        (
            "run: {name: x, kind: local}\nslice: {accelerator: cpu}\nstorage: {kind: local}\n"
            "train: {datset_type: synthetic}\n",
            "v.yaml:4: train.datset_type: MaxText has no key datset_type; did you mean train.dataset_type?",
        ),
        (
            "run: {name: x, kind: local}\nslice: {accelerator: cpu}\nstorage: {kind: local}\ndata: {corpus: pyhton}\n",
            'v.yaml:4: data.corpus is "pyhton"; it must be one of "", python. Did you mean "python"?',
        ),
    ],
)
def test_a_first_mistake_is_one_sentence(text: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_machine(monkeypatch)
    (found,) = check_launch(values.read_text(text.encode(), "v.yaml"), DEFAULTS)
    assert str(found).startswith(sentence)


def test_problems_besides_a_mistyped_key_are_reported_too() -> None:
    found = problems("run: {nmae: x, kind: local}\nstorage: {kind: pvc}\nslice: {accelerator: cpu, topology: 4x5}\n")
    assert [problem.key for problem in found] == ["run.nmae", "storage.kind", "slice.topology"]


SAMPLES: list[Any] = [None, True, -1, 0, 1.5, 1e30, "", "x", "no/such", [], [""], [None], [[1]], {}, {"x": None}]


BASES = values.load(["quickstart"]), values.read_text(json.dumps(GOOD).encode(), "g")
PATHS = [path for path in leaves(checks.schema("run")) if path[0] != "global"]


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_no_value_of_any_kind_breaks_the_check(path: tuple[str, ...]) -> None:
    """Each value is set in one of the two bases. The next key has it in the other."""
    for number, sample in enumerate(SAMPLES, PATHS.index(path)):
        user = values.set_value(BASES[number % 2], path, sample, values.Origin("v.yaml", 1))
        for problem in check_launch(user, DEFAULTS):
            assert problem.message.endswith((".", "?"))


@pytest.mark.parametrize("key", checks.STRICTER_BOUNDS)
def test_no_train_value_of_any_kind_breaks_the_check(key: str) -> None:
    user = values.load(["quickstart"])
    for sample in SAMPLES:
        check_launch(values.set_value(user, ("train", key), sample, values.Origin("v.yaml", 1)), DEFAULTS)
