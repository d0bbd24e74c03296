"""The commands that pages show for this machine are run, page by page, and their output compared."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.laptop import Laptop
from tests.docs.pages import CHECKOUT, DOCS, README, Page, page, pages, runs_here

# What these begin with, others go on with: they come first.
FIRST = (README, DOCS / "tutorial" / "1-laptop.md")
SHOWN = [page for page in pages() if any(map(runs_here, page.blocks))]
SHOWN.sort(key=lambda page: (FIRST.index(page.path) if page.path in FIRST else len(FIRST), page.name))


@pytest.fixture(scope="session")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    """One for all pages: a page may go on with the runs of the tutorial, as a reader would."""
    return Laptop.set_up(tmp_path_factory.mktemp("laptop"))


@pytest.mark.timeout(900)  # a training, on a machine that has other things to do
@pytest.mark.parametrize("shown", SHOWN, ids=[page.name for page in SHOWN])
def test_a_page_shows_what_its_commands_print(shown: Page, laptop: Laptop) -> None:
    if shown.path not in FIRST:
        laptop.follow(page(FIRST[-1]))
    laptop.follow(shown)


def test_the_first_screen_shows_the_two_commands() -> None:
    readme = page(README)
    commands = [example.command for block in readme.blocks for example in block.examples]
    assert commands[:2] == ["make quickstart", "make test"]
    assert readme.text[: readme.text.index("$ make test")].count("\n") < 40


def test_make_test_is_this_very_suite() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "test"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert ".venv/bin/python -m pytest" in done.stdout.splitlines()[-1]


def test_the_reader_s_files_do_not_land_in_the_checkout(tmp_path: Path) -> None:
    laptop = Laptop.set_up(tmp_path)
    laptop.write("mine.yaml", "run: {name: mine}\n")
    assert not (CHECKOUT / "mine.yaml").exists()
    with pytest.raises(AssertionError, match="would land in the checkout"):
        laptop.write("values/mine.yaml", "")
