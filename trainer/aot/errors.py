"""How a compile can end without a program, and what the compiler's texts say. Imports nothing heavy.

The texts are libtpu 0.0.46's and jaxlib 0.11.1's, each taken from a real compile (tests/trainer/test_aot_errors.py).
"""

from __future__ import annotations

import difflib
import re
import signal
from collections.abc import Iterable
from typing import Any, Literal

Kind = Literal["model", "key", "flag", "topology", "extra", "vmem", "memory", "internal"]


class AotError(Exception):
    """No program, and why; `details` (flag, key, kernel …) say where.

    model     MaxText has no such model
    key       MaxText refuses the config; `key` is the one of train.*, where it can be told
    flag      the compiler refuses `flag`, or its value
    topology  the compiler cannot describe the slice
    extra     a Python package is missing
    vmem      a kernel needs more of the chip's own VMEM (or SMEM) than it may use
    memory    this machine's memory is too small for the compiler
    internal  anything else: a bug of ours, of MaxText's or of the compiler's
    """

    def __init__(self, kind: Kind, message: str, **details: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details

    def line(self) -> dict[str, Any]:
        """The JSON that `python -m trainer.aot` ends with."""
        return {"error": self.kind, "message": str(self), **self.details}


_FLAGS = (
    # jaxlib, at its first use: a fatal log line that names all the flags it does not know.
    (re.compile(r"Unknown flags? in XLA_FLAGS: +--(?P<flag>\w+)"), "XLA_FLAGS", "does not know"),
    # libtpu, when it is loaded: it prints this and ends the process with exit code 1.
    (re.compile(r"^ERROR: Unknown command line flag '(?P<flag>[^']*)'", re.M), "LIBTPU_INIT_ARGS", "does not know"),
    (
        re.compile(r"^ERROR: Illegal value '(?P<value>[^']*)' specified for flag '(?P<flag>[^']*)'", re.M),
        "LIBTPU_INIT_ARGS",
        "refuses the value '{value}' of",
    ),
    (
        re.compile(r"^ERROR: Missing the value for the flag '(?P<flag>[^']*)'", re.M),
        "LIBTPU_INIT_ARGS",
        "wants a value for",
    ),
    # As an exception of compile(): what train.compile_xla_flags names.
    (re.compile(r"No such compile option: '(?P<flag>[^']*)'"), "train.compile_xla_flags", "does not know"),
    (
        re.compile(r"Failed to parse '(?P<value>[^']*)' into flag (?P<flag>\w+)"),
        "train.compile_xla_flags",
        "refuses the value '{value}' of",
    ),
    # As an exception of compile(), for a flag that it knows and has no use for on this generation of chips.
    (
        re.compile(r"FAILED_PRECONDITION: .*Please disable it with (?P<flag>xla_\w+)=(?P<wanted>\w+)", re.S),
        "LIBTPU_INIT_ARGS",
        "does not support, on chips of this kind, what is done by",
    ),
    # As an exception of MaxText's own reader of that key.
    (
        re.compile(r"(?:Invalid flag format|Duplicate flag) detected: '(?P<flag>[^']*)'"),
        "train.compile_xla_flags",
        "cannot read",
    ),
)


def refused_flag(text: str) -> AotError | None:
    """The flag that the compiler refuses, in a process's stderr or an exception's text; None where it names none.

    `flag` is its name as it is to be searched for (with its dashes), `where` the place that set it.
    """
    for pattern, where, verb in _FLAGS:
        found = pattern.search(text)
        if found:
            flag = "--" + found["flag"].removeprefix("--")
            says = verb.format(**found.groupdict())
            place = where if where.startswith("train.") else f"worker.env.{where}"
            hint = ""
            if where == "XLA_FLAGS" and flag.startswith(("--xla_tpu", "--xla_jf")):
                hint = "; flags of the TPU compiler belong in LIBTPU_INIT_ARGS"
            # Without it, another flag of the run's can still ask for the same.
            cure = f"set {flag}={found['wanted']}" if "wanted" in pattern.groupindex else "remove it or correct it"
            return AotError("flag", f"The compiler {says} {flag} ({place}); {cure}{hint}.", flag=flag, where=place)
    return None


_NO_MEMORY = re.compile(r"std::bad_alloc|Cannot allocate memory|Failed to allocate memory|MemoryError")


def death(code: int, stderr: str) -> AotError:
    """Why the process that compiled is gone without a word: its exit code (negative: a signal), and its stderr."""
    if refused := refused_flag(stderr):
        return refused
    if code == -signal.SIGKILL or _NO_MEMORY.search(stderr):
        return AotError(
            "memory",
            "The compiler ran out of this machine's memory (the system ended it); close other programs, or forecast "
            "on a machine with more.",
        )
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "it said nothing")
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return AotError("internal", f"The compiler ended {how}: {last[:500]}")


def nearest(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Names spelled most like `name`, best first."""
    return difflib.get_close_matches(name, sorted(names), n=count, cutoff=0.4)
