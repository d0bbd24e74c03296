"""Reading and changing the folder of a local run, and the small functions of its supervisor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher import api
from launcher.backends import resubmit
from launcher.backends.base import RunStatus, State
from launcher.backends.local import backend, processes, record, submitter, supervisor
from launcher.backends.local.environment import own_environment
from launcher.backends.local.record import Record, read_events, read_record, write_record
from launcher.backends.local.submitter import LocalSubmitter
from launcher.config import resume
from launcher.config.checks import this_machine
from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError

NOW = "2026-11-01T10:00:00.000Z"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a starting run."""
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"run": {"name": "demo"}, "train": {"steps": 40}}))
    write_record(folder, Record("demo", "default", "id", 1, "starting", NOW, started=NOW, pid=1))
    return folder


def read_status(folder: Path) -> RunStatus:
    status = LocalSubmitter(folder.parent.parent).status("demo")
    assert status is not None
    return status


def locked(folder: Path) -> subprocess.Popen[str]:
    """Start a process that holds the run's lock, as a supervisor does, until its standard input is closed."""
    code = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    process.stdout.readline()
    return process


def lines(path: Path, *entries: object) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


def test_the_states_of_a_training(folder: Path) -> None:
    supervisor = locked(folder)
    events, observed = folder / "events.jsonl", []
    loop = {"event": "loop_started", "step": 0, "steps": 60, "devices": 2}
    for event in (None, loop, {"event": "worker_failed", "message": "It died."}, loop, loop):
        if event:
            lines(events, event)
        status = read_status(folder)
        observed.append((status.state, status.reason, status.restarts, status.steps))
    supervisor.communicate("")
    assert observed == [
        (State.STARTING, "loading and compiling the model", 0, 40),
        (State.RUNNING, "", 0, 60),
        (State.RESTARTING, "It died.", 0, 60),
        (State.RUNNING, "", 1, 60),
        (State.RUNNING, "", 2, 60),
    ]
    status = read_status(folder)
    assert (status.state, status.reason.partition(":")[0]) == (State.FAILED, "Interrupted")
    assert status.ended is not None and status.ended > NOW


def test_a_start_and_an_evaluation_show_their_phase(folder: Path) -> None:
    supervisor = locked(folder)
    phases = [("ray", 0), ("imports", 8), ("data", 29), ("compile", 31), None, ("evaluation", 50), ("training", 52)]
    observed = []
    for each in phases:
        event = {"event": "loop_started", "step": 0, "steps": 60, "devices": 2}
        if each:
            event = {"event": "phase", "phase": each[0], "time": f"2026-11-01T10:00:{each[1]:02}.000Z"}
        lines(folder / "events.jsonl", event)
        status = read_status(folder)
        observed.append((str(status.state), status.reason))
    supervisor.communicate("")
    assert observed[2:] == [
        ("starting", "loading the text and the model (Ray 8 s, imports 21 s)"),
        ("starting", "compiling the model (Ray 8 s, imports 21 s, data 2 s)"),
        ("running", "compiling the model (Ray 8 s, imports 21 s, data 2 s)"),
        ("running", "evaluating the held-out text"),
        ("running", ""),
    ]


def test_events_before_the_attempt_do_not_count(folder: Path) -> None:
    lines(folder / "events.jsonl", {"event": "loop_started"}, {"event": "loop_started"})
    size = (folder / "events.jsonl").stat().st_size
    assert read_events(folder, 0).restarts == 1
    assert read_events(folder, size).loops == 0


def test_metrics(folder: Path) -> None:
    lines(folder / "events.jsonl", {"event": "loop_started", "devices": 4})
    train = [
        {"step": step, "loss": 10 - step, "step_seconds": 0.5, "tokens_per_second_per_device": 100} for step in range(4)
    ]
    lines(folder / "metrics.jsonl", {"step": 0, "eval_loss": 11.0}, *train, {"step": 4, "eval_loss": 6.5})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "loss": 1')  # a line that is being written
    supervisor = locked(folder)
    status = read_status(folder)
    supervisor.communicate("")
    assert (status.step, status.loss_first, status.loss) == (4, 10, 7)
    assert (status.eval_loss_first, status.eval_loss) == (11.0, 6.5)
    assert status.tokens_per_second == pytest.approx(400)
    assert status.seconds_left == pytest.approx(36 * 0.5)
    assert read_status(folder).seconds_left is None  # the run has ended


def test_the_speed_is_the_last_steps_of_a_running_run_and_all_steps_of_an_ended_one(folder: Path) -> None:
    rates = [100] * 20 + [300] * 20
    steps = [
        {"step": step, "loss": 1.0, "step_seconds": 1.0, "tokens_per_second_per_device": rate}
        for step, rate in enumerate(rates)
    ]
    lines(folder / "metrics.jsonl", *steps)
    supervisor = locked(folder)
    assert read_status(folder).tokens_per_second == pytest.approx(300)
    supervisor.communicate("")
    assert read_status(folder).tokens_per_second == pytest.approx(
        150
    )  # the harmonic mean: as many tokens at 100 as at 300


def test_a_large_metrics_file_is_read_at_its_ends(folder: Path) -> None:
    entry = {"loss": 1.0, "step_seconds": 1.0, "padding": "x" * 200}
    with (folder / "metrics.jsonl").open("w") as file:
        file.write('{"step": 0, "eval_loss": 11.0}\n{"step": 0, "loss": 10.0}\n')
        file.writelines(json.dumps({"step": step, **entry}) + "\n" for step in range(1, 5000))
    status = read_status(folder)
    assert (status.step, status.loss_first, status.loss, status.eval_loss_first) == (5000, 10.0, 1.0, 11.0)
    assert status.eval_loss is None or status.eval_loss == 11.0


def test_damaged_lines_are_skipped(folder: Path) -> None:
    nested = '{"step":' + "[" * 100_000
    for file in ("events.jsonl", "metrics.jsonl"):
        (folder / file).write_text(f"{nested}\n\x00\n[1]\n")
    lines(folder / "events.jsonl", {"event": "loop_started", "steps": 60})
    lines(folder / "metrics.jsonl", {"step": 3, "loss": 2.5})
    status = read_status(folder)
    assert (status.steps, status.step, status.loss) == (60, 4, 2.5)


def test_a_loss_that_is_not_a_number(folder: Path) -> None:
    lines(folder / "metrics.jsonl", {"step": 0, "loss": None}, {"step": 1, "loss": None})
    status = read_status(folder)
    assert (status.step, status.loss, status.loss_first) == (2, None, None)


def test_a_record_is_read_as_it_was_written(folder: Path) -> None:
    record = read_record(folder)
    assert (record.name, record.state, record.started, record.attempt) == ("demo", "starting", NOW, 1)
    assert json.loads((folder / "record.json").read_text())["format"] == 1
    assert {path.name for path in folder.iterdir()} == {"run.json", "record.json"}  # and no temporary file


def test_an_unknown_field_of_the_same_format_is_ignored(folder: Path) -> None:
    tree = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**tree, "colour": "blue"}))
    assert read_record(folder).name == "demo"


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({}, 1),
        ({"slice": {"hosts": 3, "count": 2}}, 6),
        ({"slice": {"hosts": None, "count": 2}, "accelerator": {"hosts": 4}}, 8),
    ],
)
def test_hosts(config: dict[str, object], count: int) -> None:
    assert record.hosts(config) == count


def command(*words: str) -> LaunchPlan:
    """Return the plan of the run `demo` of a command."""
    sets = ["run.name=demo", "run.kind=local", "storage.kind=local", "slice.accelerator=cpu"]
    return api.plan([], [*sets, f"run.command={json.dumps(words)}"])


def test_commands_that_find_the_lock_held_give_up_with_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (backend, submitter):
        monkeypatch.setattr(module, "LOCK_SECONDS", 0.1)
    runs = LocalSubmitter(folder.parent.parent)
    write_record(folder, Record("demo", "default", "id", 1, "failed", NOW, ended=NOW))
    holder = locked(folder)
    with pytest.raises(LauncherError, match=f"{folder}/lock is held by another process; try again later"):
        runs.submit(command("true"), accept_changes=True)
    with pytest.raises(LauncherError, match='The run "demo" is in use by another command; try again'):
        runs.delete("demo")
    assert read_record(folder).attempt == 1
    holder.communicate("")
    runs.delete("demo")
    assert not folder.exists()


def test_a_run_of_another_host_is_not_cancelled_from_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shared file system, the process id belongs to another machine."""
    monkeypatch.setenv("SLIPWAY_GRACE_SECONDS", "0")
    monkeypatch.setattr(backend, "LOCK_SECONDS", 0.1)
    holder = locked(folder)
    write_record(folder, Record("demo", "default", "id", 1, "running", NOW, pid=holder.pid, host="other"))
    runs = LocalSubmitter(folder.parent.parent)
    with pytest.raises(LauncherError, match='The run "demo" is running on other; cancel it there'):
        runs.cancel("demo")
    write_record(folder, Record("demo", "default", "id", 1, "starting", NOW))
    with pytest.raises(LauncherError, match="was asked to stop, but has not ended; its log may show why"):
        runs.cancel("demo")
    assert holder.poll() is None
    holder.communicate("")


def test_an_active_run_and_a_link_are_not_deleted(folder: Path) -> None:
    runs = LocalSubmitter(folder.parent.parent)
    holder = locked(folder)
    with pytest.raises(LauncherError, match='The run "demo" has not ended') as error:
        runs.delete("demo")
    assert error.value.hint == "Cancel it first: launcher cancel demo"
    holder.communicate("")
    moved = folder.rename(folder.parent.parent / "moved")
    folder.symlink_to(moved)
    with pytest.raises(LauncherError, match=f"{folder} is a symbolic link; remove it and its target by hand"):
        runs.delete("demo")
    assert read_record(moved).name == "demo"


@pytest.mark.parametrize("verb", ["delete", "cancel"])
def test_a_run_that_another_command_has_just_deleted(tmp_path: Path, verb: str) -> None:
    with pytest.raises(LauncherError, match='The run "demo" was not found on this machine'):
        getattr(LocalSubmitter(tmp_path), verb)("demo")


def test_a_supervisor_that_cannot_start_leaves_a_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    runs = LocalSubmitter(tmp_path)
    with pytest.raises(LauncherError, match='The run "demo" cannot be submitted: No such file or directory'):
        runs.submit(command("true"), accept_changes=False)
    status = runs.status("demo")
    assert status is not None
    assert (status.state, status.reason) == (
        State.FAILED,
        "Its supervisor could not be started: No such file or directory.",
    )


def test_a_command_that_this_machine_lacks_is_a_problem_of_the_check(tmp_path: Path) -> None:
    runs = LocalSubmitter(tmp_path)
    assert runs.problems(command("true")) == []
    [problem] = runs.problems(command("no-such-program"))
    assert (problem.rule, problem.message) == (
        "machine",
        'run.command: the program "no-such-program" was not found on this machine.',
    )
    assert (problem.file, problem.line, problem.key) == ("--set", 5, "run.command")


@pytest.mark.parametrize("name", ["", ".", "..", ".new-1", "a/b", "../demo", "demo\0"])
def test_invalid_names_are_not_found(folder: Path, name: str) -> None:
    assert LocalSubmitter(folder.parent.parent).status(name) is None


def test_descendants_and_marks() -> None:
    code = "import subprocess, sys; subprocess.run(['sh', '-c', 'echo; exec sleep 60'])"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "SLIPWAY_RUN_ID": "unit-test"}, stdout=subprocess.PIPE
    )
    assert process.stdout
    process.stdout.readline()
    assert len(processes.descendants(process.pid)) == 1
    assert sorted(processes.marked("unit-test")) == sorted([process.pid, *processes.descendants(process.pid)])
    assert process.pid in processes.descendants(os.getpid())
    assert processes.kill_all(lambda: processes.marked("unit-test"), process.poll)
    assert processes.marked("unit-test") == []
    process.communicate()


def test_the_supervisor_needs_nothing_but_the_standard_library(folder: Path) -> None:
    (folder / "run.json").write_text(json.dumps({"run": {"name": "demo", "command": ["true"]}}))
    done = subprocess.run(
        [sys.executable, "-I", "-S", supervisor.__file__, str(folder)], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert read_record(folder).state == "succeeded"


def supervise(folder: Path, **run: object) -> subprocess.CompletedProcess[str]:
    (folder / "run.json").write_text(json.dumps({"run": {"name": "demo", **run}}))
    arguments = [sys.executable, "-I", supervisor.__file__, str(folder)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)


def test_a_run_has_one_supervisor(folder: Path) -> None:
    holder = locked(folder)
    done = supervise(folder, command=["true"])
    holder.communicate("")
    assert (done.returncode, done.stderr) == (1, f"{folder} already has a supervisor.\n")
    assert read_record(folder).state == "starting"


def test_a_bug_in_the_supervisor_fails_the_run_with_a_traceback_in_its_log(folder: Path) -> None:
    done = supervise(folder, command=["true"], maxRestarts="many")
    assert (done.returncode, done.stderr) == (3, "")
    record = read_record(folder)
    assert (record.state, record.ended is None) == ("failed", False)
    assert record.reason.startswith("A bug in Slipway's supervisor (ValueError: invalid literal for int()")
    assert "Traceback (most recent call last)" in (folder / "log.txt").read_text()


def test_a_killed_program_is_reported_with_its_signal(folder: Path) -> None:
    assert supervise(folder, command=["sh", "-c", "kill -KILL $$"]).returncode == 0
    record = read_record(folder)
    assert (record.state, record.exit_code, record.reason) == (
        "failed",
        -9,
        "The command was killed by signal 9 (SIGKILL).",
    )
    assert supervise(folder, command=["sh", "-c", "kill -40 $$"]).returncode == 0  # a signal without a name
    assert read_record(folder).reason == "The command was killed by signal 40."


# The first write of the record fails, and so do two writes of the run's end. Retries do not pause.
FAILING_WRITES = """
import sys, time
from launcher.backends.local import record, supervisor
failures = iter([True, False, False, True, True, False])
def write(folder, what):
    if next(failures):
        raise OSError(5, "Input/output error")
    record.write_record(folder, what)
supervisor.write_record = write
time.sleep = lambda seconds: print(seconds, flush=True)
sys.exit(supervisor.main(sys.argv[1:]))
"""


def test_writes_that_fail_for_a_moment_do_not_lose_the_end_of_a_run(folder: Path) -> None:
    """Errors of the disk are simulated: a disk that fails and recovers is not available here."""
    (folder / "run.json").write_text(json.dumps({"run": {"name": "demo", "command": ["true"]}}))
    arguments = [sys.executable, "-c", FAILING_WRITES, str(folder)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["0.5", "5.0"])
    assert read_record(folder).state == "succeeded"
    assert "[launcher] The record cannot be written: Input/output error." in (folder / "log.txt").read_text()


def gpu_plan(chips: int = 1) -> LaunchPlan:
    machine = {1: "a2-ultragpu-1g", 8: "a2-ultragpu-8g"}[chips]
    sets = ["run.name=gpu", f"slice.machineType={machine}", "slice.accelerator=a100-80gb", "slice.hosts=1"]
    return api.plan(["quickstart"], sets)


def test_a_local_run_on_a_gpu_needs_one_and_the_plugin_of_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines of the tests have no GPU, so the probes are replaced: no test trains on a GPU."""
    runs = LocalSubmitter(tmp_path)
    monkeypatch.setattr(this_machine, "gpus", lambda: 0)
    monkeypatch.setattr(this_machine, "jax_supports_gpus", lambda: False)
    [problem] = runs.problems(gpu_plan())
    assert (problem.severity, problem.key) == ("error", "slice.accelerator")
    assert problem.message == (
        "slice.accelerator: this machine has no NVIDIA GPU (no /dev/nvidia0); set slice.accelerator: cpu to train on "
        "the CPU, or run.kind: ray-job or job-set to train in a cluster."
    )
    monkeypatch.setattr(this_machine, "gpus", lambda: 1)
    [problem] = runs.problems(gpu_plan(chips=8))
    assert "a a2-ultragpu-8g has 8 GPUs, but this machine has 1; set slice.machineType to" in problem.message
    [problem] = runs.problems(gpu_plan())
    assert (problem.severity, "JAX's support for NVIDIA GPUs is not installed" in problem.message) == ("warning", True)
    with pytest.raises(LauncherError, match="JAX's support for NVIDIA GPUs") as error:
        runs.submit(gpu_plan(), accept_changes=False)
    assert "pip install" in error.value.hint
    monkeypatch.setattr(this_machine, "jax_supports_gpus", lambda: True)
    assert runs.problems(gpu_plan()) == []


def test_a_check_reads_the_text_of_a_local_run(tmp_path: Path) -> None:
    sets = ["run.name=x", "data.corpus=", f"data.files=[{tmp_path}/*.txt]"]
    [problem] = api.check(["quickstart"], sets)
    assert (problem.rule, problem.severity, problem.file, problem.line) == ("machine", "error", "--set", 3)
    assert (
        problem.message
        == f'data.files: no file matches "{tmp_path}/*.txt"; check the pattern and the working directory.'
    )
    (tmp_path / "a.txt").write_text("a line of text\n" * 2000)
    (tmp_path / "b.jsonl.gz").touch()
    [problem] = api.check(["quickstart"], [*sets[:2], f"data.files=[{tmp_path}]"])
    assert (problem.severity, problem.key) == ("warning", "data.files")
    assert problem.message == "data.files: 1 file is read; 1 .gz file is left out."
    missing = str(tmp_path / "missing")
    [problem] = api.check(["quickstart"], [*sets[:2], f"data.files=[{tmp_path}/a.txt]", f"from={missing}"])
    assert (problem.file, problem.line, problem.key) == ("--set", 4, "from")
    assert problem.message.startswith(f"from: {missing}: {missing}/items does not exist. Set from to a run, or to a")


def test_the_environment_of_a_run_has_nothing_that_selects_another_cluster() -> None:
    shell = {
        **{"RAY_ADDRESS": "a", "JAX_PLATFORMS": "tpu", "XLA_FLAGS": "-x", "SLIPWAY_COORDINATOR": "b"},
        **{"HOME": "/home/a", "RAY_TMPDIR": "/var/tmp", "no_proxy": "a.example, b.example", "NO_PROXY": "localhost"},
    }
    direct = "a.example,b.example,localhost,127.0.0.1,::1"
    assert own_environment(shell, {"XLA_FLAGS": "-y"}) == {
        **{"HOME": "/home/a", "RAY_TMPDIR": "/var/tmp", "XLA_FLAGS": "-y", "no_proxy": direct, "NO_PROXY": direct}
    }


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("train.base_emb_dim=128", "train.base_emb_dim: 64 -> 128"),
        ("train.opt_type=sgd", "train.opt_type: adamw -> sgd"),
        ("slice.hosts=1", "hosts: 2 -> 1"),
        ("train.steps=3", "train.steps: 6 done -> 3"),
        ("train.steps=6", "train.steps: 6 done -> 6"),
        ("train.use_qk_norm=true", "train.use_qk_norm: false -> true"),
        ("train.logits_via_embedding=true", "train.logits_via_embedding: false -> true"),
        ("train.enable_checkpointing=false", "train.enable_checkpointing: true -> false"),
        ("train.param_scan_axis=0", "train.param_scan_axis: 1 -> 0"),
        ("train.packing=false", "train.packing: true -> false"),
        ("data.tokenizer.path=tokenizer.mistral-v1", "data.tokenizer.path: tokenizer.llama2 -> tokenizer.mistral-v1"),
    ],
)
def test_what_a_checkpoint_does_not_fit_is_refused_before_the_record_changes(
    tmp_path: Path, change: str, difference: str
) -> None:
    values = ["run.name=demo", "train.base_emb_dim=64", "train.steps=9"]
    runs = LocalSubmitter(tmp_path)
    folder = tmp_path / "runs" / "demo"
    (folder / "checkpoints" / "5").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(runs.config(api.plan(["quickstart"], values))))
    write_record(folder, Record("demo", "default", "id", 1, "succeeded", NOW, started=NOW, ended=NOW))
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    changed = api.plan(["quickstart"], [*values, change])
    for verb in (runs.preview, runs.submit):
        with pytest.raises(LauncherError, match="cannot continue from its last checkpoint with these values") as error:
            verb(changed, accept_changes=True)
        assert error.value.message.splitlines()[1:] == [f"  {difference}"]
        weights = "To start a new run from its weights, use --name NEW --set from=demo@5."
        ids = "The weights know only the ids of the earlier tokenizer: set that one, or start without the weights."
        model = "Its weights fit only its own model: change these values back, or start without them: --name NEW."
        of_model = any(key in change for key in ("emb_dim", "use_qk_norm", "logits_via", "param_scan_axis"))
        assert error.value.hint == (ids if "tokenizer" in change else model if of_model else weights)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_run_with_adapters_only_is_merged_before_another_starts_from_it() -> None:
    def config(vocabulary: int) -> dict[str, Any]:
        return {"run": {}, "train": {"vocab_size": vocabulary}, "tuning": {"method": "lora"}}

    with pytest.raises(LauncherError, match="cannot continue") as error:
        resubmit.decide("demo", State.SUCCEEDED, config(512), config(1024), accept_changes=True, done=6)
    assert error.value.hint.startswith("To start from its result: launcher export demo --merge, launcher import")


def test_a_run_continues_with_the_same_adapters_only() -> None:
    def config(method: str = "lora", rank: int = 16, source: str = "base") -> dict[str, Any]:
        return {"from": source, "tuning": {"method": method, "turns": "all", "lora": {"rank": rank}}, "train": {}}

    def obstacles(new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
        return resume.obstacles(old or config(), new, 6)

    assert obstacles(config()) == []
    assert obstacles(config("sft", 8, "other"), config("pretrain")) == []
    text = {"data": {"files": ["a.jsonl"]}}  # a position in conversations has another form
    assert obstacles({**config("sft"), **text}, {**config("pretrain"), **text}) == ["tuning.method: pretrain -> sft"]
    assert obstacles({**config("dpo"), **text}, {**config("sft"), **text}) == []
    assert obstacles(config(rank=8)) == ['tuning.lora: {"rank": 16} -> {"rank": 8}']
    assert obstacles(config("qlora")) == ["tuning.method: lora -> qlora"]
    assert obstacles(config(), config("sft")) == ["tuning.method: sft -> lora"]
    assert obstacles(config(source="base@3")) == ["from: base -> base@3"]
