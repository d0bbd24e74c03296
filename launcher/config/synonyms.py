"""The names that other trainers use for Slipway's and MaxText's keys, for the suggestion on an unknown key.

Those in synonyms.json are of Hugging Face's Trainer and its model configs, PyTorch Lightning, Megatron-LM, nanoGPT,
and of schedulers. The others are the names that MaxText's keys had in earlier versions (maxtext/earlier.json).
"""

from __future__ import annotations

import json
from pathlib import Path

from launcher.config.suggest import bare

_FOLDER = Path(__file__).parent
_OTHERS = json.loads((_FOLDER / "synonyms.json").read_text(encoding="utf-8"))
# The keys that MaxText renamed or removed, from the versions of its configs/base.yml since April 2023.
_EARLIER = json.loads((_FOLDER / "maxtext" / "earlier.json").read_text(encoding="utf-8"))

SYNONYMS = {bare(word): tuple(keys.split()) for keys, words in _OTHERS.items() for word in words}
SYNONYMS |= {bare(key): tuple(keys.split()) for key, keys in _EARLIER["renamed"].items()}
"""The keys that a word means, dotted. The words are as launcher.config.suggest.bare writes them."""

CHANGED = {bare(key): advice for key, advice in _EARLIER["replaced"].items()}
CHANGED |= {bare(key): "MaxText removed it; remove the key." for key in _EARLIER["removed"]}
"""What to do about a key of earlier versions of MaxText that no key replaces one for one. Spelled as in SYNONYMS."""
