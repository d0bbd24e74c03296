"""Runs one pod from its manifest, as a kubelet does.

The init containers run first, one after the other. Then the container runs. It is probed from the node, and started
again if the restart policy requires it. A deleted pod runs its preStop hook and receives SIGTERM, and then SIGKILL when
its grace period is over.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.image.containers.manifests import amount, expand, field_of
from tests.image.containers.node import ImageFiles, Node
from tests.image.containers.probes import Probe
from tests.image.containers.runtime import Container, Mount, Spec
from tests.image.containers.security import security_of
from tests.image.containers.volumes import Volumes
from tests.trainer.runs import PATIENCE

_SECONDS_BETWEEN_RESTARTS = 10.0


@dataclass
class PodContext:
    """The parts of a cluster that pods use: the node, the image, claims (one folder each), and Secrets."""

    node: Node
    image: ImageFiles
    claims: dict[str, Path] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Termination:
    """The end of one start of the pod's container."""

    started: float
    ended: float
    exit_code: int


class Pod:
    """A pod. It starts when the object is created."""

    def __init__(self, context: PodContext, manifest: dict[str, Any]) -> None:
        self._context, self._node = context, context.node
        self.manifest = manifest
        self.name: str = manifest["metadata"]["name"]
        self._spec: dict[str, Any] = manifest["spec"]
        (self._container_spec,) = self._spec["containers"]
        self._folder = self._node.folder / "pods" / self.name
        self._folder.mkdir(parents=True)
        self.network, self.address = self._node.network.add()
        self.namespace: str = manifest["metadata"]["namespace"]
        self._write_resolver_files()
        self._volumes = Volumes(manifest, self._folder / "volumes", context.claims)
        self.terminations: list[Termination] = []
        self.ready = False
        self.phase = "Pending"
        self.disrupted = False
        self.events: list[str] = []  # of hooks, probes and kills, as in `kubectl describe`
        self._current: Container | None = None
        self._grace: float | None = None
        self._stop_requested = threading.Event()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._node.at_end.callback(self.close)
        self._kubelet = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._kubelet.start()

    # -- what a user of the cluster can do and see -------------------------------------------------------------------

    @property
    def container(self) -> Container:
        """The running container."""
        self.check()
        assert self._current is not None, f"{self.name} has no running container:\n{self.log()[-2000:]}"
        return self._current

    @property
    def restarts(self) -> int:
        return max(0, len(self.terminations) + (self._current is not None) - 1)

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def check(self) -> None:
        """Raise the harness's own error, if running this pod failed."""
        if self._failure is not None:
            raise self._failure

    @property
    def ports(self) -> dict[str, int]:
        """The container's ports, by name."""
        return {each["name"]: each["containerPort"] for each in self._container_spec.get("ports", [])}

    def log(self) -> str:
        """The output of all starts of the container, as `kubectl logs` prints it."""
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def delete(self, *, grace: float | None = None, disruption: bool = False) -> None:
        """Request the pod's end. grace: seconds, instead of the pod's own grace period; 0: kill it at once.

        disruption: whether Kubernetes would add the condition DisruptionTarget (an eviction, a preemption).
        """
        self.disrupted |= disruption
        self._grace = float(self._spec.get("terminationGracePeriodSeconds", 30)) if grace is None else grace
        self._stop_requested.set()

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """Wait for the pod's end. Returns the last container's exit code, or None if no container ended."""
        assert self._over.wait(seconds), f"{self.name} is still running after {seconds} s:\n{self.log()[-3000:]}"
        self.check()
        return self.terminations[-1].exit_code if self.terminations else None

    def close(self) -> None:
        """Kill the pod, and remove its resources."""
        if not self.over:
            self.delete(grace=0)
            self._over.wait(60)
        self._kubelet.join(60)

    # -- what the kubelet does ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            initialized = all(self._run_first(each) for each in self._spec.get("initContainers", []))
            if not self._stop_requested.is_set():
                assert initialized, f"an init container of {self.name} failed:\n{self.log()[-2000:]}"
                self._run_main()
        except BaseException as error:  # raised by check()
            self._failure = error
        finally:
            self.ready = False
            self._volumes.remove()
            with contextlib.suppress(subprocess.CalledProcessError):
                self._node.network.remove(self.network)
            self._over.set()

    def _write_resolver_files(self) -> None:
        """Write the pod's /etc/hosts and /etc/resolv.conf, as the kubelet does."""
        host = self._spec.get("hostname", self.name)
        names = [host]
        if domain := self._spec.get("subdomain"):
            full = f"{host}.{domain}.{self.namespace}.svc.cluster.local"
            names = [full, host]
            self._node.dns.set(full, self.address)
        (self._folder / "hosts").write_text(f"127.0.0.1\tlocalhost\n{self.address}\t{' '.join(names)}\n")
        search = " ".join(f"{prefix}cluster.local" for prefix in (f"{self.namespace}.svc.", "svc.", ""))
        (self._folder / "resolv.conf").write_text(
            f"search {search}\nnameserver {self._node.dns.address}\noptions ndots:5\n"
        )

    def _run_first(self, container: dict[str, Any]) -> bool:
        started = self._start(container)
        try:
            while started.poll() is None:
                if self._stop_requested.wait(0.05):
                    self._stop(started, {}, self._grace or 0)
            return started.poll() == 0
        finally:
            started.remove()

    def _run_main(self) -> None:
        policy = self._spec.get("restartPolicy", "Always")
        pause = 0.0  # seconds; the first restart is immediate, the next ones wait 10 s, 20 s …
        while True:
            code = self._run_container()
            if self._stop_requested.is_set() or policy == "Never" or (policy == "OnFailure" and code == 0):
                self.phase = "Failed" if code else "Succeeded"
                return
            if self._stop_requested.wait(pause):
                self.phase = "Failed"
                return
            pause = max(_SECONDS_BETWEEN_RESTARTS, 2 * pause)

    def _run_container(self) -> int:
        container = self._current = self._start(self._container_spec)
        if container.poll() is None:  # the container can have failed to start
            self.phase = "Running"
        try:
            probes = {
                kind: Probe(self._container_spec[f"{kind}Probe"], kind)
                for kind in ("readiness", "liveness")
                if f"{kind}Probe" in self._container_spec
            }
            self.ready = "readiness" not in probes
            while container.poll() is None:
                if self._stop_requested.wait(0.05):
                    self.ready = False
                    self._stop(container, self._container_spec.get("lifecycle") or {}, self._grace or 0)
                    break
                for kind, probe in probes.items():
                    result = probe.poll(self._node.network.node, self.address, container)
                    if result is None:
                        continue
                    if not result:
                        self.events.append(f"{kind} probe failed: {probe.failure}")
                    if kind == "readiness":
                        self.ready = result
                    elif not result:
                        grace = float(self._spec.get("terminationGracePeriodSeconds", 30))
                        self._stop(container, self._container_spec.get("lifecycle") or {}, grace)
            code = container.wait(30)
            self.terminations.append(Termination(container.started, time.time(), code))
            return code
        finally:
            self.ready = False
            self._current = None
            container.remove()

    def _stop(self, container: Container, lifecycle: dict[str, Any], grace: float) -> None:
        """Run the preStop hook, send SIGTERM, then SIGKILL. The hook's time is a part of the grace period."""
        deadline = time.monotonic() + grace
        hook = lifecycle.get("preStop")
        if hook and grace:
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = container.execute(*hook["exec"]["command"], seconds=grace)
                output = (done.stdout + done.stderr).strip()
                self.events.append(f"preStop ended with exit code {done.returncode}: {output[-500:]}")
        if grace:
            container.signal(signal.SIGTERM)
            # The kubelet waits at least two seconds.
            with contextlib.suppress(subprocess.TimeoutExpired):
                container.wait(max(2, deadline - time.monotonic()))
                return
            self.events.append("killed after its grace period")
        container.signal(signal.SIGKILL)

    def _start(self, container: dict[str, Any]) -> Container:
        config = self._context.image.config
        environment = self._environment(container, config)
        command = container.get("command") or config.get("Entrypoint") or []
        arguments = container.get("args") or ([] if container.get("command") else config.get("Cmd") or [])
        limits = (container.get("resources") or {}).get("limits") or {}
        requests = (container.get("resources") or {}).get("requests") or {}
        spec = Spec(
            arguments=tuple(expand(each, environment) for each in (*command, *arguments)),
            environment=environment,
            folder=container.get("workingDir") or config.get("WorkingDir") or "/",
            hostname=environment["HOSTNAME"],
            network=self.network,
            security=security_of(self._spec, container, config.get("User") or ""),
            mounts=(
                Mount(self._folder / "hosts", "/etc/hosts"),
                Mount(self._folder / "resolv.conf", "/etc/resolv.conf"),
                *self._volumes.mounts(container),
            ),
            memory=int(amount(limits.get("memory", 0))),
            cpu_shares=int(amount(requests.get("cpu", 0)) * 1024),
        )
        return Container(self._node, self._context.image, spec, self._folder / "log")

    def _environment(self, container: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
        values = dict(each.split("=", 1) for each in config.get("Env") or [])
        values["HOSTNAME"] = self._spec.get("hostname", self.name)
        assert not container.get("envFrom"), "this harness does not support envFrom"
        for each in container.get("env", []):
            source = each.get("valueFrom") or {}
            if "fieldRef" in source:
                values[each["name"]] = self._field(source["fieldRef"]["fieldPath"])
            elif "secretKeyRef" in source:
                reference = source["secretKeyRef"]
                secret = self._context.secrets.get(reference["name"], {})
                if reference["key"] in secret or not reference.get("optional"):
                    values[each["name"]] = secret[reference["key"]]
            else:
                assert not source, source
                values[each["name"]] = expand(str(each.get("value", "")), values)
        return values

    def _field(self, path: str) -> str:
        live = {
            "status.podIP": self.address,
            "spec.nodeName": self._node.name,
            "spec.serviceAccountName": self._spec.get("serviceAccountName", "default"),
        }
        return live[path] if path in live else field_of(self.manifest, path)
