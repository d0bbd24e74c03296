"""The errors that end a run."""

from __future__ import annotations

import errno

PASSING = {
    *(errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ENOMEM, errno.ENOTCONN, errno.ESTALE),
    *(errno.ETIMEDOUT, errno.ETXTBSY),
}
"""The errno values for which a restart may help, for example if a mount is not up yet or memory is short."""


class ConfigError(Exception):
    """The run can never work as configured. The text is the sentence that the user reads.

    The process exits with code 2 and nothing restarts it: neither Ray Train, nor the launcher's
    supervisor, nor (by their failure policies) a RayJob or a JobSet.
    """


class RestartsExhausted(Exception):
    """The run failed more often than run.maxRestarts allows. The text is a sentence. Exit code 1, no restart."""


class RayStartTimeout(Exception):
    """The processes of a local Ray did not start in time, because the machine is busy. The text is a sentence."""


class StorageError(Exception):
    """The run's storage is full, missing, or denies access (trainer/storage_errors.py). A restart may fix it."""


class StorageFullError(StorageError, ConfigError):
    """The run's storage is full. A restart would lose steps and fail again, so it ends as for ConfigError."""


class DownloadError(Exception):
    """A model or a data set could not be downloaded, although it may exist. A restart may fix it."""
