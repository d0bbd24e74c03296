"""A registry on this machine, without TLS, which keeps what is pushed in memory."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.tools import tool


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Run a registry, and yield its host and port. Its log is registry.log in `folder`."""
    log = folder / "registry.log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("w") as output:
        process = subprocess.Popen([tool("registry"), f"-port={port}"], stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + 20
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError(f"The registry did not start:\n{log.read_text()}")
                time.sleep(0.05)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
