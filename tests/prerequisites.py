"""Prerequisites of a test other than Python, Go, make and git, and the list of the tests that lacked one.

`make test` runs only tests that need nothing else; tests/tiers.py lists the others as slow.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest

from tests import tiers


def require(condition: object, reason: str) -> None:
    """Skip the test with `reason` if the condition is false. If the variable CI is set, fail the test instead.

    Call it in a test or a fixture. `reason` is printed at the end of the session. It names what is missing, and how to
    get it. A test that `make test` runs fails here, whether the condition is true or false.
    """
    nodeid = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].partition("@")[0]  # xdist appends the group
    if tiers.is_quick(nodeid):
        pytest.fail("make test skips no test on any machine: add this test to SLOW in tests/tiers.py.")
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def skipped(reports: Iterable[pytest.CollectReport | pytest.TestReport]) -> list[str]:
    """Return lines about skipped tests: for each reason, the number of its tests and their files."""
    files: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        files[reason.removeprefix("Skipped: ")][report.nodeid.partition("::")[0]] += 1
    return [
        line
        for reason, tests in sorted(files.items(), key=lambda item: (-item[1].total(), item[0]))
        for line in (f"{tests.total():>6}  {reason}", f"        {', '.join(sorted(tests))}")
    ]
