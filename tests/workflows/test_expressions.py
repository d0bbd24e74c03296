"""Expressions of workflows, with the results that GitHub's reference gives."""

from __future__ import annotations

import pytest

from tests.workflows.expressions import Value, WorkflowError, as_bool, as_text, evaluate, substitute

CONTEXTS: dict[str, Value] = {
    "github": {"ref": "refs/heads/main", "event": {"before": "abc", "pull_request": None}},
    "matrix": {"name": "unit", "pages": None, "on": True, "rows": ["a", "b"]},
    "needs": {"changes": {"outputs": {"code": "true"}}},
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("github.event.pull_request.base.sha || github.event.before", "abc"),
        ("needs.changes.outputs.code == 'true' || matrix.pages", True),
        ("needs.changes.outputs.code != 'true' || matrix.pages", None),
        ("matrix['name'] == 'UNIT'", True),  # GitHub ignores case
        ("matrix.on && 'yes' || 'no'", "yes"),
        ("!matrix.pages && !(1 > 2)", True),
        ("null == 0 && '' == 0 && true == 1", True),
        ("'a' == 0", False),
        ("1 < 0x10 && 2.5 <= 2.5", True),
        ("contains(github.ref, 'Heads') && contains(matrix.rows, 'b') && !contains(matrix.rows, 'c')", True),
        ("startsWith(github.ref, 'refs/') && endsWith(github.ref, 'main')", True),
        ("format('{0}-{1}', matrix.name, 'it''s')", "unit-it's"),
    ],
)
def test_values(expression: str, value: Value) -> None:
    assert evaluate(expression, CONTEXTS, {}) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("matrix.nmae", '"matrix.nmae" is not known'),
        ("needs.changes.outputs.docs", '"needs.changes.outputs.docs" is not known'),
        ("secrets.TOKEN", '"secrets" is not a known context'),
        ("fromJSON('1')", '"fromJSON" is not a known function'),
        ('matrix.name == "unit"', "is not valid here"),
        ("(matrix.name", r'"\)" is missing'),
        ("matrix.name matrix.on", 'unexpected "matrix"'),
        ("matrix.name ==", "a value is missing"),
    ],
)
def test_what_is_unknown_or_invalid_is_an_error(expression: str, message: str) -> None:
    with pytest.raises(WorkflowError, match=message):
        evaluate(expression, CONTEXTS, {})


def test_texts() -> None:
    assert substitute("ci-${{ github.ref }}-${{ matrix.pages }}", CONTEXTS, {}) == "ci-refs/heads/main-"
    assert substitute(" ${{ matrix.on }} ", CONTEXTS, {}) is True
    assert substitute("${{ matrix.on }}${{ matrix.on }}", CONTEXTS, {}) == "truetrue"
    assert [as_text(value) for value in (None, True, 3.0, 2.5, "x")] == ["", "true", "3", "2.5", "x"]
    values: list[Value] = [None, False, 0, "", "false", [], 1]
    assert [as_bool(value) for value in values] == [*[False] * 4, *[True] * 3]
    with pytest.raises(WorkflowError, match=r'without "}}"'):
        substitute("a ${{ matrix.on }", CONTEXTS, {})
    with pytest.raises(WorkflowError, match="is not a text"):
        substitute("a ${{ matrix.rows }}", CONTEXTS, {})
