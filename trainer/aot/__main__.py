"""python -m trainer.aot RUN_CONFIG.json OUT.json: compile a run for chips that this machine does not have, and write
the description of the program.

Exit code 0: OUT.json is written, atomically. 1: the last line on stdout is {"error": KIND, "message": …} with a kind
of trainer/aot/errors.py. 2: wrong usage. At the start of each phase, a line {"phase": …} is printed on stdout.

The compiler ends its process if it rejects a flag, and the system ends it if memory runs out. Therefore a child process
compiles. The child dies with this process, and this process reports how the child ended.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainer.aot.errors import AotError, death
from trainer.config import RunConfig, read
from trainer.errors import ConfigError

_TOLD = 3  # the same exit code as in trainer/aot/program.py, a module that imports more than this process needs

_STDERR_KEPT = 64 << 10
_COMPILERS_OWN = ("JAX_", "LIBTPU_", "M_", "MEGASCALE_", "PJRT_", "TPU_", "XLA_")
"""Prefixes of the variables that JAX, MaxText and libtpu read."""

_HERE = {
    "JAX_PLATFORMS": "cpu",
    # This machine has no chips and no metadata server.
    "TPU_SKIP_MDS_QUERY": "1",
    # Otherwise libtpu writes to a folder of the machine that Ray shows in the log of every run on it.
    "TPU_LOG_DIR": "disabled",
    "TPU_ACCELERATOR_TYPE": "v6e-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # libtpu's lock prevents two processes from using one chip. Two compiles can run at the same time.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "HF_HUB_OFFLINE": "1",
}
_NOT_TAKEN = {"JAX_COMPILATION_CACHE_DIR", "JAX_DUMP_IR_TO", "TPU_LIBRARY_PATH"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.aot", description=__doc__)
    parser.add_argument("config", type=Path, help="the run config, JSON")
    parser.add_argument("out", type=Path, help="the file for the description of the program, JSON")
    parser.add_argument(
        "--finish", action="store_true", help="also generate the chip's code, which takes ten times as long"
    )
    parser.add_argument("--in-this-process", type=Path, metavar="DUMPS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.in_this_process:
        from trainer.aot.program import compile_and_describe

        dumps = arguments.in_this_process
        failed = compile_and_describe(arguments.config, arguments.out, dumps, finish=arguments.finish)
        return _TOLD if failed else 0
    try:
        config = read(arguments.config.absolute())
    except ConfigError as error:
        return _end(AotError("key", str(error)))
    with tempfile.TemporaryDirectory(prefix="xla-", dir=arguments.out.absolute().parent) as dumps:
        variables = environment(config, os.environ, Path(dumps))
        code, stderr = _run_child([*sys.argv[1:], "--in-this-process", dumps], variables)
    if code in (0, _TOLD):
        return 1 if code else 0
    return _end(death(code, stderr))


def environment(config: RunConfig, own: Mapping[str, str], dumps: Path) -> dict[str, str]:
    """Return the compiler's environment, based on `own`, the environment of this process.

    The variables for JAX, MaxText and libtpu are those that the run's pods would set (worker.env), not those of this
    machine's shell. XLA writes what it compiles to `dumps`. Without that, MaxText makes XLA write to a folder in /tmp.
    """
    kept = {name: value for name, value in own.items() if not name.startswith(_COMPILERS_OWN)}
    given = (config.tree.get("worker") or {}).get("env") or {}
    pods = {
        name: _without_dumps(str(value)) if name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS") else str(value)
        for name, value in given.items()
        if value is not None and name.startswith(_COMPILERS_OWN) and name not in _NOT_TAKEN
    }
    pods["XLA_FLAGS"] = f"{pods.get('XLA_FLAGS', '')} --xla_dump_to={dumps} --xla_dump_compact_gte=false".strip()
    return {**kept, **pods, **_HERE}


def _without_dumps(flags: str) -> str:
    """Remove the flags that make XLA write files. They do not change the program."""
    return " ".join(word for word in flags.split() if not re.match(r"--xla_dump_", word))


def _run_child(arguments: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Compile in a child. Returns its exit code and the end of its stderr, which is copied to this process's stderr."""
    child = subprocess.Popen(  # it writes to the stdout of this process
        [sys.executable, *_interpreter_options(), "-m", "trainer.aot", *arguments],
        env=environment,
        stderr=subprocess.PIPE,
        preexec_fn=_die_with_parent,
    )
    tail = b""
    assert child.stderr is not None  # noqa: S101 - for the type checker
    try:
        while chunk := child.stderr.read1(1 << 16):  # type: ignore[attr-defined]  # its type IO has none
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()
            tail = (tail + chunk)[-_STDERR_KEPT:]
        code = child.wait()
    except KeyboardInterrupt:
        child.kill()
        child.wait()
        raise
    return code, tail.decode(errors="replace")


def _interpreter_options() -> list[str]:
    return ["-P"] if sys.flags.safe_path else []


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; libtpu runs only on Linux


def _end(error: AotError) -> int:
    print(json.dumps(error.line()), flush=True)  # noqa: T201 - what the caller reads
    return 1


if __name__ == "__main__":
    sys.exit(main())
