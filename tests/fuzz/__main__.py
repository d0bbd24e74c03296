"""`make fuzz`: run many random cases, and keep each find as a file in tests/fuzz/finds.

    make fuzz                           10,000 cases of each target
    make fuzz N=500 FUZZ="cluster"      500 cases of one target: cluster, folder, overlay, render or helm
    make fuzz SEED=7                    the same cases again: every case follows from the seed and its number

A find fails tests/fuzz/test_fuzz.py until the bug is fixed. Cases of render and helm start Helm: a 25th of N.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections import Counter

from tests.fuzz.cases import TARGETS, drawn, keep, kind_of

_SLOW = {"render": 25, "helm": 25}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("targets", nargs="*", choices=[*TARGETS])
    parser.add_argument("-n", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    found: Counter[str] = Counter()
    for name in options.targets or TARGETS:
        count, began = max(1, options.n // _SLOW.get(name, 1)), time.monotonic()
        for number in range(count):
            case = drawn(name, f"{options.seed} {name} {number}")
            for fault in case.faults():
                found[kind_of(fault)] += 1
                if found[kind_of(fault)] == 1:
                    kept = f", kept as {keep(case, fault)}" if options.keep else ""
                    print(f"{name} {number}: {' '.join(case.arguments)}: {fault}{kept}", flush=True)
            if (number + 1) % 500 == 0 or number + 1 == count:
                print(f"{name}: {number + 1} of {count} cases, {time.monotonic() - began:.0f} s", flush=True)
    for kind, times in found.most_common():
        print(f"{times:>6} x {kind}")
    print("no finds" if not found else f"{len(found)} different finds")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
