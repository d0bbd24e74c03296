"""The product `models`: the checkpoints of runs as models, which generate text, are evaluated and are served."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Use models",
    package="launcher.products.models.cli",
    commands={
        "checkpoints": Command(
            "List the checkpoints of a run, with their held-out losses.",
            (
                "launcher checkpoints llama",
                "launcher checkpoints gs://research-runs/llama -o json",
            ),
            "docs/how-to/export-a-model.md",
        ),
        "export": Command(
            "Export a checkpoint as a model in Hugging Face format.",
            (
                "launcher export first --to ./first",
                "launcher export first --step best --dtype bfloat16 --to hf:example/first",
                "launcher export llama --detach",
            ),
            "docs/how-to/export-a-model.md",
        ),
        "import": Command(
            "Import a model in Hugging Face format as weights to start from.",
            (
                "launcher import hf:Qwen/Qwen3-0.6B --to weights/qwen3",
                "launcher import hf:meta-llama/Llama-3.1-8B --to /data/weights/llama -f models/llama3.1-8b "
                "-f team.yaml",
            ),
            "docs/how-to/fine-tune-from-weights.md",
        ),
        "generate": Command(
            "Generate text with a checkpoint of a run.",
            (
                'launcher generate first "def main("',
                "launcher generate first - --step best --temperature 0 < prompt.txt",
            ),
            "docs/how-to/generate-and-evaluate.md",
        ),
        "eval": Command(
            "Evaluate checkpoints of runs on tasks of lm-eval.",
            (
                "launcher eval first --tasks arc_easy,hellaswag --limit 100",
                "launcher eval first second --compare",
            ),
            "docs/how-to/generate-and-evaluate.md",
        ),
        "serve": Command(
            "Serve a checkpoint of a run with OpenAI's API: on this machine, or with -f on a cluster.",
            (
                "launcher serve first",
                "launcher serve first --step best --port 8001 --name first-best",
                "launcher serve llama -f model.yaml",
            ),
            "docs/how-to/serve-a-model.md",
        ),
        "chat": Command(
            "Talk with a model that launcher serve serves.",
            (
                "launcher chat first",
                "launcher chat --url http://127.0.0.1:8000/v1 < questions.txt",
            ),
            "docs/how-to/serve-a-model.md",
        ),
    },
    api={
        **dict.fromkeys(
            ("checkpoints", "export", "import_weights", "plan_export", "plan_import"),
            "launcher.products.models.api.weights",
        ),
        **dict.fromkeys(
            ("chat", "evaluate", "evaluations", "generate", "serve"), "launcher.products.models.api.inference"
        ),
        **dict.fromkeys(("find_best", "run_names"), "launcher.products.common.named_runs"),
        **dict.fromkeys(("plan_serving",), "launcher.products.models.api.serving"),
        **dict.fromkeys(("explain_model", "model_logs", "models"), "launcher.products.models.api.served_models"),
    },
    hooks={
        "has_model": "launcher.products.models.serving.models:exists",
        "served_models": "launcher.products.models.api.served_models:table",
        "rules serve": "launcher.products.models.serving.rules:check",
        "not_ready RayService": "launcher.products.models.serving.readiness:not_ready",
    },
    instead_of={
        **dict.fromkeys(("server", "host", "api"), "launcher serve"),
        **dict.fromkeys(("talk", "ask", "prompt"), "launcher chat"),
        **dict.fromkeys(("convert", "push-to-hub", "upload"), "launcher export, or launcher import"),
        **dict.fromkeys(("sample", "complete", "infer", "predict", "inference"), "launcher generate"),
        **dict.fromkeys(("evaluate", "benchmark", "lm-eval"), "launcher eval"),
    },
)
