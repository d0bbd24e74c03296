"""The product `tuning`: the examples of a fine-tuning, and the rules of its adapters."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Fine-tune",
    package="launcher.products.tuning.cli",
    commands={
        "data": Command(
            "Show the examples of a fine-tuning as the trainer reads them.",
            (
                "launcher data preview mine.yaml",
                "launcher data preview mine.yaml --set data.files='[answers.jsonl]' --count 10",
            ),
            "docs/how-to/fine-tune-on-conversations.md",
        ),
    },
    api={"preview_data": "launcher.products.tuning.api"},
    hooks={"rules": "launcher.products.tuning.adapter_rules:rules"},
)
