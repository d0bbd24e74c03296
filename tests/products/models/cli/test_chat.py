"""`launcher chat` in a real terminal: what a user types, and what the terminal then shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pexpect
import psutil
import pytest

from launcher.cli.output import neutral
from tests import huggingface_model
from tests.cli.conftest import Launcher, eventually
from tests.products.models.cli.test_serve import Server, serving

CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"
FIRST_LINE = "slow: Ctrl-C stops an answer, /new begins a new conversation, Ctrl-D ends."


class Terminal:
    """`launcher chat` in a terminal of 80 columns. The most likely text has no prompt in it."""

    def __init__(self, launcher: Launcher, *arguments: str) -> None:
        environment = {**launcher.env, "TERM": "xterm-256color"}
        environment.pop("COLUMNS")
        self.process: Any = pexpect.spawn(
            sys.executable,
            ["-m", "launcher", "chat", *arguments, "--temperature", "0"],
            cwd=str(launcher.folder),
            env=environment,
            dimensions=(24, 80),
            encoding="utf-8",
            timeout=20,
        )

    def type(self, keys: str) -> None:
        self.process.send(keys)

    def until_prompt(self) -> str:
        """Return what the terminal shows until the next prompt, in a new line: an answer can have "> ", too."""
        self.process.expect(r"\n(\x1b\[\?2004h)?> ")
        return plain(self.process.before)

    def pieces(self, number: int) -> None:
        """Wait for some pieces of an answer, which are read at different times."""
        for _ in range(number):
            self.process.expect(r".+")

    def until_the_end(self) -> tuple[int, str]:
        """Return the exit code, and what the terminal shows until the command ends."""
        self.process.expect(pexpect.EOF)
        self.process.close()
        return int(self.process.exitstatus), plain(self.process.before)


def plain(text: str) -> str:
    return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])", "", text).replace("\r", "")


@contextmanager
def slow(launcher: Launcher) -> Iterator[Server]:
    """Serve a model whose answers take many seconds if nothing ends them."""
    huggingface_model.write(
        launcher.folder / "slow", max_position_embeddings=8192, hidden_size=256, intermediate_size=1024
    )
    with serving(launcher, "./slow", "--context-length", "3000") as started:
        yield started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Launcher, Server]]:
    """A server that the tests leave as it is."""
    folder = tmp_path_factory.mktemp("here")
    launcher = Launcher(folder / "home", folder)
    with slow(launcher) as server:
        yield launcher, server


def seconds_of_work(server: Server) -> float:
    """Return the processor time that the server has used."""
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process(server.process.pid).children(recursive=True))


def idle(server: Server) -> bool:
    before = seconds_of_work(server)
    time.sleep(0.5)
    return seconds_of_work(server) - before < 0.1


def test_a_conversation(shared: tuple[Launcher, Server]) -> None:
    launcher, server = shared
    terminal = Terminal(launcher, "slow", "--max-tokens", "3000")
    assert terminal.until_prompt() == FIRST_LINE
    terminal.type("def main(\r")
    terminal.process.expect("This model has no chat template: it continues the text so far.\r\n")
    # The answer arrives in pieces. Ctrl-C ends it, and the model stops, too.
    terminal.pieces(20)
    assert not idle(server)
    terminal.type(CTRL_C)
    assert "Traceback" not in terminal.until_prompt()
    eventually(lambda: idle(server))
    terminal.type("import\r")
    terminal.pieces(20)
    terminal.type(CTRL_C)
    terminal.until_prompt()
    # A word with a slash is a command, not a message.
    terminal.type("/help\r")
    assert "There is no command /help. Ctrl-C stops an answer, /new begins" in " ".join(terminal.until_prompt().split())
    # Ctrl-C at the prompt clears the line.
    terminal.type("half a mess" + CTRL_C)
    terminal.until_prompt()
    # A message that is too long is refused, and the conversation continues.
    terminal.type("a " * 1600 + "\r")
    shown = terminal.until_prompt()
    assert re.search(r"Error: \S+ answers with status 400: The prompt has \d+ tokens; the model accepts 2999\.", shown)
    assert shown.endswith("Hint: To begin a new conversation, type /new.")
    terminal.type(CTRL_D)
    assert terminal.until_the_end() == (0, "\n")


def test_a_line_can_be_edited_and_the_history_has_the_lines_before(shared: tuple[Launcher, Server]) -> None:
    launcher, _ = shared
    terminal = Terminal(launcher, "slow", "--max-tokens", "8")
    terminal.until_prompt()
    terminal.type("def naim\x7f\x7f\x7fmain(\r")
    answer = terminal.until_prompt().partition("continues the text so far.\n")[2]
    assert answer
    terminal.type("/new\r")
    assert terminal.until_prompt().strip() == "/new"
    # The edited message again: in a new conversation, it has the same answer.
    terminal.type(UP + UP + "\r")
    again = terminal.until_prompt()
    assert again.splitlines()[0].endswith("def nmain(") and again.endswith(answer)
    terminal.type(CTRL_D)
    assert terminal.until_the_end()[0] == 0

    # The answers in a file are only the answers, without the prompts.
    command = f"{shlex.quote(sys.executable)} -m launcher chat slow --max-tokens 8 --temperature 0 > answers.txt"
    shell: Any = pexpect.spawn(
        "sh", ["-c", command], cwd=str(launcher.folder), env=launcher.env, encoding="utf-8", timeout=20
    )
    for keys in ("def nmain(\r", CTRL_D):
        shell.expect("\n> ")
        shell.send(keys)
    shell.expect(pexpect.EOF)
    assert neutral((launcher.folder / "answers.txt").read_text()) == answer + "\n"


def test_a_server_that_ends_ends_the_conversation(launcher: Launcher) -> None:
    with slow(launcher) as server:
        terminal, other = (Terminal(launcher, "slow", "--max-tokens", "3000") for _ in range(2))
        other.until_prompt()
        terminal.until_prompt()
        terminal.type("def main(\r")
        terminal.pieces(20)
        for child in psutil.Process(server.process.pid).children(recursive=True):
            os.kill(child.pid, signal.SIGKILL)
        base = server.url.removesuffix("/v1")
        code, shown = terminal.until_the_end()
        assert (code, shown.splitlines()[-1]) == (
            1,
            f"Error: The answer of {base} is incomplete: the connection ended.",
        )
        assert server.process.wait(20) == 1
        other.type("def main(\r")
        code, shown = other.until_the_end()
        assert code == 1
        assert f"Error: {base} does not answer: Connection refused.\n" in shown
        assert "Traceback" not in shown
        assert server.err[-2].startswith("Error: python -m trainer.serve was killed")
