"""How a run can end for good."""

from __future__ import annotations


class ConfigError(Exception):
    """The run as it is configured can never work; its text is the sentence that the user reads.

    The process ends with exit code 2 and nothing restarts it: neither Ray Train, nor the launcher's
    supervisor, nor (by their failure policies) a RayJob or a JobSet.
    """


class GaveUp(Exception):  # noqa: N818 (it tells what happened)
    """The run failed more often than run.maxRestarts allows; its text is a sentence. Exit code 1, and no restart."""
