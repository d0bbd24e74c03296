"""The machine of a job: an empty home, a minimal environment, and a user without privileges."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

# The PATH of Ubuntu's sudo (secure_path).
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How this machine reaches registries of packages. A machine of GitHub needs none of these.
_NETWORK = re.compile(
    r"(?i)((https?|all|no)_proxy|\w*(SSL|CERT|CA_BUNDLE|CAINFO|ROOTS)\w*|(PIP|UV)_\w+|GO\w*(PROXY|SUMDB))"
)
RUNNER = 1001  # the user id of GitHub's runner

# The client of the stand-in for sudo: it passes its arguments, environment, folder and files to the server.
_SUDO = """\
#!/usr/bin/python3 -I
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"!"], [0, 1, 2])
server.sendall(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode() + b"\\n")
sys.exit(int(server.recv(16) or 1))
"""


class Machine:
    """Folders and variables of one job. `programs` is the first folder of PATH, for programs of the tests.

    full: whether commands run without privileges, and get the variables by which this machine reaches registries.
    """

    def __init__(self, folder: Path, *, full: bool) -> None:
        self.full = full
        self.home, self.temp, self.programs = folder / "home", folder / "temp", folder / "programs"
        self.workspace = folder / "work/slipway/slipway"
        for each in (self.home, self.temp, self.programs, self.workspace):
            each.mkdir(parents=True)
        self.path = [str(self.programs), *SYSTEM_PATH.split(":")]
        self.network = {key: value for key, value in os.environ.items() if full and _NETWORK.fullmatch(key)}
        # The variables of GitHub's documentation, "Variables reference", that do not depend on the event.
        self.variables = {
            "CI": "true",
            "DEBIAN_FRONTEND": "noninteractive",
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "example/slipway",
            "GITHUB_REPOSITORY_OWNER": "example",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_WORKSPACE": str(self.workspace),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "RUNNER_ARCH": "X64",
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(self.temp),
            "USER": "runner",
        }

    def run(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float) -> int:
        """Run a command as a user without privileges; its output is that of this process. Return the exit code.

        The command and its children are killed after `seconds`. Raises TimeoutExpired.
        """
        if self.full and os.geteuid() == 0:
            # In this user namespace, the files of root belong to the user 1001, who has no privileges.
            command = ["unshare", f"--map-user={RUNNER}", f"--map-group={RUNNER}", *command]
        with subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True
        ) as process:
            try:
                return process.wait(seconds)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def sudo(machine: Machine) -> Iterator[None]:
    """Provide a stand-in for sudo on the machine if this process is root; otherwise the real one is used.

    A user namespace has no way back to the real root, so the stand-in asks this process to start the command.
    """
    if os.geteuid() != 0:
        yield
        return
    # The path of a socket has at most 107 bytes.
    address = f"/tmp/slipway-sudo-{os.getpid()}"
    client = machine.programs / "sudo"
    client.write_text(_SUDO.format(address=address))
    client.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        Path(address).unlink(missing_ok=True)
        server.bind(address)
        Path(address).chmod(0o600)
        server.listen()
        threading.Thread(target=_serve, args=(server, str(machine.programs)), daemon=True).start()
        try:
            yield
        finally:
            Path(address).unlink()


def _serve(server: socket.socket, programs: str) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # closed
            return
        with connection:
            _, files, _, _ = socket.recv_fds(connection, 1, 3)
            request = b""
            while not request.endswith(b"\n"):
                request += connection.recv(65536)
            arguments, environment, folder = json.loads(request)
            process = _as_root(arguments, environment, folder, files, programs)
            for file in files:
                os.close(file)
            if process is None:
                continue
            # If the client is killed, its command ends, too.
            while process.poll() is None:
                if select.select([connection], [], [], 0.2)[0]:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            code = process.returncode
            with contextlib.suppress(BrokenPipeError):  # the client was killed
                connection.sendall(str(code if code >= 0 else 128 - code).encode())


def _as_root(
    arguments: list[str], environment: dict[str, str], folder: str, files: list[int], programs: str
) -> subprocess.Popen[bytes] | None:
    """Start what sudo runs for these arguments, with the environment that it gives; None if it would refuse."""
    keep = arguments[:1] in (["--preserve-env"], ["-E"])
    command = arguments[1:] if keep else arguments
    path = f"{programs}:{SYSTEM_PATH}"
    program = shutil.which(command[0], path=path) if command and not command[0].startswith("-") else None
    if program is None:
        os.write(files[2], f"sudo: {' '.join(arguments)}: no such command, or not known to the stand-in\n".encode())
        return None
    given = dict(environment) if keep else {key: environment[key] for key in environment.keys() & {"LANG", "TERM"}}
    given |= {"PATH": path, "SUDO_UID": str(RUNNER), "SUDO_GID": str(RUNNER), "SUDO_USER": "runner"}
    given.setdefault("HOME", "/root")
    stdin, stdout, stderr = files
    return subprocess.Popen(
        [program, *command[1:]],
        env=given,
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def folder_of_python() -> str:
    """Return the folder of this Python's program, as actions/setup-python adds it to PATH."""
    return str(Path(sys.base_prefix) / "bin")
