"""The steps of `make release` before it builds anything: versions and CHANGELOG.md. `make release` tests the rest."""

from __future__ import annotations

import subprocess
from datetime import date
from pathlib import Path

import pytest

from tests.release import changelog, versions
from tests.release.versions import ReleaseError

ROOT = Path(__file__).parents[2]
CHANGES = """\
# Changelog

## Unreleased

### Upgrade
- Nothing.

### Added
- A thing.

## 0.1.0 - 2026-01-01

### Added
- All.
"""


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one release, and a chart that has changed since."""
    for name, text in {
        "pyproject.toml": '[project]\nname = "x"\nversion = "0.1.0"\n[tool.mypy]\npython_version = "3.12"\n',
        "charts/common/Chart.yaml": "name: common\nversion: 0.1.0\n",
        "charts/run/Chart.yaml": 'name: run\nversion: 0.2.0\ndependencies:\n  - name: common\n    version: ">=0.1.0"\n',
        "charts/run/charts/common/Chart.yaml": "name: common\nversion: 0.1.0\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "First")
    git(tmp_path, "tag", "v0.1.0")
    return tmp_path


def test_the_version_is_written_everywhere(checkout: Path) -> None:
    versions.check_step(checkout, "0.2.0")
    with pytest.raises(ReleaseError, match=r"pyproject\.toml has version 0\.1\.0"):
        versions.check_in_step(checkout, "0.2.0")
    versions.write(checkout, "0.2.0")
    versions.check_in_step(checkout, "0.2.0")
    assert 'python_version = "3.12"' in (checkout / "pyproject.toml").read_text()
    assert 'version: ">=0.1.0"' in (checkout / "charts/run/Chart.yaml").read_text()
    with pytest.raises(ReleaseError, match=r"not committed: charts/common/Chart\.yaml, .*\. Commit them"):
        versions.check_clean(checkout)
    git(checkout, "commit", "--quiet", "--all", "-m", "Release 0.2.0")
    git(checkout, "tag", "v0.2.0")
    versions.check_clean(checkout)
    versions.check_step(checkout, "0.2.0")  # the workflow does this for the tag


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.3", '"0.3" is not a valid version'),
        ("v0.3.0", '"v0.3.0" is not a valid version'),
        ("0.3.0rc1", "is not a valid version"),
        ("0.0.9", "0.0.9 is not higher than the released version 0.1.0"),
        ("0.1.1", r"charts/run/Chart\.yaml already has version 0\.2\.0, higher than 0\.1\.1"),
    ],
)
def test_versions_that_are_refused(checkout: Path, version: str, message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        versions.check_step(checkout, version)


def test_the_changelog_is_cut() -> None:
    cut = changelog.cut(CHANGES, "0.2.0", date(2026, 11, 23))
    assert cut.startswith("# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2026-11-23\n\n### Upgrade\n")
    assert changelog.has(cut, "0.2.0")
    assert not changelog.has(CHANGES, "0.2.0")
    assert changelog.notes(cut, "0.2.0") == "### Upgrade\n- Nothing.\n\n### Added\n- A thing.\n"
    assert changelog.notes(cut, "0.1.0") == "### Added\n- All.\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHANGES.replace("### Upgrade\n- Nothing.\n\n", ""), 'has no section "### Upgrade"'),
        (CHANGES.replace("- Nothing.\n", ""), 'the section "### Upgrade" of "Unreleased" is empty'),
        (CHANGES.replace("## Unreleased\n", ""), 'one section "## Unreleased"'),
    ],
)
def test_a_changelog_that_cannot_be_cut(text: str, message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        changelog.cut(text, "0.2.0", date(2026, 11, 23))


def test_the_changes_of_this_checkout_say_what_to_do() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    if "### " in changelog.section(text, "Unreleased"):  # right after a release, it is empty
        changelog.cut(text, "99.0.0", date(2026, 11, 23))
