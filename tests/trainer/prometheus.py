"""A real Prometheus on loopback, for tests."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.tools import tool
from tests.trainer.scrape import get


class Prometheus:
    """Its HTTP API."""

    def __init__(self, address: str, log: Path) -> None:
        self._address = address
        self._log = log

    def get(self, path: str, **parameters: str) -> Any:
        """Return `data` of the answer; {} until it responds."""
        try:
            return json.loads(get(f"{self._address}/api/v1/{path}?{urlencode(parameters)}"))["data"]
        except OSError:  # it is not up yet
            return {}

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        result: list[dict[str, Any]] = self.get("query", query=query).get("result", [])
        return result

    def until(self, holds: Callable[[], Any], seconds: float = 120) -> Any:
        """Return the first true value of `holds`."""
        deadline = time.monotonic() + seconds
        while not (value := holds()):
            assert time.monotonic() < deadline, self._log.read_text()[-2000:]
            time.sleep(0.2)
        return value


@contextlib.contextmanager
def running(folder: Path, targets: Mapping[str, str], rules: Sequence[Mapping[str, Any]] = ()) -> Iterator[Prometheus]:
    """Start a Prometheus that scrapes `targets` (HOST:PORT by job) each second, with these groups of rules."""
    scrapes = [
        {"job_name": job, "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        for job, target in targets.items()
    ]
    (folder / "rules.json").write_text(json.dumps({"groups": list(rules)}))
    (folder / "prometheus.json").write_text(json.dumps({"scrape_configs": scrapes, "rule_files": ["rules.json"]}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [str(tool("prometheus")), f"--config.file={folder}/prometheus.json"]
    command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}"]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield Prometheus(f"http://{address}", log)
    finally:
        process.kill()
        process.wait()
