"""An example of each verb, and the page that describes it, for the end of the verb's help."""

from __future__ import annotations

_EXAMPLES = {
    "submit": (
        "launcher submit quickstart --name first",
        "launcher submit models/llama3.1-8b slices/v6e-4x4 team.yaml --name llama --detach",
        "docs/tutorial/1-laptop.md",
    ),
    "list": ("launcher list --all-namespaces", "docs/quick-reference.md"),
    "status": ("launcher status llama", "docs/how-to/run-on-a-cluster.md"),
    "logs": ("launcher logs llama -f --worker 1", "launcher logs llama --tail 20", "docs/how-to/run-on-a-cluster.md"),
    "attach": ("launcher attach llama", "docs/how-to/run-on-a-cluster.md"),
    "wait": ("launcher wait llama --timeout 2h", "docs/how-to/run-on-a-cluster.md"),
    "cancel": ("launcher cancel llama", "docs/how-to/resume-a-run.md"),
    "delete": (
        "launcher delete llama",
        'launcher delete "demo-*" --older-than 7d --dry-run',
        "docs/quick-reference.md",
    ),
    "explain": ("launcher explain llama", "docs/how-to/debug-a-pending-run.md"),
    "forecast": (
        "launcher forecast models/llama3.1-8b slices/v6e-4x4",
        "launcher forecast models/llama3.1-8b slices/v6e-4x4 --tokens 15T --search 30",
        "docs/how-to/forecast.md",
    ),
    "simulate": (
        "launcher simulate -f queues.yaml --trace runs.csv",
        "launcher simulate -f queues.yaml --trace runs.csv --set clusterQueues.research.quota.v6e-4x4.slices=+4",
        "docs/how-to/plan-quota.md",
    ),
    "report": ("launcher report llama llama-2 --open", "docs/how-to/view-metrics.md"),
    "tensorboard": ("launcher tensorboard first", "docs/how-to/view-metrics.md"),
    "profile": ("launcher profile first --steps 5", "docs/how-to/view-metrics.md"),
    "dashboard": ("launcher dashboard llama", "docs/how-to/view-metrics.md"),
    "shell": ("launcher shell llama --worker 1", "docs/how-to/run-on-a-cluster.md"),
    "doctor": ("launcher doctor", "docs/how-to/run-on-a-cluster.md"),
    "checkpoints": (
        "launcher checkpoints llama",
        "launcher checkpoints gs://research-runs/llama -o json",
        "docs/how-to/export-a-model.md",
    ),
    "generate": (
        'launcher generate first "def main("',
        "launcher generate first - --step best --temperature 0 < prompt.txt",
        "docs/how-to/generate-and-evaluate.md",
    ),
    "eval": (
        "launcher eval first --tasks arc_easy,hellaswag --limit 100",
        "launcher eval first second --compare",
        "docs/how-to/generate-and-evaluate.md",
    ),
    "serve": (
        "launcher serve first",
        "launcher serve first --step best --port 8001 --name first-best",
        "launcher serve llama -f model.yaml",
        "docs/how-to/serve-a-model.md",
    ),
    "chat": (
        "launcher chat first",
        "launcher chat --url http://127.0.0.1:8000/v1 < questions.txt",
        "docs/how-to/serve-a-model.md",
    ),
    "export": (
        "launcher export first --to ./first",
        "launcher export first --step best --dtype bfloat16 --to hf:example/first",
        "launcher export llama --detach",
        "docs/how-to/export-a-model.md",
    ),
    "import": (
        "launcher import hf:Qwen/Qwen3-0.6B --to weights/qwen3 --set train.model_name=qwen3-0.6b",
        "launcher import hf:meta-llama/Llama-3.1-8B --to /data/weights/llama -f models/llama3.1-8b -f team.yaml",
        "docs/how-to/fine-tune-from-weights.md",
    ),
    "presets": ("launcher presets v6e", "launcher presets models -o json", "docs/how-to/override-preset-values.md"),
    "init": ("launcher init --local", "launcher init --out team.yaml -n research", "docs/reference/environment.md"),
    "values": (
        "launcher values quickstart mine.yaml --origins",
        "launcher values queues queues/one-team --all",
        "docs/how-to/override-preset-values.md",
    ),
    "check": (
        "launcher check quickstart mine.yaml",
        "launcher check queues queues/three-teams",
        "docs/reference/checks.md",
    ),
    "render": (
        "launcher render models/llama3.1-8b slices/v6e-4x4 team.yaml --name llama",
        "launcher render queues queues/three-teams",
        "docs/how-to/override-preset-values.md",
    ),
    "diff": ("launcher diff queues queues.yaml", "docs/how-to/install-and-upgrade.md"),
    "cluster": (
        "launcher cluster plan -f cluster.yaml -f queues.yaml",
        "launcher cluster up -f cluster.yaml -f queues.yaml",
        "docs/how-to/create-a-gke-cluster.md",
    ),
    "install": (
        "launcher install queues queues.yaml --dry-run",
        "launcher install ray-cluster shared team.yaml",
        "docs/how-to/install-and-upgrade.md",
    ),
    "uninstall": ("launcher uninstall shared", "docs/how-to/install-and-upgrade.md"),
    "image": (
        "launcher image build --accelerator tpu --repository registry.example.com/slipway --push --write image.yaml",
        "docs/how-to/build-the-image.md",
    ),
    "completion": ('eval "$(launcher completion bash)"', "docs/quick-reference.md"),
}
"""The commands, and the page, by verb."""


def of(verb: str) -> tuple[tuple[str, ...], str]:
    """Return the example commands of a verb, and the page that describes it."""
    *commands, page = _EXAMPLES[verb]
    return tuple(commands), page


def epilog(verb: str) -> str:
    """Return the end of a verb's help, as click formats it."""
    commands, page = of(verb)
    title = "Examples:" if len(commands) > 1 else "Example:"
    return "\n".join(["\b", title, *(f"  {command}" for command in commands), "", f"Page: {page}"])
