"""The errors a user can act on, and the exit codes that scripts read."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command ends with; part of its contract."""

    DONE = 0
    FAILURE = 1  # the run failed, or something the user can mend
    USAGE = 2
    BUG = 3
    TIMEOUT = 124  # `wait` ran out of time
    INTERRUPTED = 130


class LauncherError(Exception):
    """A sentence the user can act on; its text is the message that the command prints.

    `message` names the file, the line and the key for anything that came from a values file;
    `hint` says what to do, where the message does not say it already.
    """

    exit_code = ExitCode.FAILURE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(LauncherError):
    """The command line itself is wrong (exit code 2)."""

    exit_code = ExitCode.USAGE


class Detached(LauncherError):
    """Ctrl-C while following: nothing is wrong and the run goes on; the message says how to come back."""

    exit_code = ExitCode.INTERRUPTED
