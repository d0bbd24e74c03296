"""The values of fine-tuning (`tuning`), and the defaults of MaxText's keys that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRETRAIN, SFT, LORA, QLORA, DPO, ORPO = "pretrain", "sft", "lora", "qlora", "dpo", "orpo"
PAIRS = (DPO, ORPO)
"""The methods whose examples are pairs of a better and a worse answer."""
CUT, DROP, REFUSE = "cut", "drop", "refuse"
MEMORY, PRECOMPUTED = "memory", "precomputed"

# Of trl's SFTConfig 0.25: a tenth of the usual learning rate of pretraining, because the weights are near a minimum.
# A run of hundreds of steps needs a warm-up, and people do not set it.
_DEFAULTS: Mapping[str, Any] = {"learning_rate": 2e-5, "warmup_steps_fraction": 0.03}
# Of trl's DPOConfig and ORPOConfig 0.25, and the warm-up of Zephyr's recipe.
_DEFAULTS_OF_PAIRS: Mapping[str, Any] = {"learning_rate": 1e-6, "warmup_steps_fraction": 0.1}
_FOR_ADAPTERS = 10
"""The factor of the learning rate for adapters, which start at zero: that of trl's scripts for sft and dpo."""


@dataclass(frozen=True)
class Lora:
    """The values `tuning.lora`: `targets` are matrices by their names in Hugging Face format; () means all of them.

    The defaults are those of trl's ModelConfig 0.25. `quantized` is whether the frozen matrices have 4 bits (QLoRA).
    """

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = ()
    quantized: bool = False


@dataclass(frozen=True)
class Tuning:
    """The values `tuning`. `long` is what happens to examples above the length of a sequence: CUT, DROP or REFUSE.

    `beta` is the weight of the preference in the loss of PAIRS. `reference` is where the reference of DPO is: in
    MEMORY, or PRECOMPUTED. `samples` are prompts that the model answers after each evaluation. `lora` is set if only
    adapters are trained: by the methods LORA and QLORA, which are SFT of adapters, or by tuning.adapter.
    """

    method: str = PRETRAIN
    template: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    turns: str = "all"
    long: str = CUT
    beta: float = 0.1
    reference: str = MEMORY
    lora: Lora | None = None
    samples: tuple[str, ...] = ()

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Tuning:
        """Return the settings of a run config."""
        values = {key: value for key, value in (tree.get("tuning") or {}).items() if value is not None}
        method = str(values.get("method") or PRETRAIN)
        adapter = method if method in (LORA, QLORA) else values.get("adapter")
        return cls(
            method,
            str(values.get("template") or ""),
            {str(key): str(value) for key, value in (values.get("columns") or {}).items() if value},
            str(values.get("turns") or "all"),
            str(values.get("tooLong") or CUT),
            float(values.get("beta") or 0.1),
            str(values.get("reference") or MEMORY),
            _lora(values.get("lora") or {}, quantized=adapter == QLORA) if adapter in (LORA, QLORA) else None,
            tuple(map(str, values.get("samples") or ())),
        )

    @property
    def applies(self) -> bool:
        return self.method != PRETRAIN

    @property
    def reads_pairs(self) -> bool:
        return self.method in PAIRS

    @property
    def is_precomputed(self) -> bool:
        """Whether the log probabilities of the reference are computed before the first step."""
        return self.method == DPO and self.reference == PRECOMPUTED

    @property
    def copies_weights(self) -> bool:
        """Whether the reference is a second copy of the weights. That of adapters is the model without them."""
        return self.method == DPO and not self.is_precomputed and self.lora is None

    @property
    def keeps_base(self) -> bool:
        """Whether each start of the run reads the weights that it started from, not only the first."""
        return self.method == DPO or self.lora is not None

    def defaults(self) -> Mapping[str, Any]:
        """Return the keys of MaxText that the method sets if the user does not."""
        if not self.applies:
            return {}
        keys = _DEFAULTS_OF_PAIRS if self.reads_pairs else _DEFAULTS
        return {**keys, "learning_rate": _FOR_ADAPTERS * keys["learning_rate"]} if self.lora else keys


def _lora(values: Mapping[str, Any], *, quantized: bool) -> Lora:
    return Lora(
        int(values.get("rank") or Lora.rank),
        float(values.get("alpha") or Lora.alpha),
        tuple(map(str, values.get("targets") or ())),
        quantized,
    )
