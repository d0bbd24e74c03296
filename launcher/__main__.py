"""Converts errors to messages and exit codes. No other module does."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.cli import output
from launcher.errors import ExitCode, Interrupted, LauncherError

# Errors of the user's machine, in any part of the code.
_USER_ERRNOS = (
    *(errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    *(errno.EIO, errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.ENFILE),
)
_BUG = "This is a bug in Slipway; please report it with the lines above."


def main() -> None:
    """Run the console script."""
    # Python has None for a stream that the caller has closed (`launcher list >&-`).
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr, for a terminal or a pipe that is not UTF-8
    # Garbage collection would take a tenth of a fast command, and a fifth of a list of a thousand runs.
    gc.set_threshold(1_000_000)
    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        if "_LAUNCHER_COMPLETE" in os.environ:  # a normal exit would wait for the threads that still read a cluster
            sys.stdout.flush()
            os._exit(0)


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code (ExitCode)."""
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:
        return _os_error(error)
    except Exception:
        return _internal_error()
    return code


def _invoke(arguments: Sequence[str]) -> int:
    import click

    from launcher.cli.main import cli

    try:
        code = cli.main(args=list(arguments), prog_name="launcher", standalone_mode=False)
    except Interrupted as interrupted:
        _print_error(interrupted.message)
        return interrupted.exit_code
    except LauncherError as error:
        # Multiple errors are one line each; lines that continue the one above are indented.
        for line in error.message.splitlines():
            _print_error(line if line.startswith(" ") else f"Error: {line}")
        if error.hint:
            _print_error(f"Hint: {error.hint}")
        return error.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        _print_error(shown.getvalue().rstrip("\n"))
        return error.exit_code
    except click.Abort as abort:
        # click raises Abort for Ctrl-C, and for the end of input at a prompt.
        return ExitCode.INTERRUPTED if isinstance(abort.__cause__, KeyboardInterrupt) else ExitCode.FAILURE
    return code if isinstance(code, int) else ExitCode.DONE


def _os_error(error: OSError) -> int:
    """Report an operating system error that was not handled elsewhere: usually from writing the output."""
    if error.errno == errno.EPIPE:  # the reader (head, less) closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILURE
    if error.errno == errno.ENOSPC and error.filename is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _print_error(f"Error: The output cannot be written: {error.strerror}.")
        return ExitCode.FAILURE
    if error.errno == errno.ENOENT and not _has_current_folder():
        _print_error("Error: The current folder no longer exists. Change to another folder and try again.")
        return ExitCode.FAILURE
    if error.errno in _USER_ERRNOS and error.filename is not None:
        _print_error(f"Error: {error.filename}: {error.strerror}.")
        return ExitCode.FAILURE
    return _internal_error()


def _has_current_folder() -> bool:
    """Return False if the folder was removed. Its error has no file name, as other errors have."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _internal_error() -> int:
    import traceback  # a fifteenth of the imports of `launcher render`

    _print_error(traceback.format_exc().rstrip("\n"))
    _print_error(_BUG)
    return ExitCode.BUG


def _print_error(text: str) -> None:
    output.narrate(text)


if __name__ == "__main__":
    main()
