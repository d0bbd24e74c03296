"""The reference pages match their sources."""

from __future__ import annotations

import pytest

from tests.docs import picture
from tests.docs.pages import CHECKOUT, DOCS
from tests.docs.reference import PAGES, environment
from tests.docs.reference.rules_reference import rule_names, rules


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_generated(name: str) -> None:
    current = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    assert current == PAGES[name](), "run `make docs`"


def test_every_reference_page_is_generated() -> None:
    """`make forecast-proof` takes hours, and `make simulate-proof` needs the recordings. The pages about exports and
    about traces are written by hand: they explain what the code only calculates. So is the page about alerts."""
    by_hand = {"alerts", "forecast-proof", "simulate-proof", "export", "simulation-trace"}
    assert {path.stem for path in (DOCS / "reference").glob("*.md")} == {*PAGES, *by_hand}


def test_every_rule_of_check_has_an_example() -> None:
    named = rule_names()
    assert len(named) > 20  # fails if no rules were found
    assert named - rules().keys() == set()


def test_the_page_has_every_environment_variable_that_the_code_reads() -> None:
    read = environment.read_by(CHECKOUT / "launcher", CHECKOUT / "trainer")
    assert len(read) > 20  # fails if no variables were found
    documented = environment.COMMAND.keys() | environment.TRAINER.keys()
    assert {name: file for name, file in read.items() if name not in documented} == {}
    assert documented - read.keys() == set()


def test_the_picture_is_as_drawn() -> None:
    assert picture.FILE.read_text(encoding="utf-8") == picture.draw(), "run `make docs`"
