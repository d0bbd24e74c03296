"""A kubelet's probes: run from the node's network, on the schedule in the manifest."""

from __future__ import annotations

import http.client
import subprocess
import time
from typing import Any

from tests.image.containers.network import http_request
from tests.image.containers.runtime import Container


class Probe:
    """One probe of one start of a container. The initial result is False for readiness and True for liveness."""

    def __init__(self, spec: dict[str, Any], kind: str) -> None:
        self._spec = spec
        self._result = kind != "readiness"
        self._good = self._bad = 0
        self._next = time.monotonic() + float(spec.get("initialDelaySeconds", 0))
        self.failure = ""

    def poll(self, node: str, address: str, container: Container) -> bool | None:
        """Run the probe if it is due. Returns the new result if it changed, or else None."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + float(self._spec.get("periodSeconds", 10))
        if self._check(node, address, container):
            self._good, self._bad = self._good + 1, 0
        else:
            self._good, self._bad = 0, self._bad + 1
        before = self._result
        if self._good >= int(self._spec.get("successThreshold", 1)):
            self._result = True
        elif self._bad >= int(self._spec.get("failureThreshold", 3)):
            self._result = False
        return self._result if self._result != before else None

    def _check(self, node: str, address: str, container: Container) -> bool:
        seconds = float(self._spec.get("timeoutSeconds", 1))
        if "exec" in self._spec:
            try:
                done = container.execute(*self._spec["exec"]["command"], seconds=seconds)
            except subprocess.TimeoutExpired:
                self.failure = f"no answer in {seconds} s"
                return False
            self.failure = done.stdout + done.stderr
            return done.returncode == 0
        target = self._spec["httpGet"]
        try:
            answer = http_request(node, address, int(target["port"]), target["path"], seconds=seconds)
        except (OSError, http.client.HTTPException) as error:
            self.failure = f"{target['path']}: {error}"
            return False
        self.failure = f"{target['path']}: {answer.status} {answer.body[:200]!r}"
        return 200 <= answer.status < 400
