"""`make release VERSION=1.2.3`: prepare the release if this is not done, and build its files in dist/.

Preparing means: the version goes into pyproject.toml and all charts, and CHANGELOG.md gets a section for the release.
Nothing is committed, tagged or uploaded: .github/workflows/release.yaml does the rest when the tag is pushed.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.release import changelog, versions
from tests.release.artifacts import build
from tests.release.versions import ReleaseError

CHECKOUT = Path(__file__).parents[2]


def main() -> int:
    if len(sys.argv) != 2 or not sys.argv[1]:
        print("usage: make release VERSION=1.2.3", file=sys.stderr)
        return 2
    version = sys.argv[1]
    try:
        prepared = prepare(CHECKOUT, version)
        built = build(CHECKOUT, version)
    except ReleaseError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    for file in built:
        print(file.relative_to(CHECKOUT))
    if prepared:
        print(
            f'Review the changes, commit them as "Release {version}", and merge the commit. Then push the tag '
            f"v{version}, which publishes the release.",
            file=sys.stderr,
        )
    return 0


def prepare(root: Path, version: str) -> bool:
    """Write the version and the changelog's section, and return True; or return False if they exist.

    Raises ReleaseError if the release is not possible. Then nothing has changed.
    """
    versions.check_clean(root)
    versions.check_step(root, version)
    file = root / "CHANGELOG.md"
    text = file.read_text(encoding="utf-8")
    if changelog.has(text, version):
        versions.check_in_step(root, version)
        return False
    cut = changelog.cut(text, version, datetime.now(UTC).date())
    versions.write(root, version)
    # The READMEs of the charts contain their versions.
    subprocess.run([sys.executable, "-m", "tests.charts.docs"], cwd=root, check=True)
    file.write_text(cut, encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main())
