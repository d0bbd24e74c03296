"""The lint of charts passes a valid chart, and each of its checks fails on a broken copy."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.charts import lint

LIBRARY = "apiVersion: v2\nname: common\ndescription: What charts share.\ntype: library\nversion: 0.1.0\n"
CHART = (
    "apiVersion: v2\nname: demo\ndescription: One object.\ntype: application\nversion: 0.1.0\n"
    'dependencies:\n  - name: common\n    version: ">=0.1.0"\n'
)
TEMPLATE = """\
{{- if not .Values.name }}{{ fail "name is empty; give the object a name." }}{{ end }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Values.name }}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with a library, a chart that contains it, and the rules of this checkout; its base is origin/main."""
    write(tmp_path / "charts/common/Chart.yaml", LIBRARY)
    write(tmp_path / "charts/common/values.yaml", "table: 1\n")
    write(tmp_path / "charts/common/templates/_names.tpl", '{{ define "common.name" }}x{{ end }}\n')
    write(tmp_path / "charts/demo/Chart.yaml", CHART)
    write(tmp_path / "charts/demo/values.yaml", '# -- Name of the object.\nname: ""\n')
    write(tmp_path / "charts/demo/templates/object.yaml", TEMPLATE)
    write(tmp_path / "charts/demo/ci/small-values.yaml", "name: a\n")
    shutil.copytree(tmp_path / "charts/common", tmp_path / "charts/demo/charts/common")
    for name in ("ct.yaml", "lintconf.yaml", "chart_schema.yaml"):
        shutil.copy(lint.CHECKOUT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    commit(tmp_path)
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    return tmp_path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, stdout=subprocess.DEVNULL)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "x")


def faults(root: Path, *helms: str) -> list[str]:
    return [fault for report in lint.check(root, helms=helms) for fault in report.faults]


def replace(file: str, old: str, new: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        text = (root / file).read_text()
        assert old in text
        (root / file).write_text(text.replace(old, new))

    return change


def test_a_valid_chart_passes(root: Path) -> None:
    reports = lint.check(root)
    assert [report.faults for report in reports] == [[], []]
    assert [report.line for report in reports] == [
        "charts/common 0.1.0: fine (a library; no release to compare with)",
        "charts/demo 0.1.0: fine (1 ci values file; no release to compare with)",
    ]


DEMO = "charts/demo/"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace(f"{DEMO}Chart.yaml", "apiVersion: v2", "apiVersion: v1"), "Chart.yaml: apiVersion: 'v1' not in ('v2'"),
        (replace(f"{DEMO}Chart.yaml", "object.", "object"), "Chart.yaml: description: 'One object' is not a sentence."),
        (replace(f"{DEMO}Chart.yaml", "type:", "tipe:"), "Chart.yaml: tipe: Unexpected element."),
        (replace(f"{DEMO}Chart.yaml", "0.1.0\n", "0.1\n"), "Chart.yaml: version: '0.1' is not a version like 1.2.3."),
        (
            replace(f"{DEMO}values.yaml", 'name: ""', 'name:   ""'),
            "values.yaml:2: too many spaces after colon (colons)",
        ),
        (replace(f"{DEMO}values.yaml", 'name: ""\n', 'name: ""\nname: b\n'), "duplication of key"),
        (replace(f"{DEMO}values.yaml", '""\n', '""\non: yes\n'), "truthy value should be one of"),
        (replace(f"{DEMO}ci/small-values.yaml", ": a", ": a "), "ci/small-values.yaml:1: trailing spaces"),
        (replace("charts/common/values.yaml", "table: 1\n", "table: 010\n"), "forbidden implicit octal value"),
        (lambda root: (root / f"{DEMO}values.yaml").unlink(), "charts/demo/values.yaml is missing."),
        (
            lambda root: shutil.copy(root / f"{DEMO}ci/small-values.yaml", root / f"{DEMO}ci/big.yaml"),
            "charts/demo/ci/big.yaml is not seen by ct; call it big-values.yaml.",
        ),
    ],
)
def test_a_fault_in_a_file_is_reported(root: Path, change: Callable[[Path], None], message: str) -> None:
    change(root)
    found = [fault for fault in faults(root) if "must be higher" not in fault]
    assert any(message in fault for fault in found), found


@pytest.mark.parametrize("name", ["helm", "helm3"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace(f"{DEMO}templates/object.yaml", "metadata:", "metadata: ["), "helm lint of charts/demo with charts"),
        (
            replace(f"{DEMO}templates/object.yaml", ".Values.name }}\n", ".Vales.name.x }}\n"),
            "helm lint of charts/demo",
        ),
        (replace(f"{DEMO}ci/small-values.yaml", "a", '""'), "name is empty; give the object a name."),
    ],
)
def test_what_helm_rejects_is_reported(root: Path, name: str, change: Callable[[Path], None], message: str) -> None:
    change(root)
    found = [fault for fault in faults(root, name) if "must be higher" not in fault]
    assert any(message in fault for fault in found), found


@pytest.mark.parametrize(
    ("change", "changed_charts"),
    [
        (replace(f"{DEMO}templates/object.yaml", "v1", "v2"), ["charts/demo"]),
        (replace("charts/common/templates/_names.tpl", "x", "y"), ["charts/common"]),
        (replace(f"{DEMO}charts/common/templates/_names.tpl", "x", "y"), ["charts/demo"]),
        (replace("ct.yaml", "remote", "# remote\nremote"), []),
        (lambda root: write(root / f"{DEMO}templates/more.yaml", ""), ["charts/demo"]),
        (lambda root: (root / f"{DEMO}ci/small-values.yaml").unlink(), ["charts/demo"]),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_a_changed_chart_needs_a_higher_version(
    root: Path, change: Callable[[Path], None], changed_charts: list[str], committed: bool
) -> None:
    change(root)
    if committed:
        commit(root)
    found = faults(root)
    assert [fault.partition("/Chart.yaml: ")[0] for fault in found] == changed_charts
    assert all(fault.endswith("changed since 0.1.0; version 0.1.0 must be higher.") for fault in found)
    for chart in changed_charts:
        replace(f"{chart}/Chart.yaml", "version: 0.1.0", "version: 0.1.1")(root)
    assert faults(root) == []


@pytest.mark.parametrize(("version", "higher"), [("0.0.9", False), ("0.1.0-rc.1", False), ("0.1.10", True)])
def test_versions_have_an_order(root: Path, version: str, higher: bool) -> None:
    replace(f"{DEMO}Chart.yaml", "version: 0.1.0\n", f"version: {version}\n")(root)
    assert (faults(root) == []) is higher


def test_on_the_branch_itself_the_last_release_counts(root: Path) -> None:
    git(root, "tag", "v0.1.0")
    replace(f"{DEMO}values.yaml", "Name", "The name")(root)
    commit(root)
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert faults(root) == [
        "charts/demo/Chart.yaml: charts/demo/values.yaml changed since 0.1.0; version 0.1.0 must be higher."
    ]


def test_a_new_chart_and_a_folder_without_history_pass_with_a_note(root: Path) -> None:
    shutil.copytree(root / "charts/demo", root / "charts/another")
    replace("charts/another/Chart.yaml", "name: demo", "name: another")(root)
    lines = [report.line for report in lint.check(root, helms=())]
    assert "charts/another 0.1.0: fine (1 ci values file; new)" in lines
    shutil.rmtree(root / ".git")
    lines = [report.line for report in lint.check(root, helms=())]
    assert "charts/demo 0.1.0: fine (1 ci values file; no git history to compare with)" in lines


def test_ct_finds_the_same_rules() -> None:
    """ct reads these two files from the folder that it runs in, but the lint here reads their names from ct.yaml."""
    import yaml

    config = yaml.safe_load((lint.CHECKOUT / "ct.yaml").read_text())
    assert (config["chart-yaml-schema"], config["lint-conf"]) == ("chart_schema.yaml", "lintconf.yaml")
    assert config["excluded-charts"] == ["common"]
