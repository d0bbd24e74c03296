"""Errors that a user can fix, and the exit codes for scripts."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The command's exit codes; part of its public interface."""

    DONE = 0
    FAILURE = 1  # the run failed, or an error that the user can fix
    USAGE = 2
    BUG = 3
    TIMEOUT = 124  # `wait` timed out
    INTERRUPTED = 130


class LauncherError(Exception):
    """An error that the user can fix; its text is the message that the command prints.

    `message` includes the file, the line and the key for anything that comes from a values file.
    `hint` describes the fix if the message does not.
    """

    exit_code = ExitCode.FAILURE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(LauncherError):
    """An invalid command line (exit code 2)."""

    exit_code = ExitCode.USAGE


class Interrupted(LauncherError):
    """Ctrl-C, with a message about what was, or was not, done. The command prints only the message."""

    exit_code = ExitCode.INTERRUPTED


class Detached(Interrupted):
    """Ctrl-C while following a run: the run continues. The message lists the commands to follow it again."""
