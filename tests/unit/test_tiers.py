"""The tiers: every test is in one, each slow tier has a smoke test, and a wrong name is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers
from tests.prerequisites import require

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("file", "tier"),
    [
        ("tests/unit/test_plan.py", "unit"),
        ("tests/test_wheel.py", "unit"),
        ("tests/cli/test_help.py", "cli"),
        ("tests/cli/test_training.py", "training"),
        ("tests/trainer/test_stop_signals.py", "training"),
        ("tests/trainer/test_aot_memory.py", "compiler"),
        ("tests/charts/test_queues.py", "charts"),
        ("tests/charts/test_queues_live.py", "cluster"),
        ("tests/cluster/test_pages.py", "cluster"),
        ("tests/image/containers/test_node.py", "image"),
    ],
)
def test_a_file_is_in_a_tier(file: str, tier: str) -> None:
    assert (CHECKOUT / file).is_file()
    assert tiers.tier_of(file).name == tier


def test_files_that_share_renders_share_a_process() -> None:
    files = {f"tests/charts/test_{name}.py" for name in ("goldens", "presets", "pod_security", "scan")}
    assert {tiers.group_of(f"{file}::test_x") for file in files} == {"presets"}
    assert tiers.group_of("tests/trainer/test_training.py::test_x") == "training"
    assert tiers.group_of("tests/unit/test_plan.py::test_x") == "tests/unit/test_plan.py"


def test_each_slow_tier_has_a_smoke_test_or_needs_more_than_this_machine() -> None:
    slow = {tier.name for tier in tiers.TIERS if not tier.quick}
    smoked = {tiers.tier_of(nodeid).name for nodeid in tiers.SMOKE}
    assert slow - smoked == {"e2e", "image", "browser", "harness"}


def test_the_tests_that_make_test_runs() -> None:
    assert tiers.is_quick("tests/unit/test_plan.py::test_x")
    assert not tiers.is_quick("tests/charts/test_scan.py::test_x[a]")
    assert tiers.is_quick("tests/charts/test_queues.py::test_x[helm-a]")
    assert not tiers.is_quick("tests/charts/test_queues.py::test_x[helm3]")
    assert not tiers.is_quick("tests/charts/test_queues.py::test_x[a-helm3-b]")
    assert not tiers.is_quick("tests/cluster/test_submit.py::test_x")
    for nodeid in tiers.SMOKE:
        assert tiers.is_quick(nodeid)
        assert "[" in nodeid or tiers.is_quick(f"{nodeid}[a-b]")


def test_the_tests_that_ci_run_leaves_out() -> None:
    assert tiers.is_long("tests/trainer/test_weights_memory.py::test_x[a-b]")
    assert tiers.is_long("tests/products/gke/test_terraform_scan.py::test_x")
    assert not tiers.is_long("tests/products/gke/cluster/test_gke.py::test_from_an_empty_project_to_nothing[stand-in]")
    assert not any(map(tiers.is_quick, tiers.LONG))


def test_a_smoke_test_that_was_renamed_is_missing() -> None:
    name = min(nodeid for nodeid in tiers.SMOKE if "[" not in nodeid)
    file = name.partition("::")[0]
    assert name in tiers.missing([f"{file}::test_other"])
    assert tiers.missing(["tests/unit/test_plan.py::test_other"]) == []
    assert name not in tiers.missing([f"{name}[a-b]"])


def test_the_time_of_each_tier() -> None:
    assert tiers.summary([("tests/unit/a.py::x", 1.0), ("tests/unit/a.py::x", 0.5), ("tests/cli/b.py::y", 2.0)]) == [
        "cli            1 tests       2 s",
        "unit           1 tests       2 s",
    ]


def test_a_prerequisite_that_is_missing_skips_a_test_and_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    require(True, "Nothing is missing.")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"This needs root\."):
        require(False, "This needs root.")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"This needs root\."):
        require(False, "This needs root.")


def test_skipped_tests_are_listed_with_their_reasons(tmp_path: Path) -> None:
    tests = ["tests/cli/test_completion.py::test_in_fish", "tests/cli/test_completion.py::test_in_a_real_shell[zsh]"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *tests],
        cwd=CHECKOUT,
        env={name: value for name, value in os.environ.items() if name != "CI"} | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    title, *lines = done.stdout[done.stdout.index("skipped tests, and") :].splitlines()
    assert title.strip(" =") == "skipped tests, and how to enable them"
    assert lines[:-1] == [
        "     1  The test starts fish. Install it.",
        "        tests/cli/test_completion.py",
        "     1  The test starts zsh. Install it.",
        "        tests/cli/test_completion.py",
    ]


def test_a_test_that_make_test_runs_may_not_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    for nodeid in ("tests/unit/test_plan.py::test_x", "tests/unit/test_plan.py::test_x[a b]@tests/unit/test_plan.py"):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{nodeid} (call)")
        with pytest.raises(pytest.fail.Exception, match=r"add this test to SLOW in tests/tiers\.py"):
            require(True, "Nothing is missing.")


@pytest.mark.parametrize(
    ("changed", "printed"),
    [
        (["docs/index.md", "README.md"], "code=false\n"),
        (["docs/index.md", "docs/examples/sweep.ipynb"], "code=true\n"),
        (["charts/run/README.md"], "code=true\n"),
        (["launcher/cli/main.py"], "code=true\n"),
    ],
)
def test_a_change_to_pages_alone_is_known(changed: list[str], printed: str, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    for number, files in enumerate(([], changed)):
        for file in [f"base{number}", *files]:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            if file in files or number == 0:
                (tmp_path / file).write_text(file)
        subprocess.run([*git, "add", "--all"], cwd=tmp_path, check=True)
        subprocess.run([*git, "commit", "-qm", "x"], cwd=tmp_path, check=True)
    script = CHECKOUT / ".github" / "changed-code"
    for base, expected in (("HEAD~1", printed), ("0" * 40, "code=true\n")):
        done = subprocess.run([script, base], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == expected
