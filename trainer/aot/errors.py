"""The errors of a compile, and how they are recognized in the compiler's messages. Imports nothing heavy.

The messages are those of libtpu 0.0.46 and jaxlib 0.11.1, each taken from a real compile
(tests/trainer/test_aot_errors.py).
"""

from __future__ import annotations

import difflib
import re
import signal
from collections.abc import Iterable
from typing import Any, Literal

Kind = Literal["model", "key", "flag", "topology", "extra", "vmem", "memory", "internal"]


class AotError(Exception):
    """The compile produced no program. `kind` gives the reason, `details` the place (flag, key, kernel …).

    model     MaxText has no such model
    key       MaxText rejects the config; `key` is the key of train.*, if it is known
    flag      the compiler rejects `flag`, or its value
    topology  the compiler cannot describe the slice
    extra     a Python package is missing
    vmem      a kernel needs more of the chip's own VMEM (or SMEM) than it may use
    memory    this machine's memory is too small for the compiler
    internal  anything else: a bug in Slipway, in MaxText or in the compiler
    """

    def __init__(self, kind: Kind, message: str, **details: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details

    def line(self) -> dict[str, Any]:
        """Return the JSON object that `python -m trainer.aot` prints last."""
        return {"error": self.kind, "message": str(self), **self.details}


_FLAGS = (
    # jaxlib, at its first use: a fatal log line that lists all unknown flags.
    (re.compile(r"Unknown flags? in XLA_FLAGS: +--(?P<flag>\w+)"), "XLA_FLAGS", "rejects the unknown flag"),
    # libtpu, at load: it prints this and ends the process with exit code 1.
    (
        re.compile(r"^ERROR: Unknown command line flag '(?P<flag>[^']*)'", re.M),
        "LIBTPU_INIT_ARGS",
        "rejects the unknown flag",
    ),
    (
        re.compile(r"^ERROR: Illegal value '(?P<value>[^']*)' specified for flag '(?P<flag>[^']*)'", re.M),
        "LIBTPU_INIT_ARGS",
        "rejects the value '{value}' of",
    ),
    (
        re.compile(r"^ERROR: Missing the value for the flag '(?P<flag>[^']*)'", re.M),
        "LIBTPU_INIT_ARGS",
        "requires a value for",
    ),
    # An exception of compile(), for a flag in train.compile_xla_flags.
    (re.compile(r"No such compile option: '(?P<flag>[^']*)'"), "train.compile_xla_flags", "rejects the unknown flag"),
    (
        re.compile(r"Failed to parse '(?P<value>[^']*)' into flag (?P<flag>\w+)"),
        "train.compile_xla_flags",
        "rejects the value '{value}' of",
    ),
    # An exception of compile(), for a known flag that this generation of chips does not support.
    (
        re.compile(r"FAILED_PRECONDITION: .*Please disable it with (?P<flag>xla_\w+)=(?P<wanted>\w+)", re.S),
        "LIBTPU_INIT_ARGS",
        "does not support, on this kind of chip, the feature of",
    ),
    # An exception of MaxText's parser of train.compile_xla_flags.
    (
        re.compile(r"(?:Invalid flag format|Duplicate flag) detected: '(?P<flag>[^']*)'"),
        "train.compile_xla_flags",
        "cannot parse",
    ),
)


def refused_flag(text: str) -> AotError | None:
    """Return the error for the flag that the compiler rejects, or None if `text` names none.

    `text` is a process's stderr or an exception's message. The details are `flag`, the name with its dashes, which
    users can search for, and `where`, the key that set it.
    """
    for pattern, where, verb in _FLAGS:
        match = pattern.search(text)
        if match:
            flag = "--" + match["flag"].removeprefix("--")
            says = verb.format(**match.groupdict())
            place = where if where.startswith("train.") else f"worker.env.{where}"
            hint = ""
            if where == "XLA_FLAGS" and flag.startswith(("--xla_tpu", "--xla_jf")):
                hint = "; flags of the TPU compiler belong in LIBTPU_INIT_ARGS"
            # Removing the flag is not enough: another flag of the run may enable the same feature.
            cure = f"set {flag}={match['wanted']}" if "wanted" in pattern.groupindex else "remove it or correct it"
            return AotError("flag", f"The compiler {says} {flag} ({place}); {cure}{hint}.", flag=flag, where=place)
    return None


_NO_MEMORY = re.compile(r"std::bad_alloc|Cannot allocate memory|Failed to allocate memory|MemoryError")


def death(code: int, stderr: str) -> AotError:
    """Return why the compiling process ended without an error of its own.

    `code` is its exit code (negative: a signal), `stderr` the end of its stderr.
    """
    if refused := refused_flag(stderr):
        return refused
    if code == -signal.SIGKILL or _NO_MEMORY.search(stderr):
        return AotError(
            "memory",
            "The compiler ran out of this machine's memory (the system ended it); close other programs, or forecast "
            "on a machine with more memory.",
        )
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "no output on stderr")
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return AotError("internal", f"The compiler ended {how}: {last[:500]}")


def nearest(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return up to `count` names with a spelling close to `name`, best first."""
    return difflib.get_close_matches(name, sorted(names), n=count, cutoff=0.4)
