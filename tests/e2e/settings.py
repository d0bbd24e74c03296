"""Reads the settings of a run of the suite from environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import LauncherError

LABEL = "slipway.dev/e2e"
"""The label of objects that the suite itself creates, with the run's id. Objects of the charts have the id in their
names."""

_PREFIX = re.compile(r"[a-z]([-a-z0-9]{0,6}[a-z0-9])?")
_ID = re.compile(r"[a-z]([-a-z0-9]{0,6}[a-z0-9])?-[0-9a-f]{6}")


@dataclass(frozen=True)
class Settings:
    """`kubeconfig` as in KUBECONFIG ("": ~/.kube/config); `patience` multiplies the time limit of every wait."""

    kubeconfig: str = ""
    context: str = ""
    prefix: str = "e2e"
    image: str = ""
    plain_image: str = "busybox:1.37.0"
    storage_class: str = ""
    values: str = ""
    kwok: str = "auto"
    release: str = ""
    patience: float = 1.0
    partial: bool = False
    strict: bool = False

    @property
    def image_values(self) -> dict[str, str]:
        """`image` as values: repository and tag, or repository and digest."""
        return split_image(self.image)


def read(environment: Mapping[str, str]) -> Settings:
    """The settings in `environment`. Raises LauncherError with the variable's name for an invalid value."""

    def word(name: str, default: str = "") -> str:
        return environment.get(f"SLIPWAY_E2E_{name}", "").strip() or default

    settings = Settings(
        kubeconfig=os.pathsep.join(map(_absolute, filter(None, environment.get("KUBECONFIG", "").split(os.pathsep)))),
        context=word("CONTEXT"),
        prefix=word("PREFIX", "e2e"),
        image=word("IMAGE"),
        plain_image=word("PLAIN_IMAGE", Settings.plain_image),
        storage_class=word("STORAGE_CLASS"),
        values=_absolute(word("VALUES")),
        kwok=word("KWOK", "auto"),
        release=word("RELEASE"),
        patience=_number("PATIENCE", word("PATIENCE", "1")),
        partial=_switch("PARTIAL", word("PARTIAL", "0")),
        strict=environment.get("CI", "").lower() in ("1", "true"),
    )
    if not _PREFIX.fullmatch(settings.prefix):
        raise LauncherError(
            f'SLIPWAY_E2E_PREFIX is "{settings.prefix}"; it must have at most 8 lowercase letters, digits and hyphens '
            "and begin with a letter, because names in Kubernetes begin with it."
        )
    if settings.kwok not in ("auto", "yes", "no"):
        raise LauncherError(f'SLIPWAY_E2E_KWOK is "{settings.kwok}"; it must be auto, yes or no.')
    for name, image in (("IMAGE", settings.image), ("PLAIN_IMAGE", settings.plain_image)):
        if image:
            _check_image(name, image)
    return settings


def split_image(image: str) -> dict[str, str]:
    """The repository and tag of "example.com:5000/trainer:1"; with @sha256:…, the repository and digest."""
    repository, at, digest = image.partition("@")
    if at:
        return {"repository": _without_tag(repository)[0], "tag": "", "digest": digest}
    repository, tag = _without_tag(image)
    return {"repository": repository, "tag": tag, "digest": ""}


def is_id(text: str) -> bool:
    """Whether `text` can be a run's id, such as e2e-1a2b3c."""
    return bool(_ID.fullmatch(text))


def _check_image(name: str, image: str) -> None:
    parts = split_image(image)
    if not parts["repository"] or not (parts["tag"] or parts["digest"]) or parts["tag"] == "latest":
        raise LauncherError(
            f'SLIPWAY_E2E_{name} is "{image}"; it must be an image with a tag (not latest) or a digest, such as '
            "example.com/team/trainer:0.1.0."
        )


def _absolute(path: str) -> str:
    """An absolute path, because commands run in another folder."""
    return str(Path(path).expanduser().absolute()) if path else ""


def _without_tag(image: str) -> tuple[str, str]:
    folder, slash, last = image.rpartition("/")
    base, _, tag = last.partition(":")
    return folder + slash + base, tag


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0.1 <= number <= 100:
        raise LauncherError(
            f'SLIPWAY_E2E_{name} is "{text}"; it must be a number from 0.1 to 100, by which time limits are multiplied.'
        )
    return number


def _switch(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise LauncherError(f'SLIPWAY_E2E_{name} is "{text}"; it must be 0 or 1.')
    return text == "1"
