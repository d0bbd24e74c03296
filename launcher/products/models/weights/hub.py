"""The client of Hugging Face's hub: creates a repository and uploads a folder in one commit."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from launcher import distribution
from launcher.errors import LauncherError, UsageError

PREFIX = "hf:"
# https://huggingface.co/docs/hub/repositories-getting-started: letters, digits, "-", "_" and "."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


def repository(text: str) -> str:
    """Return ORG/NAME of hf:ORG/NAME. Raises UsageError for another text."""
    name = text.removeprefix(PREFIX)
    if not _NAME.fullmatch(name):
        raise UsageError(f"{text} is not the name of a model on Hugging Face; write hf:ORG/NAME.")
    return name


def check(text: str, *, public: bool) -> None:
    """Raise LauncherError if the hub cannot be reached with this login, or the repository already has a model.

    Also if the repository is public, and the model is not.
    """
    name = repository(text)
    with _client(text) as hub:
        hub.whoami()
        if not hub.repo_exists(name):
            return
        if not (public or hub.model_info(name).private):
            raise LauncherError(f"{text} already exists and is public; to publish the model there, use --public.")
        if model_files := {"config.json", "adapter_config.json"} & {*hub.list_repo_files(name)}:
            raise LauncherError(
                f"{text} already has a model ({model_files.pop()}).", "Choose another name, or delete it there."
            )


def upload(folder: Path, text: str, *, private: bool, say: Callable[[str], None]) -> str:
    """Create the repository if it does not exist, upload the folder in one commit, and return the commit's URL."""
    name = repository(text)
    with _client(text) as hub:
        hub.create_repo(name, private=private, exist_ok=True)
        say(f"Uploading to {text}.")
        done = hub.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload a checkpoint of a run")
        return str(done.commit_url)


@contextlib.contextmanager
def _client(text: str) -> Iterator[Any]:
    """Yield huggingface_hub's client, and convert its errors to sentences."""
    try:
        import httpx
        from huggingface_hub import HfApi, constants, errors
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise LauncherError(
            f"{text} cannot be written: the Python package huggingface-hub is not installed ({sys.executable}).",
            f"Install it next to the launcher: {distribution.install('train')}",
        ) from error
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield HfApi()
    except (errors.LocalTokenNotFoundError, errors.RepositoryNotFoundError) as error:
        raise _denied(text) from error
    except errors.HfHubHTTPError as error:
        code = getattr(error.response, "status_code", None)
        if code in (401, 403):
            raise _denied(text) from error
        raise LauncherError(f"{text} cannot be written: {_first_line(error)}.") from error
    except RuntimeError as error:  # huggingface_hub raises no other class if the upload of a large file fails
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise LauncherError(f"{text} cannot be written: {_first_line(error)}: {_first_line(cause)}.") from error
    except httpx.HTTPError as error:
        raise LauncherError(
            f"{text} cannot be written: {constants.ENDPOINT} does not answer ({_first_line(error)}).",
            "Check the network and the proxy of this machine.",
        ) from error


def _denied(text: str) -> LauncherError:
    return LauncherError(
        f"You may not write {text}: the hub accepts no token of this machine for it.",
        "Log in with a token that may write it: hf auth login, or set HF_TOKEN.",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
