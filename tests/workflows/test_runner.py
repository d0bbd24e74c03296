"""The runner of workflows fails where GitHub's does, and does not skip what it does not know."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import dedent

import pytest

from tests.workflows.actions import Event, World
from tests.workflows.expressions import WorkflowError
from tests.workflows.machine import Machine
from tests.workflows.reading import Job, workflows
from tests.workflows.runner import Result, Runner

JOB = """
    name: x
    on: push
    env: {A: workflow}
    jobs:
      one:
        runs-on: ubuntu-24.04
        STEPS
"""


def jobs(folder: Path, text: str) -> list[Job]:
    (folder / ".github/workflows").mkdir(parents=True)
    (folder / ".github/workflows/x.yaml").write_text(dedent(text))
    return [job for workflow in workflows(folder) for job in workflow.jobs()]


def run(folder: Path, steps: str) -> Result:
    """Run a job with these lines."""
    lines = dedent(steps).strip().replace("\n", "\n        ")
    [job] = jobs(folder, JOB.replace("STEPS", lines))
    world = World(Event(folder, "0" * 40, "refs/heads/main"), folder / "artifacts", {})
    machine = Machine(folder / "machine", full=False)
    if (folder / "set-up").exists():
        shutil.copytree(folder / "set-up", machine.workspace / "set-up")
    return Runner(job, machine, world, {}, print).run()


def test_a_script_that_fails_ends_the_job(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        """
        steps:
          - run: "true"
          - run: |
              false
              echo not reached
          - run: echo skipped
          - run: echo cleanup
            if: always()
          - run: echo failed
            if: failure() && env.A == 'workflow'
        """,
    )
    assert result.failed == "step 2 (false\necho not reached): exit code 1"
    assert result.ran == ["true", "false\necho not reached", "echo cleanup", "echo failed"]


@pytest.mark.parametrize(("shell", "fails"), [("", False), ("shell: bash", True), ("shell: sh", False)])
def test_only_the_named_bash_has_pipefail(tmp_path: Path, shell: str, fails: bool) -> None:
    result = run(tmp_path, f"steps:\n  - run: false | true\n    {shell}")
    assert bool(result.failed) == fails


def test_the_environment_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_DEVELOPER", "x")
    result = run(
        tmp_path,
        """
        env: {B: "${{ env.A }}-job"}
        steps:
          - run: test "$A $B $C" = "workflow workflow-job step" && test -z "$OF_THE_DEVELOPER" && test "$CI" = true
            env: {C: step}
          - run: test -z "$C" && [ -z "$(ls -A ~)" ] && [ -z "$(ls -A)" ]
          - id: first
            run: |
              echo one=1 >>"$GITHUB_OUTPUT"
              printf 'two<<END\\na\\nb\\nEND\\n' >>"$GITHUB_OUTPUT"
              echo NEW=value >>"$GITHUB_ENV"
              mkdir ~/bin && printf '#!/bin/sh\\necho mine' >~/bin/mine && chmod +x ~/bin/mine
              echo ~/bin >>"$GITHUB_PATH"
              mkdir sub
          - run: test "${{ steps.first.outputs.one }} $NEW ${{ env.NEW }} $(mine)" = "1 value value mine"
          - run: test "$(basename "$PWD")" = sub
            working-directory: sub
        outputs:
          both: ${{ steps.first.outputs.two }}
        """,
    )
    assert result.failed == ""
    assert result.outputs == {"both": "a\nb"}


def test_a_composite_action(tmp_path: Path) -> None:
    (tmp_path / "set-up").mkdir()
    (tmp_path / "set-up/action.yaml").write_text(
        dedent("""
        inputs: {what: {required: true}, how: {default: well}}
        runs:
          using: composite
          steps:
            - if: inputs.how == 'well'
              shell: bash
              run: echo "DONE=${{ inputs.what }} ${{ inputs.how }}" >>"$GITHUB_ENV"
            - run: "! true"
              shell: bash
              if: inputs.what == 'nothing'
        """)
    )
    steps = 'steps:\n  - uses: ./set-up\n    with: {what: it}\n  - run: test "$DONE" = "it well"'
    result = run(tmp_path, steps)
    assert (result.failed, len(result.ran)) == ("", 2)
    (tmp_path / "wrong").mkdir()
    shutil.copytree(tmp_path / "set-up", tmp_path / "wrong/set-up")
    with pytest.raises(WorkflowError, match="unknown or missing inputs: hwo, what"):
        run(tmp_path / "wrong", "steps:\n  - uses: ./set-up\n    with: {hwo: x}")


def test_a_job_that_takes_too_long(tmp_path: Path) -> None:
    result = run(tmp_path, "timeout-minutes: 0.001\nsteps:\n  - run: sleep 60 & sleep 60")
    assert result.failed == "step 1 (sleep 60 & sleep 60): the job took longer than 0.001 minutes"


def test_the_rows_of_a_matrix(tmp_path: Path) -> None:
    content = "strategy:\n          matrix:\n            include: [{name: a}, {name: b, more: true}]"
    rows = jobs(tmp_path, JOB.replace("STEPS", f"{content}\n        steps: [{{run: x}}]"))
    assert [job.name for job in rows] == ["x one (a)", "x one (b)"]
    assert [job.matrix for job in rows] == [{"name": "a", "more": None}, {"name": "b", "more": True}]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("steps: [{run: x, continue-on-error: true}]", r"x\.yaml: one: step 1: continue-on-error: not known here"),
        ("steps: [{run: x, uses: y}]", "must have either run or uses"),
        ("container: debian\nsteps: [{run: x}]", "one: container: not known here"),
        ("needs: two\nsteps: [{run: x}]", "needs two, which is not a job"),
        ("strategy: {matrix: {a: [1], exclude: []}}\nsteps: [{run: x}]", "exclude is not known here"),
        ("steps: [{uses: someone/action@abc}]", r"someone/action is not in the table of tests/workflows/actions\.py"),
        (
            "steps: [{uses: actions/cache@abc, with: {path: ~/x}}]",
            "actions/cache: key: an unknown input, or a missing one",
        ),
        ("steps: [{uses: actions/checkout@abc, with: {dept: 0}}]", "actions/checkout: dept: an unknown input"),
        ("steps: [{run: x, shell: pwsh}]", "the shell pwsh is not known here"),
        ("steps: [{run: 'echo ${{ github.evnt }}'}]", r'"github\.evnt" is not known'),
        ("steps: [{run: x, if: needs.changes.outputs.code}]", r'"needs\.changes" is not known'),
        ("steps: [{run: \"echo ${{ hashFiles('gone/**') }}\"}]", r"hashFiles: gone/\*\* matches no file"),
        ("steps: [{run: 'echo no assignment >>\"$GITHUB_ENV\"'}]", '"no assignment" is not an assignment'),
    ],
)
def test_what_is_unknown_is_an_error(tmp_path: Path, steps: str, message: str) -> None:
    with pytest.raises(WorkflowError, match=message):
        run(tmp_path, steps)
