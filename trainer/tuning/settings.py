"""The values of fine-tuning (`tuning`), and the defaults of MaxText's keys that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRETRAIN, SFT, DPO, ORPO = "pretrain", "sft", "dpo", "orpo"
PAIRS = (DPO, ORPO)
"""The methods whose examples are pairs of a better and a worse answer."""
CUT, DROP, REFUSE = "cut", "drop", "refuse"

# Of trl's SFTConfig 0.25: a tenth of the usual learning rate of pretraining, because the weights are near a minimum.
# A run of hundreds of steps needs a warm-up, and people do not set it.
_DEFAULTS: Mapping[str, Any] = {"learning_rate": 2e-5, "warmup_steps_fraction": 0.03}
# Of trl's DPOConfig and ORPOConfig 0.25, and the warm-up of Zephyr's recipe.
_DEFAULTS_OF_PAIRS: Mapping[str, Any] = {"learning_rate": 1e-6, "warmup_steps_fraction": 0.1}


@dataclass(frozen=True)
class Tuning:
    """The values `tuning`. `long` is what happens to examples above the length of a sequence: CUT, DROP or REFUSE.

    `beta` is the weight of the preference in the loss of PAIRS.
    """

    method: str = PRETRAIN
    template: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    turns: str = "all"
    long: str = CUT
    beta: float = 0.1

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Tuning:
        """Return the settings of a run config."""
        values = {key: value for key, value in (tree.get("tuning") or {}).items() if value is not None}
        return cls(
            str(values.get("method") or PRETRAIN),
            str(values.get("template") or ""),
            {str(key): str(value) for key, value in (values.get("columns") or {}).items() if value},
            str(values.get("turns") or "all"),
            str(values.get("tooLong") or CUT),
            float(values.get("beta") or 0.1),
        )

    @property
    def applies(self) -> bool:
        return self.method != PRETRAIN

    @property
    def reads_pairs(self) -> bool:
        return self.method in PAIRS

    @property
    def keeps_base(self) -> bool:
        """Whether each start of the run reads the weights that it started from, not only the first."""
        return self.method == DPO

    def defaults(self) -> Mapping[str, Any]:
        """Return the keys of MaxText that the method sets if the user does not."""
        if self.reads_pairs:
            return _DEFAULTS_OF_PAIRS
        return _DEFAULTS if self.applies else {}
