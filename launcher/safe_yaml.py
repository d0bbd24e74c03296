"""PyYAML's safe loader on libyaml, which is ten times as fast as the one in Python and accepts the same text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.errors import LauncherError

if TYPE_CHECKING:
    from yaml import CSafeLoader


def safe_loader() -> type[CSafeLoader]:
    """Return the loader. Raises LauncherError if PyYAML was built without libyaml, which its wheels contain."""
    import yaml

    if not yaml.__with_libyaml__:
        raise LauncherError("This PyYAML has no libyaml.", "Install one of its wheels: pip install --force pyyaml")
    return yaml.CSafeLoader
