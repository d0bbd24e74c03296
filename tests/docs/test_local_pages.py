"""Run the commands that pages show for this machine, page by page, and compare their output."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.backends.local.backend import LocalBackend
from tests import compiled_programs
from tests.docs.laptop import FreshMachine
from tests.docs.pages import CHECKOUT, DOCS, README, Page, page, pages, runs_here
from tests.docs.reference.files import EVALUATIONS, METRICS

# These pages come first: they share one training, which a later page deletes, and `launcher list` in the tutorial shows
# no other run.
FIRST = (README, DOCS / "tutorial" / "1-laptop.md", DOCS / "tutorial" / "4-fine-tune.md")
SHOWN = [page for page in pages() if any(map(runs_here, page.blocks))]
SHOWN.sort(key=lambda page: (FIRST.index(page.path) if page.path in FIRST else len(FIRST), page.name))


@pytest.fixture(scope="session")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshMachine]:
    """One machine for all pages: a page may use the runs of the tutorial."""
    made = FreshMachine.set_up(tmp_path_factory.mktemp("laptop"))
    for folder in (made.home, made.home / "runs"):  # as the launcher creates them
        folder.mkdir(mode=0o700)
    with compiled_programs.kept(made.home / "runs"):
        yield made
    backend = LocalBackend(made.home)
    for status in backend.list(lambda _: None) if made.home.is_dir() else ():
        if not status.state.ended:  # if a test failed, its runs are still active
            backend.cancel(status.name)


@pytest.mark.parametrize("shown", SHOWN, ids=[page.name for page in SHOWN])
def test_a_page_shows_what_its_commands_print(shown: Page, laptop: FreshMachine) -> None:
    for earlier in (block.options["after"] for block in shown.blocks if "after" in block.options):
        laptop.follow(page(CHECKOUT / earlier))
    laptop.follow(shown)


def test_the_reference_has_the_keys_of_metrics_jsonl(laptop: FreshMachine) -> None:
    laptop.run("make quickstart")
    (file,) = (laptop.home / "runs").glob("quickstart-*/metrics.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    steps = {key for line in lines if "loss" in line for key in line}
    assert steps == {key for key, _ in METRICS} - {"mfu"}  # the peak of a CPU is not known
    assert {key for line in lines if "eval_loss" in line for key in line} == {key for key, _ in EVALUATIONS}


def test_the_run_on_the_pages_own_text_learns(laptop: FreshMachine) -> None:
    """The tutorial shows only the first digits of these losses, because they change with the text of the pages."""
    laptop.follow(page(FIRST[1]))
    summary = laptop.printed["launcher submit -f values/quickstart.yaml -f mine.yaml"]
    untrained = math.log(32_000)  # of a model that gives each token of the vocabulary the same probability
    for name in ("loss", "held-out"):
        losses = re.search(rf"^{name} +([0-9.]+) -> ([0-9.]+)$", summary, re.MULTILINE)
        assert losses is not None, summary
        first, last = map(float, losses.groups())
        assert first == pytest.approx(untrained, rel=0.07) and last < first


def test_the_first_screen_shows_the_two_commands() -> None:
    readme = page(README)
    commands = [example.command for block in readme.blocks for example in block.examples]
    assert commands[:2] == ["make quickstart", "make test"]
    assert readme.text[: readme.text.index("$ make test")].count("\n") < 40


def test_make_test_is_this_very_suite() -> None:
    done = subprocess.run(
        # If `make test` runs this test, this make would otherwise print the directories that it enters.
        ["make", "--dry-run", "--always-make", "--no-print-directory", "test"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ".venv/bin/python -m pytest" in done.stdout.splitlines()[-1]


def test_the_reader_s_files_do_not_land_in_the_checkout(tmp_path: Path) -> None:
    laptop = FreshMachine.set_up(tmp_path)
    laptop.write("mine.yaml", "run: {name: mine}\n")
    assert not (CHECKOUT / "mine.yaml").exists()
    with pytest.raises(AssertionError, match="would be written to the checkout"):
        laptop.write("values/mine.yaml", "")


def test_a_program_in_the_background_is_compared_and_ended(tmp_path: Path) -> None:
    laptop = FreshMachine.set_up(tmp_path)
    server = "sh -c 'trap \"exit {}\" INT; echo ready; while :; do sleep 0.1; done'"
    with laptop.running(server.format(0), "ready\n") as difference:
        assert difference == ""
    with laptop.running("echo other", "ready\n") as difference:
        assert "-ready\n+other" in difference
    with pytest.raises(AssertionError, match="ready"), laptop.running(server.format(3), "ready\n"):
        pass
