"""The Helm client: the only module that runs Helm. It refers to Slipway's charts by name.

Releases are read and changed through pyhelm3. `helm template` is started without it, because the import of asyncio,
which pyhelm3 needs, takes a tenth of the time of `launcher render`.

Values are passed on standard input as one tree. They are never on a command line, where `ps` would show them.
A failure of Helm raises a launcher.helm.errors.HelmError with a sentence.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from launcher.config import versions
from launcher.config.values.scalars import resolve
from launcher.helm import lazy_import
from launcher.helm.errors import HelmError as HelmError
from launcher.helm.errors import NoHelm, NoRelease, from_stderr
from launcher.helm.errors import RulesBroken as RulesBroken
from launcher.k8s.objects import Manifest
from launcher.paths import charts_dir
from launcher.safe_yaml import safe_loader

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan


_NO_TRACES = "--debug=false"  # overrides HELM_DEBUG
_MAJOR_OF: dict[str, int] = {}  # cached per executable
SUPPORTED = ((3, 16), (5, 0))
"""The first version, which has --skip-schema-validation, and the first that is not supported."""
_INSTALL = (
    "Install Helm 3.16 or newer (macOS: brew install helm; Linux: https://helm.sh/docs/intro/install), or set "
    "SLIPWAY_HELM to its path."
)


@dataclass(frozen=True)
class Release:
    """A revision of a release.

    `chart` has the form "slipway-queues-0.5.0", or "queues-0.4.0" for the first charts, whose names had no prefix.
    `status` is Helm's status: deployed, failed, pending-install, pending-upgrade, pending-rollback, superseded or
    uninstalling. `updated` is an RFC 3339 time.
    """

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    updated: str

    @property
    def chart_name(self) -> str:
        """The name of the chart without the version and the prefix, such as "queues"."""
        return re.sub(r"-\d+\.\d+\.\d+.*$", "", self.chart).removeprefix("slipway-")

    @property
    def pending(self) -> bool:
        """Whether an operation on the release is running or was killed."""
        return self.status.startswith("pending-") or self.status == "uninstalling"

    @property
    def age(self) -> float:
        """Seconds since the operation started."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.updated)).total_seconds()


class Helm:
    """Helm for one context of the kubeconfig (None: the current one). `where` names the cluster in messages.

    Raises NoHelm if Helm is not found. Its version is checked when it is first run.
    """

    def __init__(self, context: str | None = None, *, where: str = "the cluster") -> None:
        self.executable = find_helm()
        self._context = context
        self._where = where
        self._major = _MAJOR_OF.get(self.executable, 0)

    # --- rendering ---

    def manifest(
        self,
        chart: str,
        release: str,
        namespace: str,
        values: Manifest,
        *,
        kube_version: str = "",
        live: bool = False,
        upgrade: bool = False,
        api_versions: Sequence[str] = (),
        checked: bool = False,
    ) -> str:
        """Return the output of `helm template`.

        With `live`, the charts can look up objects in the cluster, and the cluster's version applies.
        `api_versions` are kinds of the cluster that the charts may use. `checked`: the values are those of a plan,
        so Helm does not spend half of its time on the schema.
        """
        command = ["template", release, str(charts_dir() / chart), "--namespace", namespace, "--values", "-"]
        if live:
            # In Helm 3, --validate queries the cluster's kinds and version, and --dry-run=server its objects.
            command += ["--validate"] * (self.major < 4) + ["--dry-run=server"]
        else:
            # The charts reject older versions, and Helm defaults to the version that it was built with. The rendered
            # objects do not depend on it.
            command += ["--kube-version", kube_version or versions.kubernetes_without_cluster()]
        for kind in api_versions:
            command += ["--api-versions", kind]
        command += ["--is-upgrade"] * upgrade + ["--skip-schema-validation"] * checked
        return self._template(command, values, release, live=live)

    def template(self, chart: str, release: str, namespace: str, values: Manifest, **options: Any) -> list[Manifest]:
        """Return the objects of `manifest`."""
        return load_all(self.manifest(chart, release, namespace, values, **options))

    def templates(
        self, chart: Path, release: str, many: Sequence[Manifest], api_versions: Sequence[str]
    ) -> list[Manifest]:
        """Return the objects of the chart for each of `many` values, rendered by processes that run in parallel."""
        command = ["template", release, str(chart), "--values", "-"]
        command += ["--kube-version", versions.kubernetes_without_cluster()]
        for kind in api_versions:
            command += ["--api-versions", kind]

        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            outputs = list(pool.map(lambda values: self._template(command, values, release), many))
        return [obj for output in outputs for obj in load_all(output)]

    # --- releases ---

    def history(self, release: str, namespace: str) -> list[Release]:
        """Return the release's revisions, oldest first; [] if the release does not exist."""
        command = ["history", release, "--namespace", namespace, "--output", "json"]
        try:
            entries = json.loads(self._run(command, release=release))
        except NoRelease:
            return []
        return [
            Release(release, namespace, int(entry["revision"]), entry["status"], entry["chart"], str(entry["updated"]))
            for entry in entries
        ]

    def releases(self, namespace: str | None = None) -> list[Release]:
        """Return the newest revision of every release in the namespace (None: in all), with any status."""
        command = ["list", "--output", "json", "--max", "0"]
        for status in ("deployed", "failed", "pending", "superseded", "uninstalling"):
            command.append(f"--{status}")  # Helm 4 removed `--all`
        command += ["--all-namespaces"] if namespace is None else ["--namespace", namespace]
        return [
            Release(
                entry["name"],
                entry["namespace"],
                int(entry["revision"]),
                entry["status"],
                entry["chart"],
                str(entry["updated"]),
            )
            for entry in json.loads(self._run(command))
        ]

    def objects(self, release: Release) -> list[Manifest]:
        """Return the objects of a revision as rendered."""
        command = ["get", "manifest", release.name, "--namespace", release.namespace]
        return load_all(self._run([*command, "--revision", str(release.revision)], release=release.name))

    def values(self, release: Release) -> Manifest:
        """Return the user's values of a revision."""
        command = ["get", "values", release.name, "--namespace", release.namespace, "--output", "json"]
        given: Manifest | None = json.loads(
            self._run([*command, "--revision", str(release.revision)], release=release.name)
        )
        return given or {}

    def install_or_upgrade(
        self, chart: str, release: str, namespace: str, values: Manifest, *, timeout: float = 300
    ) -> list[str]:
        """Install the chart, or upgrade the release to exactly these values. A failure rolls back the changes.

        Returns the lines of the warnings in the chart's notes: each begins with "Warning: ", and indented lines follow.
        Helm 4 overwrites manual changes to the objects. Helm 3 leaves them in custom resources.
        `timeout` (s) applies to the API server. Does not wait until the objects are ready.
        """
        command = ["upgrade", release, str(charts_dir() / chart), "--install", "--reset-values", "--values", "-"]
        command += ["--namespace", namespace, "--timeout", f"{timeout:.0f}s", "--history-max", "10"]
        if self.major >= 4:
            # `legacy` waits as Helm 3 does: not for custom resources. The default watcher of Helm 4 would wait for
            # conditions that only Kueue or KubeRay set, and roll back a release whose chips are busy.
            command += ["--rollback-on-failure", "--wait=legacy", "--server-side=true", "--force-conflicts"]
        else:
            command += ["--atomic"]
        notes = self._run(command, values, release=release).partition("\nNOTES:\n")[2]
        return [line for text in re.findall(r"^Warning: .*(?:\n  .*)*", notes, re.M) for line in text.splitlines()]

    def rollback(self, release: str, namespace: str, revision: int, *, timeout: float = 300) -> None:
        """Restore the objects of `revision` as a new revision."""
        command = ["rollback", release, str(revision), "--namespace", namespace, "--timeout", f"{timeout:.0f}s"]
        self._run([*command, "--history-max", "10"], release=release)

    def uninstall(self, release: str, namespace: str, *, timeout: float = 300) -> None:
        """Delete the release and its objects, except for objects with the keep annotation."""
        command = ["uninstall", release, "--namespace", namespace, "--timeout", f"{timeout:.0f}s"]
        self._run(command, release=release)

    # --- inside ---

    @property
    def major(self) -> int:
        """The major version of Helm. Raises NoHelm if it is not supported."""
        if not self._major:
            self._major = self._find_major()
        return self._major

    def _template(self, arguments: list[str], values: Manifest, release: str, *, live: bool = False) -> str:
        """Return the output of `helm template`. If it is not that of a supported Helm, raise NoHelm."""
        context = ["--kube-context", self._context] if live and self._context else []
        ended = _start([*self._program(), *arguments, *context, _NO_TRACES], json.dumps(values).encode())
        output = ended.stdout.decode("utf-8", "replace")
        if ended.returncode or not output.startswith("---"):
            self._major = self._find_major()  # an unsupported Helm explains any error
        if ended.returncode:
            raise self._error(ended.returncode, ended.stderr, release)
        return output

    def _run(self, arguments: list[str], values: Manifest | None = None, *, release: str = "") -> str:
        """Return the output of a command for releases."""
        return _wait_for(self._command(arguments, values, release))

    async def _command(self, arguments: list[str], values: Manifest | None, release: str) -> str:
        """Commands that change a cluster get Helm's version first, others only if the output is not Helm's."""
        if arguments[0] in ("upgrade", "rollback", "uninstall"):
            self._major = self._major or self._find_major()
        pyhelm3 = _pyhelm3()
        command = pyhelm3.command.Command(executable="env", kubecontext=self._context)
        try:
            values_text = None if values is None else json.dumps(values).encode()
            done = await command.run([*self._program(), *arguments, _NO_TRACES], values_text)
        except pyhelm3.errors.Error as error:
            self._major = self._find_major()
            raise self._error(error.returncode, error.stderr, release) from error
        output = bytes(done).decode("utf-8", "replace")
        if not output.startswith(("---", "[", "{", "null")):
            self._major = self._find_major()
        return output

    def _error(self, code: int, stderr: bytes, release: str) -> HelmError:
        if code in (126, 127):
            return NoHelm(f"Helm ({self.executable}) cannot be run.", _INSTALL)
        return from_stderr(stderr.decode("utf-8", "replace"), where=self._where, release=release)

    def _program(self) -> list[str]:
        """Return the words for env(1) that run Helm. Without garbage collection, it takes two thirds of the time."""
        settings = {"GOGC": "off", "GOMEMLIMIT": "1GiB"}  # above the limit, Go collects garbage
        return [*(f"{name}={value}" for name, value in settings.items() if name not in os.environ), self.executable]

    def _find_major(self) -> int:
        ended = _start([*self._program(), "version", "--template", "{{.Version}}"])
        if ended.returncode:
            why = (ended.stderr.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"])[-1]
            raise NoHelm(f"Helm ({self.executable}) cannot be run: {why}", _INSTALL)
        text = ended.stdout.decode("utf-8", "replace").strip()
        match = re.match(r"v?(\d+)\.(\d+)", text)
        if match is None:
            raise NoHelm(f"{self.executable} is not Helm: its command version prints {text[:60]!r}.", _INSTALL)
        if not SUPPORTED[0] <= (int(match[1]), int(match[2])) < SUPPORTED[1]:
            raise NoHelm(f"Helm {text.removeprefix('v')} ({self.executable}) is not supported.", _INSTALL)
        return _MAJOR_OF.setdefault(self.executable, int(match[1]))


def _start(command: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command of `Helm._program` to its end."""
    return subprocess.run(["/usr/bin/env", *command], input=stdin, capture_output=True, check=False)


def _pyhelm3() -> Any:
    """Import pyhelm3 without its models. They are not used here, and pydantic is two thirds of the import time."""
    lazy_import.prepare("pyhelm3")
    import_module("pyhelm3.errors")  # first, because pyhelm3.command takes it from the package
    import_module("pyhelm3.command")
    return import_module("pyhelm3")


def find_helm() -> str:
    """Return the path of Helm: $SLIPWAY_HELM, else `helm` on the PATH. Raises NoHelm if it is not found."""
    given = os.environ.get("SLIPWAY_HELM")
    path = shutil.which(given or "helm")
    if path is None:
        missing = f"SLIPWAY_HELM is {given}, which is not an executable" if given else "There is no helm on the PATH"
        raise NoHelm(f"{missing}; the charts cannot be rendered without it.", _INSTALL)
    return path


def _wait_for[T](task: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine. On Ctrl-C, Helm shuts down first; then this call is interrupted."""
    import asyncio
    import logging

    # pyhelm3 logs each failed command, and Python prints that on stderr if logging is not configured.
    log = logging.getLogger("pyhelm3.command")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    return asyncio.run(_to_its_end(task))


async def _to_its_end[T](task: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine. If this is cancelled, wait for its end first.

    A cancelled start of a process kills pyhelm3's shell, but not Helm, which then waits for its values forever.
    """
    import asyncio

    inner = asyncio.ensure_future(task)
    try:
        return await asyncio.shield(inner)
    except asyncio.CancelledError:
        await asyncio.gather(inner, return_exceptions=True)
        raise


# --- YAML -------------------------------------------------------------------------------------------------------


def load_all(text: str) -> list[Manifest]:
    """Return the objects of a manifest. Scalars are parsed as Helm and Kubernetes parse them."""
    return [obj for obj in yaml.load_all(text, Loader=_loader()) if obj]


@cache
def _loader() -> Any:
    """Return PyYAML's safe loader with go-yaml's plain scalars: 1:30 and 2024-01-01 are strings, 1e3 is a number."""
    # Created with `type`, because the base class is only known at run time.
    loader_class: Any = type("Loader", (safe_loader(),), {"yaml_implicit_resolvers": {}})

    def scalar(loader: Any, node: Any) -> Any:
        text = loader.construct_scalar(node)
        return text if node.style else resolve(text)

    loader_class.add_constructor("tag:yaml.org,2002:str", scalar)
    return loader_class


# Below this number of runs, the start of a second process takes longer than it saves.
_TWO_PROCESSES = 20

# --- runs -------------------------------------------------------------------------------------------------------


def run_manifest(plan: LaunchPlan, api_versions: Sequence[str] = ()) -> str:
    """Return the manifest of a ray-job or job-set run as Helm prints it: exactly one object, with Helm's comments."""
    helm = Helm()
    return helm.manifest("run", plan.name, plan.namespace, plan.user.tree, api_versions=api_versions, checked=True)


def run_object(plan: LaunchPlan, api_versions: Sequence[str] = ()) -> Manifest:
    """Return the object of the run, a RayJob or a JobSet, with its namespace."""
    (obj,) = load_all(run_manifest(plan, api_versions))
    return obj


def run_objects(plans: Sequence[LaunchPlan], api_versions: Sequence[str] = ()) -> list[Manifest]:
    """Return `run_object` of each plan, with one or two calls of Helm. The plans must have different names.

    Helm renders a chart once per release, so a hundred calls would read it a hundred times. Instead, this function
    builds a temporary chart from the same templates: the manifests as partials, and one template that iterates over
    the effective values of all runs. Helm uses one core; many runs are rendered by two processes.
    """
    if len(plans) < 2:
        return [run_object(plan, api_versions) for plan in plans]
    half = (len(plans) + 1) // 2
    parts = [plans[:half], plans[half:]] if len(plans) >= _TWO_PROCESSES else [plans]
    with tempfile.TemporaryDirectory(prefix="slipway-sweep-") as folder:
        chart = _sweep_chart(Path(folder))
        try:
            made = Helm().templates(chart, "sweep", [_values_of(part) for part in parts], api_versions)
        except RulesBroken:
            # Raises the error again, now for a single run.
            return [run_object(plan, api_versions) for plan in plans]
    by_name = {(obj["metadata"]["namespace"], obj["metadata"]["name"]): obj for obj in made}
    return [by_name[plan.namespace, plan.name] for plan in plans]


def _values_of(plans: Sequence[LaunchPlan]) -> Manifest:
    """Return the values of the temporary chart that renders these runs."""
    trees = [plan.values.tree for plan in plans]
    shared: Manifest = {}
    if all(tree["common"] == trees[0]["common"] for tree in trees):  # share the table of accelerators, which is long
        shared = {"common": trees[0]["common"]}
        trees = [{key: value for key, value in tree.items() if key != "common"} for tree in trees]
    runs = [
        {"name": plan.name, "namespace": plan.namespace, "values": tree}
        for plan, tree in zip(plans, trees, strict=True)
    ]
    return {"runs": runs, **shared}


_EACH_RUN = """\
{{- range .Values.runs }}
{{- if not (hasKey .values "common") }}{{ $_ := set .values "common" $.Values.common }}{{ end }}
{{- $release := dict "Name" .name "Namespace" .namespace "Service" $.Release.Service "Revision" 1 }}
{{- $_ := set $release "IsInstall" true }}{{ $_ := set $release "IsUpgrade" false }}
{{- $run := dict "Values" .values "Release" $release "Chart" $.Chart "Capabilities" $.Capabilities }}
{{- $_ := set $run "Template" $.Template }}{{ $_ := set $run "Files" $.Files }}
"""


def _sweep_chart(folder: Path) -> Path:
    """Create in `folder` the chart `run` with its manifests as partials and one template for many runs."""
    source = charts_dir() / "run"
    templates = folder / "templates"
    templates.mkdir()
    shutil.copy(source / "Chart.yaml", folder)
    shutil.copy(source / "keys.yaml", folder)
    (folder / "charts").mkdir()
    shutil.copytree(source / "charts" / "slipway-common", folder / "charts" / "slipway-common")
    text = _EACH_RUN
    for file in sorted((source / "templates").iterdir()):
        if file.suffix == ".tpl":
            shutil.copy(file, templates)
        elif file.suffix == ".yaml":
            shutil.copy(file, templates / f"_{file.name}")
            # Helm names a template by chart and path.
            text += f'---\n{{{{ include (printf "%s/templates/_{file.name}" $.Chart.Name) $run }}}}\n'
    (templates / "runs.yaml").write_text(text + "{{- end }}\n", encoding="utf-8")
    return folder
