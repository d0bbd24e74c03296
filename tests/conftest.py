"""Settings and fixtures for all tests."""

from __future__ import annotations

import json
import os
import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import coverage
import pytest
from hypothesis import settings

from launcher.helm import client
from launcher.helm.errors import from_stderr
from tests import compiled_programs, coverage_by_package, prerequisites, tiers
from tests.charts.helm import many_commands
from tests.tools import tool
from tests.tools.go_tools import cache_dir
from tests.trainer.runs import TrainingHarness

# Tests of the products use these fixtures, too. A fixture that two conftest.py import would start two control planes.
pytest_plugins = ["tests.cluster.fixtures"]

# The user who runs the tests may have a kubeconfig. The tests must not create runs in that cluster.
if os.environ.get("SLIPWAY_TEST_CLUSTER") != "1":
    os.environ["KUBECONFIG"] = os.devnull
    os.environ.pop("KUBERNETES_SERVICE_HOST", None)

# The developer may have default values files, in ~/.config or in a parent of the checkout.
os.environ["SLIPWAY_NO_DEFAULTS"] = "1"

# The tests start Helm more than a thousand times. Without garbage collection, it takes two thirds of the time. From
# 1 GiB on, which only the API server may reach, Go collects garbage.
os.environ.setdefault("GOGC", "off")
os.environ.setdefault("GOMEMLIMIT", "1GiB")

# In a background process of a shell, Ctrl-C is ignored. Each process that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The examples are the same on every machine, so that every developer can reproduce a failure. `--hypothesis-seed` and
# `--hypothesis-profile=search` try more examples.
settings.register_profile("slipway", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("slipway")


def pytest_configure(config: pytest.Config) -> None:
    for tier in tiers.TIERS:
        config.addinivalue_line("markers", f"{tier.name}: {tier.about}")
    config.addinivalue_line("markers", "quick: make test runs it")
    config.addinivalue_line("markers", "long: .ci/run leaves it to the workflow")


@pytest.hookimpl(wrapper=True)  # starts before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark each test with its tier, group the tests that share a process, and sort the tests by tier."""
    if not any("::" in argument for argument in config.args):
        missing = tiers.missing(item.nodeid for item in items)
        if missing:
            raise pytest.UsageError(f"tests/tiers.py names tests that do not exist: {', '.join(missing)}")
    for item in items:
        if item.get_closest_marker("xdist_group"):  # xdist would make a third group of two names
            raise pytest.UsageError(f"{item.nodeid}: set the group of a tier in tests/tiers.py, not in the test.")
        item.add_marker(tiers.tier_of(item.nodeid).name)
        item.add_marker(pytest.mark.xdist_group(tiers.group_of(item.nodeid)))
        if tiers.is_quick(item.nodeid):
            item.add_marker("quick")
        if tiers.is_long(item.nodeid):
            item.add_marker("long")
    yield
    # Now pytest has moved tests with the same parameter of a fixture together, out of the order of the tiers. The first
    # test of a group starts the whole group.
    items.sort(key=lambda item: tiers.start_order(item.nodeid))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds of each tier over all processes, the coverage of each package, and the skipped tests.

    Coverage is printed if it was measured.
    """
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    phases = [report for report in reports if isinstance(report, pytest.TestReport)]
    if len({report.nodeid.partition("::")[0] for report in phases}) > 1:
        terminalreporter.section("time of each tier")
        # xdist appends the group to the node id.
        table = tiers.summary((report.nodeid.partition("@")[0], report.duration) for report in phases)
        terminalreporter.write_line("\n".join(table))
    plugin = terminalreporter.config.pluginmanager.get_plugin("_cov")
    if plugin is not None and plugin.cov_controller is not None:
        terminalreporter.section("coverage of each package, lines and branches")
        try:
            table = coverage_by_package.table(plugin.cov_controller.cov)
        except coverage.CoverageException as error:  # an interrupted run must still print its failures
            table = [f"There is no coverage to report: {error}"]
        terminalreporter.write_line("\n".join(table))
    if skipped := terminalreporter.stats.get("skipped"):
        terminalreporter.section("skipped tests, and how to enable them")
        terminalreporter.write_line("\n".join(prerequisites.skipped(skipped)))


@pytest.fixture(scope="session", autouse=True)
def _renders_in_one_process() -> Iterator[None]:
    """Let `launcher`, if it runs in this process, render with the Helm 4 that stays (tests/charts/helm.py).

    Commands for a cluster start Helm, as do commands of another Helm, and each `launcher` in a process of its own.
    """
    start = client.Helm._template

    def template(helm: client.Helm, arguments: list[str], values: Any, release: str, *, live: bool = False) -> str:
        ours = helm.executable.startswith(str(cache_dir())) and helm.executable == str(tool("helm"))
        if live or not ours:
            return start(helm, arguments, values, release, live=live)
        rendered, printed = many_commands().run([*arguments, "--debug=false"], json.dumps(values))
        if not rendered:
            raise from_stderr(printed, where=helm._where, release=release)
        return printed

    with mock.patch.object(client.Helm, "_template", template):
        yield


@pytest.fixture(scope="session", params=(os.environ.get("SLIPWAY_TEST_HELM") or "helm helm3").split())
def helm(request: pytest.FixtureRequest) -> Path:
    """Return each supported Helm in turn. SLIPWAY_TEST_HELM selects one of them."""
    return tool(request.param)


@pytest.fixture(scope="session")
def helm4() -> Path:
    return tool("helm")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainingHarness]:
    """Return a folder for runs, and a tokenizer of 512 pieces that is trained on the standard library's source."""
    import sentencepiece

    root = tmp_path_factory.mktemp("lab")
    text = root / "tokenizer.txt"
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-h]*.py"))
    text.write_text("\n".join(path.read_text(encoding="utf-8") for path in modules))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(root / "tokenizer"),
        vocab_size=512,
        model_type="bpe",
        byte_fallback=True,
        input_sentence_size=4000,
        max_sentence_length=8192,
        minloglevel=2,
    )
    runs = root / "runs"
    runs.mkdir()
    with compiled_programs.kept(runs):
        yield TrainingHarness(runs, root / "tokenizer.model")
