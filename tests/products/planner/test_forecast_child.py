"""The compile as a monitored process: its messages, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.products.planner.forecast import child
from launcher.products.planner.forecast.cache import Cache
from launcher.products.planner.forecast.child import CompileFailed, CompileTimeout, Limits, compile_
from launcher.products.planner.forecast.compiled import Compiler
from launcher.products.planner.forecast.program import Program
from launcher.products.planner.forecast.request import request
from tests.cli.conftest import eventually
from tests.products.planner.forecasts import VERSIONS, fake_compiler, plan, program

WRITES = f"out.write_text({json.dumps(program())!r})"
WANTED = request(plan(), VERSIONS)

CHECKOUT = Path(__file__).parents[3]


def compiled(log: Path, body: str, **more: Any) -> Program:
    return compile_(WANTED, log, argv=fake_compiler(body), **more)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "x.log"


def test_a_program_and_the_phases(log: Path) -> None:
    phases: list[str] = []
    body = "say(phase='importing'); say(phase='compiling'); print('chatter', file=sys.stderr); " + WRITES
    found = compiled(log, body, phase=phases.append)
    assert (found.fits, found.devices, phases) == (True, 16, ["importing", "compiling"])
    assert not log.exists()


def test_the_child_gets_the_config_and_a_temporary_folder(log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "kept.json"
    compiled(log, f"pathlib.Path({str(copy)!r}).write_text(config.read_text()); {WRITES}")
    config = json.loads(copy.read_text())
    assert config["train"]["model_name"] == "llama3-8b"
    assert not Path(config["storage"]["mountPath"]).exists()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "say(error='flag', message='The compiler rejects the unknown flag --xla_x (worker.env.XLA_FLAGS).',"
            " flag='--xla_x')",
            "The compiler rejects the unknown flag --xla_x (worker.env.XLA_FLAGS).",
        ),
        ("say(error='key', message='it must divide 16.', key='ici_x')", "train.ici_x: it must divide 16."),
        ("say(error='model', message='MaxText has no model x.')", "MaxText has no model x."),
    ],
)
def test_an_error_of_the_child_is_the_message(log: Path, body: str, message: str) -> None:
    with pytest.raises(CompileFailed) as raised:
        compiled(log, f"say(phase='shaping'); {body}; sys.exit(1)")
    assert raised.value.message == message
    assert not log.exists()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("say(error='internal', message='KeyError: x'); sys.exit(1)", "KeyError: x"),
        ("print('core dumped', file=sys.stderr); os.abort()", "core dumped"),
        ("os.abort()", "it was killed by SIGABRT"),
        ("sys.exit(0)", "it wrote no program"),
        ("out.write_text('{'); sys.exit(0)", "it wrote no program"),
        ("out.write_text('{\"version\": 1}')", "it is not a program of version 2"),
    ],
)
def test_a_failed_child_leaves_its_log(log: Path, body: str, why: str) -> None:
    with pytest.raises(CompileFailed, match=f"The compile failed: .*{why}") as raised:
        compiled(log, body)
    assert raised.value.hint == f"Its output is in {log}."
    assert log.exists()


def test_a_child_that_was_killed(log: Path) -> None:
    with pytest.raises(CompileFailed, match="killed, most likely because this machine ran out of memory"):
        compiled(log, "os.kill(os.getpid(), 9)")


# Starts another process and writes its process ID to the file; the real child starts the compiler like this.
_TWO = (
    "import subprocess; other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "pathlib.Path({file!r}).write_text(str(other.pid)); say(phase='compiling'); time.sleep(600)"
)


def has_ended(file: Path) -> bool:
    try:
        return Path(f"/proc/{file.read_text()}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_time_runs_out(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with pytest.raises(CompileTimeout) as raised:
        compiled(log, _TWO.format(file=str(file)), limits=Limits(seconds=2))
    assert raised.value.message == "The compile took longer than 2 s and was stopped."
    assert file.exists()
    eventually(lambda: has_ended(file))
    assert not log.exists()


def test_memory_runs_out(log: Path) -> None:
    body = "say(phase='compiling'); held = bytearray(os.urandom(1 << 20) * 200); time.sleep(600)"
    with pytest.raises(CompileFailed, match=r"but this machine has only 0\.1 GiB available; it was stopped") as raised:
        compiled(log, body, limits=Limits(memory=100 << 20))
    assert raised.value.kind == "memory"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_the_launcher(log: Path, tmp_path: Path, number: int) -> None:
    file = tmp_path / "pid"
    code = (
        "import pathlib, sys\n"
        "from launcher.products.planner.forecast import child\n"
        "from tests.products.planner.test_forecast_child import WANTED\n"
        "from tests.products.planner.forecasts import fake_compiler\n"
        "child.compile_(WANTED, pathlib.Path(sys.argv[1]), argv=fake_compiler(sys.argv[2]))"
    )
    # There is no second process here: only a signal to the process group would end it.
    body = f"pathlib.Path({str(file)!r}).write_text(str(os.getpid())); time.sleep(600)"
    root = CHECKOUT
    process = subprocess.Popen([sys.executable, "-c", code, log, body], cwd=root, stderr=subprocess.DEVNULL)
    eventually(lambda: file.exists() and file.read_text(), 60)
    process.send_signal(number)
    process.wait(20)
    eventually(lambda: has_ended(file))


def counting(body: str, counter: Path) -> Callable[..., Program]:
    def run(*arguments: Any, **options: Any) -> Program:
        counter.write_text(counter.read_text() + "x" if counter.exists() else "x")
        argv: Callable[[Path, Path], Sequence[str]] = fake_compiler(body)
        return compile_(*arguments, argv=argv, **options)

    return run


def test_a_program_is_compiled_once(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    compiler = Compiler(Cache(tmp_path / "forecast"), run=counting(WRITES, counter))
    assert compiler.program(plan())[1] is False
    assert compiler.program(plan())[1] is True
    assert counter.read_text() == "x"
    fresh = Compiler(compiler.cache, fresh=True, run=compiler.run)
    assert fresh.program(plan())[1] is False
    assert counter.read_text() == "xx"


@pytest.mark.parametrize("body", ["sys.exit(1)", "os.kill(os.getpid(), 9)", "out.write_text('{')"])
def test_a_compile_that_fails_leaves_no_entry(tmp_path: Path, body: str) -> None:
    compiler = Compiler(Cache(tmp_path), run=counting(body, tmp_path.parent / f"{tmp_path.name}.counter"))
    with pytest.raises(CompileFailed):
        compiler.program(plan())
    assert [path.suffix for path in tmp_path.iterdir()] in ([], [".log"])


def test_two_at_once_compile_once(tmp_path: Path) -> None:
    """The second process waits and reads the result of the first."""
    code = (
        "import pathlib, sys\n"
        "from launcher.products.planner.forecast.compiled import Compiler\n"
        "from launcher.products.planner.forecast.cache import Cache\n"
        "from tests.products.planner.test_forecast_child import WRITES, counting\n"
        "from tests.products.planner.forecasts import plan\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "run = counting('time.sleep(3); ' + WRITES, folder / 'counter')\n"
        "print(Compiler(Cache(folder / 'forecast'), run=run).program(plan())[1])"
    )
    root = CHECKOUT
    both = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=root, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert sorted(process.communicate(timeout=120)[0].strip() for process in both) == ["False", "True"]
    assert (tmp_path / "counter").read_text() == "x"


def test_the_real_child_is_named() -> None:
    argv = child.command(Path("run.json"), Path("out.json"))
    assert argv == [sys.executable, "-P", "-m", "trainer.aot", "run.json", "out.json"]
    assert os.access(argv[0], os.X_OK)
