"""Completion, as click answers a shell, and in real shells."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time

import pytest

from launcher.cli.completion import SHELLS
from launcher.cli.main import cli
from tests.cli.conftest import Launcher
from tests.prerequisites import require


def complete(*words: str) -> list[str]:
    """Return the completions of the last word, each as click's protocol has it: TYPE,VALUE."""
    found = SHELLS["bash"](cli, {}, "launcher", "_LAUNCHER_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [f"{item.type},{item.value}" for item in found]


def test_presets_and_files() -> None:
    assert complete("submit", "-f", "q") == ["file,q", "plain,queues/", "plain,quickstart"]
    assert complete("check", "-f", "models/llama3.1-") == [
        "file,models/llama3.1-",
        "plain,models/llama3.1-70b",
        "plain,models/llama3.1-8b",
    ]
    assert complete("submit", "--detach", "qui") == ["file,qui", "plain,quickstart"]
    assert complete("render", "q") == ["plain,queues", "file,q", "plain,queues/", "plain,quickstart"]
    assert complete("install", "queues", "queues/o") == ["file,queues/o", "plain,queues/one-team"]
    assert complete("init", "--out", "x") == ["file,x"]


def test_keys() -> None:
    assert complete("submit", "--set", "s") == ["plain,slice.", "plain,storage.", "plain,security.", "plain,serve."]
    assert complete("submit", "--set", "slice.co") == ["plain,slice.count="]
    assert complete("submit", "--set", "worker.e") == ["plain,worker.env.", "plain,worker.envFrom."]
    assert complete("submit", "--set", "train.learning_rate") == [
        "plain,train.learning_rate=",
        "plain,train.learning_rate_final_fraction=",
        "plain,train.learning_rate_schedule_steps=",
    ]
    assert complete("submit", "--set", "train.run_n") == []  # Slipway sets it
    assert complete("submit", "--set", "run.kind=ray-") == ["plain,run.kind=ray-cluster", "plain,run.kind=ray-job"]
    assert complete("submit", "--set", "train.opt_type=ad") == [
        "plain,train.opt_type=adamw",
        "plain,train.opt_type=adam_pax",
    ]
    assert complete("submit", "--set", "train.model_name=llama3-") == [
        "plain,train.model_name=llama3-70b",
        "plain,train.model_name=llama3-8b",
    ]
    for key in ("train.scan_layers", "run.safeToEvict"):
        assert complete("submit", "--set", f"{key}=") == [f"plain,{key}=true", f"plain,{key}=false"]
    assert complete("submit", "--set", "train.steps=") == []
    assert complete("install", "queues", "--set", "cl") == ["plain,clusterQueues."]


def test_states() -> None:
    assert complete("list", "--state", "ca") == ["plain,cancelled"]
    assert complete("delete", "--state", "failed,s") == ["plain,failed,starting", "plain,failed,succeeded"]


# What is typed before a Tab, and the line after it. A "@" that is typed next shows where the completion ended.
TYPED = {
    "submit -f quick": "submit -f quickstart @",
    "submit -f my": "submit -f my\\ values/@",
    "submit -f my\\ values/m": "submit -f my\\ values/mine.yaml @",
    "check models/llama3.1-8": "check models/llama3.1-8b @",
    "submit --set slice.co": "submit --set slice.count=@",
    "submit --set trai": "submit --set train.@",
    "submit --set train.opt_type=m": "submit --set train.opt_type=muon @",
    "submit --set=run.kind=job": "submit --set=run.kind=job-set @",
    "init --out my": "init --out my\\ values/@",
    "subm": "submit @",
}
# The arguments of an interactive shell, and the commands that load the completion.
INTERACTIVE = {
    "bash": (("--norc", "--noprofile", "-i"), "source <(launcher completion bash); bind 'set bell-style none'"),
    "zsh": (
        ("-f", "-i"),
        "unsetopt prompt_cr prompt_sp; autoload -U compinit; compinit -D -u; source <(launcher completion zsh)",
    ),
}


def shell(name: str) -> str:
    """Return the program of the shell."""
    found = shutil.which(name)
    if name != "bash":  # the scripts of the checkout need it too
        require(found is not None, f"The test starts {name}. Install it.")
    return str(found)


@pytest.fixture
def env(launcher: Launcher) -> dict[str, str]:
    """Return the environment of a shell that finds `launcher`, in a folder with a file to complete."""
    program = launcher.folder / "bin" / "launcher"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m launcher "$@"\n')
    program.chmod(0o755)
    (launcher.folder / "my values").mkdir()
    launcher.write("my values/mine.yaml", "")
    return {**launcher.env, "PATH": f"{program.parent}:{os.environ['PATH']}", "PS1": "$ ", "TERM": "xterm"}


@pytest.mark.parametrize("name", INTERACTIVE)
def test_in_a_real_shell(name: str, launcher: Launcher, env: dict[str, str]) -> None:
    """Files are completed, presets are too, and options and keys get no wrong space."""
    program = shell(name)
    arguments, load = INTERACTIVE[name]
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.chdir(launcher.folder)
        os.execve(program, [name, *arguments], env)
    try:
        # Before the prompt, the terminal itself reads what is typed, and a Tab completes nothing.
        _type(terminal, f"{load}; echo READY$((1+1))\n", "READY2\n$ ")
        for start, end in TYPED.items():
            os.write(terminal, f"launcher {start}\t".encode())
            shown = _type(terminal, "@", "@")
            assert shown.rpartition("launcher ")[2] == end, shown
            _type(terminal, "\x15echo NEXT$((1+1))\n", "NEXT2\n$ ")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def test_in_fish(launcher: Launcher, env: dict[str, str]) -> None:
    program = shell("fish")
    # Fish has no completion after --set=KEY.
    starts = [start for start in TYPED if "\\" not in start and "--set=" not in start]
    asked = "; ".join(f"echo; complete -C 'launcher {start}'" for start in starts)
    done = subprocess.run(
        [program, "--no-config", "-c", f"launcher completion fish | source; {asked}"],
        cwd=launcher.folder,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.split("\t")[0] for line in done.stdout.splitlines() if line]
    assert found == [
        *("quickstart", "my values/", "models/llama3.1-8b", "slice.count=", "train.", "train.opt_type=muon"),
        *("my values/", "submit"),
    ]


def _type(terminal: int, text: str, until: str) -> str:
    """Type the text, and return what the terminal shows up to `until`."""
    os.write(terminal, text.encode())
    shown, deadline = "", time.monotonic() + 60
    while until not in shown and time.monotonic() < deadline:
        shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\x07]", "", os.read(terminal, 4096).decode())
    while "\x08" in shown:  # the cursor moved back
        shown = re.sub(r"[^\x08]?\x08", "", shown, count=1)
    return shown
