"""Help, the imports of fast commands, and completion."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import pytest

from launcher import plugins
from launcher.cli.main import cli
from launcher.cli.verbs import verbs
from tests.cli.conftest import Launcher

GOLDEN = Path(__file__).with_name("help.txt")


def test_help_of_every_verb(launcher: Launcher) -> None:
    """help.txt has the help of all verbs; UPDATE_GOLDENS=1 writes it again. Those of removed products are left out."""
    texts = {}
    for arguments in ([], *([verb] for verb in verbs())):
        result = launcher(*arguments, "--help")
        assert (result.code, result.err) == (0, "")
        texts[" ".join(["$ launcher", *arguments, "--help"])] = result.out
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.write_text("\n".join(f"{command}\n{text}" for command, text in texts.items()), encoding="utf-8")
    heads = re.split(r"^(\$ launcher .*--help)\n", GOLDEN.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    golden = {command: text.rstrip("\n") for command, text in zip(heads[::2], heads[1::2], strict=True)}
    if removed := golden.keys() - texts.keys():
        golden = {command: text for command, text in golden.items() if command not in {*removed, "$ launcher --help"}}
        del texts["$ launcher --help"]
    assert {command: text.rstrip("\n") for command, text in texts.items()} == golden


def test_the_list_of_verbs_has_their_own_help() -> None:
    context = click.Context(cli)
    for verb, text in verbs().items():
        command = cli.get_command(context, verb)
        assert command is not None and command.get_short_help_str(limit=200) == text


def test_the_list_of_verbs_imports_no_verb(launcher: Launcher) -> None:
    packages = {verb: product.package for product in plugins.products() for verb in product.commands}
    modules = [f"{packages.get(verb, 'launcher.cli.commands')}.{verb}" for verb in verbs()]
    assert _imported(launcher, "import launcher.__main__ as m; m.run(['--help'])", modules) == []


def test_fast_commands_import_no_large_packages(launcher: Launcher) -> None:
    """One process runs the commands, because no command removes a module."""
    heavy = ["kubernetes", "ray", "jax", "rich", "pydantic", "pyhelm3", "trainer"]
    first = [[], ["--help"], *([verb, "--help"] for verb in verbs()), ["status", "x"]]
    for commands, modules in ((first, [*heavy, "ruamel"]), ([["list"]], heavy)):
        code = f"import launcher.__main__ as m\nfor command in {commands!r}: m.run(command)"
        assert _imported(launcher, code, modules) == []


def test_values_and_check_import_no_libraries_of_the_cluster(launcher: Launcher) -> None:
    heavy = ["kubernetes", "ray", "jax", "rich", "pydantic", "pyhelm3", "trainer"]
    for verb in ("values", "check"):
        # The check of a command starts no trainer.
        code = f"import launcher.__main__ as m; m.run([{verb!r}, '-f', 'quickstart', '--set', 'run.command={{true}}'])"
        assert _imported(launcher, code, heavy) == []


def test_the_api_is_light_to_import(launcher: Launcher) -> None:
    heavy = ["kubernetes", "ray", "jax", "rich", "pydantic", "ruamel", "click", "trainer"]
    assert _imported(launcher, "from launcher import api", heavy) == []


def _imported(launcher: Launcher, code: str, modules: list[str]) -> list[str]:
    script = f"import sys\n{code}\nprint(*sorted(set(sys.modules) & set({modules!r})), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=launcher.env,
        cwd=launcher.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()[-1].split()


def test_no_verb(launcher: Launcher) -> None:
    result = launcher()
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: launcher [OPTIONS] COMMAND [ARGS]...")


def test_a_mistyped_verb(launcher: Launcher) -> None:
    result = launcher("sumbit")
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[-1] == "Error: No such command 'sumbit'. Did you mean 'submit'?"


def test_a_mistyped_option(launcher: Launcher) -> None:
    result = launcher("submit", "--detatch")
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[-1] == "Error: No such option '--detatch'. Did you mean '--detach'?"


def test_version(launcher: Launcher) -> None:
    result = launcher("--version")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("launcher, Slipway ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(launcher: Launcher, shell: str) -> None:
    result = launcher("completion", shell)
    assert (result.code, result.err) == (0, "")
    assert f"_LAUNCHER_COMPLETE={shell}_complete" in result.out


def test_completion_of_verbs_and_names(launcher: Launcher) -> None:
    def complete(line: str, at: int, **more: str) -> list[str]:
        env = {"_LAUNCHER_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(at), **more}
        return launcher.start(env=env).communicate()[0].split()  # click answers before the command runs, and exits

    assert complete("launcher s", 1) == [f"plain,{verb}" for verb in verbs() if verb.startswith("s")]
    launcher("submit", "-f", launcher.write("run.yaml", _SHORT))
    assert complete("launcher status d", 2) == ["plain,demo"]
    held: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts connections and never answers
        server = f"https://127.0.0.1:{silent.getsockname()[1]}"
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {"contexts": [context], "clusters": [{"name": "c", "cluster": {"server": server}}]}
        users = [{"name": "u", "user": {"token": "t"}}]
        file = launcher.write("kubeconfig", json.dumps({**config, "users": users, "current-context": "c"}))
        answered = threading.Thread(target=lambda: held.append(_seconds_held(silent)))
        answered.start()
        assert complete("launcher status d", 2, KUBECONFIG=file) == ["plain,demo"]
        answered.join(60)
        assert held[0] < 5  # a client that waits for the whole connection timeout holds it for 5 s


def _seconds_held(server: socket.socket) -> float:
    """Return how long the first client keeps its connection open. A machine under load starts Python late; this time
    does not count that."""
    connection, _ = server.accept()
    since = time.monotonic()
    with connection:
        while connection.recv(4096):
            pass
    return time.monotonic() - since


_SHORT = "run: {name: demo, kind: local, command: ['true']}\nslice: {accelerator: cpu}\nstorage: {kind: local}\n"
