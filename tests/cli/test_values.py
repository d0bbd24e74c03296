"""The complete output of values and check."""

from __future__ import annotations

from tests.cli.conftest import SHORT, Launcher

A = """\
run:
  name: a
  kind: local
train:
  steps: 10
  mesh: [1, 2]
"""
B = """\
train:
  steps: 20
  mesh: [3]
  note: null
"""


def test_values_are_merged(launcher: Launcher) -> None:
    a, b = launcher.write("a.yaml", A), launcher.write("b.yaml", B)
    result = launcher("values", "-f", a, "-f", b, "--set", "run.name=c")
    assert (result.code, result.err) == (0, "")
    assert result.out == ("run:\n  name: c\n  kind: local\ntrain:\n  steps: 20\n  mesh:\n    - 3\n  note: null\n")


def test_values_with_a_name(launcher: Launcher) -> None:
    assert launcher("values", "-f", launcher.write("a.yaml", A), "--name", "n", "-o", "json").json["run"]["name"] == "n"
    result = launcher("values", "queues", "--name", "n")
    assert (result.code, result.err) == (
        2,
        "Error: --name is the name of a run; leave it out for the values of a chart.\n",
    )


def test_values_as_json(launcher: Launcher) -> None:
    result = launcher("values", "-f", launcher.write("a.yaml", A), "-o", "json")
    assert result.json == {"run": {"name": "a", "kind": "local"}, "train": {"steps": 10, "mesh": [1, 2]}}


def test_values_with_defaults(launcher: Launcher) -> None:
    tree = launcher("values", "-f", launcher.write("a.yaml", A), "--all", "-o", "json").json
    assert tree["run"]["name"] == "a"
    assert tree["run"]["maxRestarts"] == 4
    assert tree["slice"]["count"] == 1


def test_origins(launcher: Launcher) -> None:
    a, b = launcher.write("a.yaml", A), launcher.write("b.yaml", B)
    arguments = ("values", "-f", a, "-f", b, "--set", "run.name=c", "--origins")
    result = launcher(*arguments)
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        'run.name     "c"      --set 1\n'
        'run.kind     "local"  a.yaml:3\n'
        "train.steps  20       b.yaml:2\n"
        "train.mesh   [3]      b.yaml:3\n"
        "train.note   null     b.yaml:4\n"
    )
    items = launcher(*arguments, "-o", "json").json
    assert items[0] == {"key": "run.name", "value": "c", "file": "--set", "line": 1}
    assert items[2] == {"key": "train.steps", "value": 20, "file": "b.yaml", "line": 2}


def test_no_values_at_all(launcher: Launcher) -> None:
    result = launcher("values")
    assert (result.code, result.out, result.err) == (0, "{}\n", "")
    result = launcher("values", "--origins")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_check_finds_nothing(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    result = launcher("check", "-f", file)
    assert (result.code, result.out, result.err) == (0, "", "No problems found.\n")
    assert launcher("check", "-f", file, "-o", "json").json == []


def test_check_finds_all_at_once(launcher: Launcher) -> None:
    text = SHORT + "train: {steps: 3}\nslise: {}\n"
    result = launcher("check", "-f", launcher.write("run.yaml", text), "--name", "Bad Name")
    assert result.code == 1
    assert all(line.startswith(("error: ", "warning: ")) for line in result.out.splitlines())
    assert any("run.yaml:5" in line and "slise" in line and "slice?" in line for line in result.out.splitlines())
    assert "Bad Name" in result.out
    problems = launcher("check", "-f", "run.yaml", "-o", "json").json
    assert set(problems[0]) == {"rule", "severity", "message", "file", "line", "key"}


def test_a_warning_alone_is_no_failure(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT + "train: {steps: 3}\n")
    result = launcher("check", "-f", file)
    assert result.code == 0
    assert result.out.startswith("warning: run.yaml:1: run.command ")
    submitted = launcher("submit", "-f", file)
    assert submitted.code == 0
    assert submitted.err.splitlines()[0].startswith("Warning: run.yaml:1: run.command ")


def test_nothing_is_created(launcher: Launcher) -> None:
    launcher("values", "-f", launcher.write("run.yaml", SHORT), "--all")
    launcher("check", "-f", "run.yaml")
    launcher("list")
    assert not launcher.home.exists()
