"""Block sizes of the TPU's attention kernel: whether the kernel accepts them, and the nearest accepted size.

Pure arithmetic: maxtext.layers.attention_op.AttentionOp.tpu_flash_attention computes the blocks from MaxText's keys,
and JAX's splash attention, Tokamax's copy of it, and Pallas' lowering for TPUs accept or reject them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

LANES = 128
"""A device's part of a sequence must be a multiple of this, as some block of each kernel is."""

_SUBLANES = 8
_LOCAL = "local_"
# Blocks of queries, and of keys and values, for the forward pass, for dk and dv, and for dq, with the unit of each.
_QUERIES = {"sa_block_q": _SUBLANES, "sa_block_q_dkv": LANES, "sa_block_q_dq": LANES}
_KEYS = {"sa_block_kv": LANES, "sa_block_kv_dkv": _SUBLANES, "sa_block_kv_dq": LANES}
# The parts in which the blocks of keys and values are computed.
_PARTS = {"sa_block_kv_compute": "sa_block_kv", "sa_block_kv_dkv_compute": "sa_block_kv_dkv"}
_UNITS = {**_QUERIES, **_KEYS, "sa_block_kv_compute": LANES, "sa_block_kv_dkv_compute": 1}
_FUSED = "sa_use_fused_bwd_kernel"
_LOCAL_DECODERS = {"gemma2", "gemma3", "gemma4", "gemma4_small", "gpt_oss", "olmo3"}
# Decoders without attention, or whose keys and values are longer or shorter than the sequence.
_OTHER_DECODERS = {"simple", "simple_mlp", "deepseek4", "envy"}
_OTHER_TYPES = {"compressed", "block_diffusion"}


@dataclass(frozen=True)
class BlockSizeError:
    """Blocks of `size` tokens, set by MaxText's `keys`, that the kernel rejects.

    `why` is "sequence" (they do not divide `other` tokens, the whole sequence or a device's part of it), "unit" (they
    are not a multiple of `other`), or "parts" (the keys' size does not divide the block of `of`, which has `other`).
    `nearest` is the size to use instead.
    """

    why: str
    keys: tuple[str, ...]
    size: int
    other: int
    of: str
    nearest: int


def is_used(keys: Mapping[str, Any]) -> bool:
    """Return whether training on TPUs uses a kernel whose blocks are known here; `keys` come from models.settings."""
    flash = keys["attention"] == "flash" or (
        keys["attention"] == "autoselected" and int(keys["max_target_length"]) >= LANES
    )
    known = keys["decoder_block"] not in _OTHER_DECODERS and keys["attention_type"] not in _OTHER_TYPES
    return flash and known and not keys["use_jax_splash"]


def faults(keys: Mapping[str, Any], length: int, shards: int) -> list[BlockSizeError]:
    """Return the blocks in `keys` that the kernel rejects for a sequence of `length` tokens over `shards` devices.

    `length` over `shards` must be a multiple of LANES: otherwise no blocks are valid.
    """
    errors = list(_faults(keys, _named(keys, ""), length, shards))
    local = _named(keys, _LOCAL)
    if keys["decoder_block"] in _LOCAL_DECODERS and any(name.startswith(_LOCAL) for name in local.values()):
        for fault in _faults(keys, local, length, shards):
            if any(name.startswith(_LOCAL) for name in (*fault.keys, fault.of)):
                errors.append(fault)
    return errors


def works(keys: Mapping[str, Any], length: int, shards: int) -> bool:
    """Return whether the kernel accepts the blocks of `keys` for `length` tokens over `shards` devices."""
    return length > 0 and length % (shards * LANES) == 0 and not faults(keys, length, shards)


_TRIES = 10_000


def nearest_length(keys: Mapping[str, Any], length: int, shards: int) -> int | None:
    """Return the valid length nearest to `length`; None if no length up to twice as long is valid.

    At most 10,000 lengths are tried, so that a length of billions does not take long.
    """
    unit = shards * LANES
    middle = length // unit * unit
    below, above = range(middle, 0, -unit), range(middle + unit, 2 * length + unit + 1, unit)
    lengths = heapq.merge(below, above, key=lambda candidate: abs(candidate - length))
    return next((candidate for candidate in islice(lengths, _TRIES) if works(keys, candidate, shards)), None)


def _named(keys: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Map each block to the key of its size: the key for local layers if it is set, otherwise the general key."""
    return {role: prefix + role if keys.get(prefix + role) is not None else role for role in (*_UNITS, _FUSED)}


def _faults(keys: Mapping[str, Any], names: Mapping[str, str], length: int, shards: int) -> Iterator[BlockSizeError]:
    fused = bool(keys[names[_FUSED]]) or bool(keys["use_tokamax_splash"])
    roles = [role for role in _UNITS if not (fused and role.endswith("_dq"))]
    # MaxText limits each block to the whole sequence, however many devices share it.
    sizes = {role: min(int(keys[names[role]]), length) for role in roles}
    reported: set[str] = set()
    limits: Sequence[tuple[str, Callable[[str], int]]] = (
        ("sequence", lambda role: _of(role, length, shards)),
        ("unit", _UNITS.__getitem__),
    )
    for why, limit in limits:
        together: dict[int, list[str]] = {}
        for role, size in sizes.items():
            bad = size < 1 or limit(role) % size if why == "sequence" else size % limit(role)
            if bad and role not in reported:
                together.setdefault(size, []).append(role)
        for size, same in together.items():
            reported.update(same)
            other = (min if why == "sequence" else max)(map(limit, same))
            nearest = _nearest(size, *_between(same, sizes, length, shards))
            yield BlockSizeError(why, tuple(names[role] for role in same), size, other, "", nearest)
    for role, whole in _PARTS.items():
        if not {role, whole} & reported and sizes[whole] % sizes[role]:
            nearest = _nearest(sizes[role], sizes[whole], math.gcd(LANES, sizes[whole]))
            yield BlockSizeError("parts", (names[role],), sizes[role], sizes[whole], names[whole], nearest)


def _of(role: str, length: int, shards: int) -> int:
    """Return the tokens that a block must divide: each device has its part of the queries and all keys and values."""
    return length // shards if role in _QUERIES else length


def _between(roles: list[str], sizes: Mapping[str, int], length: int, shards: int) -> tuple[int, int]:
    """Return what a new size for all these blocks must divide and be a multiple of, with other blocks unchanged."""
    tokens = math.gcd(*(_of(role, length, shards) for role in roles))
    wholes = [sizes[whole] for part, whole in _PARTS.items() if part in roles and whole not in roles]
    parts = [sizes[part] for part, whole in _PARTS.items() if whole in roles and part not in roles]
    within = math.gcd(tokens, *wholes)
    multiple = math.lcm(LANES, *(part for part in parts if part > 0))
    return (within if within % LANES == 0 else tokens), (multiple if tokens % multiple == 0 else LANES)


def _nearest(size: int, tokens: int, multiple: int) -> int:
    """Return the largest divisor of `tokens` up to `size` that is a multiple of `multiple`, or the smallest above it.

    `tokens` is a multiple of `multiple`. A block larger than requested may not fit in the chip's vector memory.
    """
    fitting = [each for each in range(multiple, tokens + 1, multiple) if tokens % each == 0]
    return max((each for each in fitting if each <= size), default=fitting[0])
