"""The list of slow modules that functions import has no entry that only a removed module needed."""

from __future__ import annotations

from tests.function_imports import LEAST_MS, in_functions, listed


def test_the_list_has_only_slow_modules_that_a_function_imports() -> None:
    assert set(listed()) == {each.listed_as for each in in_functions()}
    assert min(listed().values()) >= LEAST_MS
