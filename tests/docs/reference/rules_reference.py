"""The pages on the rules of `check`, with values that violate them, and on the situations of `explain`."""

from __future__ import annotations

import ast
import inspect
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.config.checks import value_rules
from launcher.config.checks.problems import CheckContext
from launcher.config.checks.rules import other_charts
from launcher.config.checks.schema import KEYWORDS
from launcher.config.plan import check_launch
from launcher.config.values.files import chart_defaults, read_text
from launcher.config.values.tree import merge, with_defaults
from launcher.diagnose.explain import rule_order as situations
from launcher.paths import find_values_file
from launcher.products.models.serving import rules as serving_rules
from tests.charts.bad_values import BAD, GOOD
from tests.docs.pages import CHECKOUT
from tests.docs.reference.parts import code, page, table
from tests.large_machine import use_machine

_CHECKS = """\
`launcher check`, `render`, `diff` and `submit` check values by the same rules. They report all problems together, with
file and line, before they change anything. The `rule` of a problem (with `-o json`) is one of the headings below. Each
example is merged into valid values of a run on TPUs; the message next to it is the output of the rule."""

_EXPLAIN = """\
`launcher explain NAME` reads the run, its Workload, its queue, its pods and their events. It prints the sentence of the
first situation below that applies, followed by the evidence and suggestions. Words in capitals are placeholders; … is a
part of the sentence that depends on the details. [Debug a pending run](../how-to/debug-a-pending-run.md) shows complete
output."""

_LOCAL = "run: {kind: local}\nslice: {accelerator: cpu, topology: ''}\nstorage: {kind: local}"

# Examples for the rules that the rows of tests/charts/bad_values.py for charts do not break.
_MORE = (
    "train: {stepz: 20}",
    "from: base\ntuning: {method: lora, lora: {rank: 1024}}\ndata: {corpus: '', files: [/data/a.jsonl]}\n"
    "train: {model_name: llama3.1-8b, base_emb_dim: 512, override_model_config: true}",
    "from: base\ntuning: {method: lora, lora: {targets: [up_proj]}}\ndata: {corpus: '', files: [/data/a.jsonl]}\n"
    "train: {model_name: qwen3-30b-a3b}",
    "from: base\ntuning: {method: lora}\ndata: {corpus: '', files: [/data/a.jsonl]}\ntrain: {model_name: gpt-oss-20b}",
    "from: base\ntuning: {method: lora}\ndata: {corpus: '', files: [/data/a.jsonl]}\n"
    "train: {gradient_accumulation_steps: 4}",
    "from: base\ntuning: {method: sft, beta: 0.3}\ndata: {corpus: '', files: [/data/a.jsonl]}",
    "data: {corpus: '', files: [/data/a], heldOut: {files: [/data/b], fraction: 0.1}}",
    "worker: {env: {PRICE: $$5}}",
    "worker: {env: {NAME: x, GREETING: hello $(NAME)}}",
    "run: {maxRestart: 2}",
    "storage: {logs: {size: 1MB}}",
    "cluster: {maxSlices: 4}",
    "serve: {model: exports/llama}\ncluster: {maxSlices: 4}",
    "train: {run_name: mine}",
    "train: {dataset_type: grain}",
    "train: {steps: 0}",
    "train: {num_kv_heads: 4}",
    "train: {dataset_type: c4_mlperf}\ndata: {files: [], corpus: ''}",
    "train: {dataset_type: grain}\ndata: {files: [], corpus: ''}",
    "data: {files: [/home/me/text]}",
    "train: {steps: 20, learning_rate_schedule_steps: 10}",
    "train: {quantization: te_fp8_delayedscaling}",
    "worker: {env: {JAX_PLATFORMS: cpu}}",
    "train: {learning_rate: fast}",
    "run: {maxRestarts: -1}",
    "train: {per_device_batch_size: 0}",
    "run: {kind: rayjob}",
    "train: {model_name: llama3-8}",
    "train: {use_grpo: true}",
    "train: {enable_multi_tier_checkpointing: true}\ndata: {corpus: python}",
    "train: {dataset_type: hf, hf_path: json}\ndata: {tokenizer: {kind: tiktoken}}",
    "data: {tokenizer: {kind: huggingface, path: org/name}}",
    "run: {kind: local}",
    "run: {kind: local}\nstorage: {kind: local}",
    "run: {kind: ray-cluster}",
    'data: {corpus: ""}',
    'data: {files: ["gs://research-runs/text"]}',
    "run: {command: [sleep, infinity]}",
    "train: null",
    "common: {accelerators: {v6e: {topologies: {4x4: []}}}}",
    "train: {ici_tensor_parallelism: 3}",
    "train: {ici_data_parallelism: -1}",
    "slice: {count: 2}\ntrain: {dcn_fsdp_parallelism: 4}",
    "train: {ici_sequence_parallelism: 2}",
    "train: {model_name: llama3-8b, ici_tensor_parallelism: 16}",
    "train: {ici_context_parallelism: 4, max_target_length: 2052}",
    "train: {max_target_length: 1000}",
    "train: {sa_block_q: 768}",
    "train: {sa_block_q_dkv: 64}",
    "train: {sa_block_kv: 256}",
    "train: {base_num_kv_heads: 6}",
    "train: {ici_pipeline_parallelism: 4, num_layers_per_pipeline_stage: 3}",
    "train: {per_device_batch_size: 1.5}",
    "train: {per_device_batch_size: 0.5}",
    "train: {num_vocab_tiling: 7, per_device_batch_size: 1}",
    "train: {model_name: llama3-8b, head_dim: 64}",
    "train: {model_name: qwen3-8b}",
    "train: {model_name: llama3-8b, max_target_length: 16384}",
    "storage: {bucket: my-bucket}",
    "run: {kind: local}\nslice: {accelerator: cpu, topology: '', any: [{hosts: 2}]}\nstorage: {kind: local}",
    "slice: {any: [{}, {topology: 8x8, after: soon}]}",
    _LOCAL + "\ntrain: {num_epoch: 1}\ndata: {corpus: '', files: [tests/charts/yaml/words.txt]}",
    _LOCAL + "\ntrain: {model_name: llama3.1-8b, per_device_batch_size: 1}",
    _LOCAL + "\ntrain: {model_name: llama3.1-70b, per_device_batch_size: 1}",
    _LOCAL + "\ntrain: {model_name: gemma3-4b, per_device_batch_size: 1, enable_checkpointing: false}",
    _LOCAL + "\ntrain: {vocab_size: 2000, per_device_batch_size: 100000}",
)
# Values of a served model, merged into the preset serve/llama3.1-8b-v6e: `launcher check serve`.
_SERVED = (
    "slice: {topology: 4x4, machineType: ''}\ntrain: {model_name: gemma3-4b}",
    "serve: {contextLength: 200000}",
    "train: {model_name: llama3.1-405b}",
)
_PER_RULE = 4


def rules() -> dict[str, list[tuple[str, str]]]:
    """Return examples by rule: values that violate it, and the message."""
    with pytest.MonkeyPatch.context() as patch:
        # The page is the same on every machine.
        patch.chdir(CHECKOUT)
        use_machine(patch, free=150_000_000_000, memory=64_000_000_000, cores=8)
        return _rules()


def _rules() -> dict[str, list[tuple[str, str]]]:
    defaults = chart_defaults("run")
    good = read_text(GOOD.encode(), "values.yaml")
    found: dict[str, list[tuple[str, str]]] = {}
    shown = [(bad.values, kind) for bad in BAD for kind in bad.kinds if kind != "cluster"]
    for text, kind in [*((text, "") for text in _MORE), *shown]:
        over = merge(good, read_text(text.encode(), "values.yaml"))
        if kind == "job-set":
            over = merge(over, read_text(b"run: {kind: job-set}", "values.yaml"))
        for problem in [*check_launch(over, defaults), *other_charts("run", over)]:
            rows = found.setdefault(problem.rule, [])
            said = problem.message if problem.key in problem.message else f"{problem.key}: {problem.message}"
            if _shape(said) not in {_shape(row[1]) for row in rows}:
                rows.append((text, said))
    served = read_text(find_values_file("serve/llama3.1-8b-v6e").read_bytes(), "values.yaml")
    for text in _SERVED:
        over = merge(served, read_text(text.encode(), "values.yaml"))
        for problem in serving_rules.check(CheckContext(over, with_defaults(over, chart_defaults("serve")))):
            found.setdefault(problem.rule, []).append((text, problem.message))
    empty = check_launch(read_text(b"", "values.yaml"), defaults)
    found[empty[0].rule] = [("{}", empty[0].message)]
    return found


def _shape(message: str) -> str:
    """Return a message without names and numbers. One message of a shape is enough."""
    return re.sub(r'"[^"]*"|\d+|[\w-]+(\.[\w-]+)+', "", message)


def checks() -> str:
    found = rules()
    parts = [" ".join(_CHECKS.split("\n"))]
    for rule in sorted(found):
        rows = sorted(found[rule], key=lambda row: len(row[0]))[:_PER_RULE]
        # The pattern of a message, such as [a-z]([a-z]), is not a link.
        shown = ((code(_flow(text)), says.replace("](", "]\\(")) for text, says in rows)
        parts += [f"## {rule}", table(("values", "message"), shown)]
    return page("Rules of check", "the rules themselves, run on values that break them", *parts)


def _flow(text: str) -> str:
    """Return values in one line, shortened if they are long."""
    short = " ".join(line.strip() for line in text.strip().splitlines())
    return short if len(short) <= 100 else short[:99] + "…"


def rule_names() -> set[str]:
    """Return the names of the rules in the charts' table and in the sources of launcher.config.checks.

    Helm evaluates those of charts/serve, and its errors have no name of a rule.
    """
    found: set[str] = {rule["rule"] for rule in value_rules.table()["rules"] if rule.get("kinds") != ["serve"]}
    for file in (CHECKOUT / "launcher" / "config" / "checks").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                at = {"problem": 0, "across": 0, "Violation": 1}.get(called)
                named = node.args[at] if at is not None and len(node.args) > at else None
                if isinstance(named, ast.Constant):
                    found.add(str(named.value))
    used = "".join((CHECKOUT / "charts" / chart / "values.schema.json").read_text() for chart in ("run", "common"))
    return {rule for rule in found if rule not in KEYWORDS or f'"{rule}":' in used}


# --- explain ------------------------------------------------------------------------------------------------------


def explain() -> str:
    parts = [" ".join(_EXPLAIN.split("\n"))]
    for heading, names in _sections():
        rows = []
        for module, name in names:
            rule = getattr(getattr(situations, module), name)
            about = " ".join((rule.__doc__ or f"{name.replace('_', ' ').capitalize()}.").split("\n\n")[0].split())
            rows.append((about, "<br>".join(_headlines(module, name))))
        parts += [f"## {heading}", table(("situation", "sentence"), rows)]
    return page("Situations of explain", "launcher/diagnose/explain", *parts)


def _sections() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the comments of the table of rules, each with its rules as (module, name)."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    with Path(inspect.getfile(situations)).open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    inside = False
    for at, token in enumerate(tokens):
        if token.string == "RULES":
            inside = True
        elif inside and token.string == ")" and token.start[1] == 0:
            break
        elif inside and token.type == tokenize.COMMENT:
            found.append((token.string.lstrip("# ").rstrip("."), []))
        elif inside and token.string.startswith("rules_"):
            found[-1][1].append((token.string, tokens[at + 2].string))
    return found


def _headlines(module: str, name: str) -> Iterator[str]:
    """Yield the sentences of a rule: the first argument of each Finding in it and in the functions that it calls."""
    tree = ast.parse(inspect.getsource(getattr(situations, module)))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    seen: set[str] = set()
    todo = [name]
    while todo:
        current = todo.pop(0)
        if current in seen or current not in functions:
            continue
        seen.add(current)
        for node in ast.walk(functions[current]):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id == "Finding" and node.args:
                    yield _spoken(node.args[0])
                elif node.func.id.startswith("_"):
                    returns = getattr(functions.get(node.func.id), "returns", None)
                    if returns is not None and "Finding" in ast.unparse(returns):
                        todo.append(node.func.id)


# Placeholders that are shown by name; any other part of a sentence is an ellipsis.
_TELLING = {
    *("QUEUE", "CLUSTER QUEUE", "NAMESPACE", "FLAVOR", "IMAGE", "CONTAINER", "VOLUME", "KIND", "KEY", "TAINT"),
    *("POSITION", "READY", "WANTED", "COUNT"),
}


def _spoken(node: ast.expr) -> str:
    """Return an f-string with RUN and the placeholders of _TELLING in capitals, and an ellipsis for other parts."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.BinOp):
        return _spoken(node.left) + _spoken(node.right)
    if isinstance(node, ast.JoinedStr):
        text = "".join(_spoken(value) for value in node.values)
        return re.sub(r"…[…. ]*…", "…", text)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name | ast.Attribute):
        value = node.value
        called = value.id if isinstance(value, ast.Name) else value.attr
        if called == "name" and isinstance(value, ast.Attribute) and ast.unparse(value.value) == "situation":
            return "RUN"
        shown = called.removesuffix("_name").replace("_", " ").strip().upper()
        return shown if shown in _TELLING else "…"
    return "…"
