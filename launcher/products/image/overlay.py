"""Write the image's name to a values file, and keep the rest of the file unchanged."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.config.values.files import read_text
from launcher.errors import LauncherError


@dataclass(frozen=True)
class Overlay:
    """A values file to write to. It may not exist yet."""

    path: Path

    def check(self) -> None:
        """Raise LauncherError if `write` would. Called before a build, which takes minutes."""
        self._changed({"repository": "example"})
        folder = self._target.parent
        if not os.access(folder, os.W_OK):
            raise LauncherError(f'"{self.path}" cannot be written: {folder} is not writable.')

    def write(self, image: Mapping[str, str]) -> None:
        """Set the keys of `image` in the file. Atomic: a reader sees either the old file or the new one."""
        target = self._target
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        text = self._changed(image)
        try:
            with draft.open("w", encoding="utf-8") as file:
                if target.exists():
                    draft.chmod(target.stat().st_mode & 0o7777)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except OSError as error:
            raise LauncherError(f'"{self.path}" cannot be written: {error.strerror}.') from error
        finally:
            draft.unlink(missing_ok=True)

    @property
    def _target(self) -> Path:
        """The file, with symbolic links resolved."""
        return Path(os.path.realpath(self.path))

    def _changed(self, image: Mapping[str, str]) -> str:
        """Return the file's text with `image` set.

        Raises LauncherError if the file cannot be read, is not a valid values file, or if other keys would change.
        """
        target = self._target
        try:
            exists = target.exists()
        except OSError as error:
            raise LauncherError(f'"{self.path}" cannot be read: {error.strerror}.') from error
        if not target.parent.is_dir():
            raise LauncherError(f'"{self.path}" cannot be written: there is no folder {target.parent}.')
        if target.is_dir():
            raise LauncherError(f'"{self.path}" is a folder; --write takes a values file.')
        text = ""
        if exists:
            try:
                text = target.read_bytes().decode("utf-8-sig")
            except OSError as error:
                raise LauncherError(f'"{self.path}" cannot be read: {error.strerror}.') from error
            except UnicodeDecodeError as error:
                raise LauncherError(f'"{self.path}" is not UTF-8 text, so it is not a values file.') from error
        before = self._read(text)
        if not isinstance(before.get("image", {}), dict | None):
            raise LauncherError(f'"{self.path}" has an image that is not a map; it must have repository and digest.')
        after = _edit(text, image)
        wanted = {**before, "image": {**(before.get("image") or {}), **image}}
        with contextlib.suppress(LauncherError):  # the text was valid before, so the change broke it
            if self._read(after) == wanted:
                return after
        raise LauncherError(
            f'"{self.path}" has a form that cannot be preserved if image is changed.',
            "Write to a separate file, such as image.yaml, and pass it last with -f.",
        )

    def _read(self, text: str) -> dict[str, Any]:
        """Parse the text as Helm does. Raises LauncherError with file and line if it is not valid."""

        tree: dict[str, Any] = read_text(text.encode(), str(self.path)).tree
        return tree


def _edit(text: str, image: Mapping[str, str]) -> str:
    """Return `text` with the keys set. If it has no image yet, append the image."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString
    from ruamel.yaml.util import load_yaml_guess_indent

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 20  # do not fold long lines
    try:
        tree = yaml.load(text)
        if not isinstance(tree, dict) or "image" not in tree:
            lines = [f"  {key}: {json.dumps(value)}" for key, value in image.items()]
            gap = "\n" if text.strip() else ""
            return "\n".join([text.rstrip("\n") + gap, "image:", *lines, ""]).lstrip("\n")
        _, indent, offset = load_yaml_guess_indent(text)
        if indent:
            yaml.indent(mapping=2, sequence=indent, offset=offset or 0)
        if tree["image"] is None:
            tree["image"] = CommentedMap()
        for key, value in image.items():
            # A tag such as 1.10 must not become a number.
            tree["image"][key] = DoubleQuotedScalarString(value)
        stream = io.StringIO()
        yaml.dump(tree, stream)
    except YAMLError:  # valid for Helm but not for this library; the caller detects that nothing changed
        return text
    return stream.getvalue()
