"""The values of fine-tuning (`tuning`), and the defaults of MaxText's keys that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRETRAIN, SFT = "pretrain", "sft"
CUT, DROP, REFUSE = "cut", "drop", "refuse"

# Of trl's SFTConfig 0.25: a tenth of the usual learning rate of pretraining, because the weights are near a minimum.
# A run of hundreds of steps needs a warm-up, and people do not set it.
_DEFAULTS: Mapping[str, Any] = {"learning_rate": 2e-5, "warmup_steps_fraction": 0.03}


@dataclass(frozen=True)
class Tuning:
    """The values `tuning`. `long` is what happens to examples above the length of a sequence: CUT, DROP or REFUSE."""

    method: str = PRETRAIN
    template: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    turns: str = "all"
    long: str = CUT

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
        )

    @property
    def applies(self) -> bool:
        return self.method != PRETRAIN

    def defaults(self) -> Mapping[str, Any]:
        """Return the keys of MaxText that the method sets if the user does not."""
        return _DEFAULTS if self.applies else {}
