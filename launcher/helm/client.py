"""The door to Helm: the only module that runs it, through pyhelm3. Charts are Slipway's own, by their names.

Values go in by standard input, as one tree: nothing of them stands on a command line, where `ps` would show it.
Whatever Helm refuses is raised as a launcher.helm.errors.HelmError with a sentence.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.helm.errors import HelmError, InProgress, NoHelm, NoRelease, RulesBroken, from_stderr
from launcher.paths import charts_dir

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan

__all__ = [
    "Helm",
    "HelmError",
    "InProgress",
    "NoHelm",
    "NoRelease",
    "Release",
    "RulesBroken",
    "load_all",
    "run_manifest",
    "run_object",
    "run_objects",
]

Object = dict[str, Any]
_MAJOR_OF: dict[str, int] = {}  # of the executables that this process has asked
MAJORS = (3, 4)
# Told to the charts where no cluster is asked: they refuse older ones, and a Helm believes in the one it was built
# with. Nothing that they render depends on it.
KUBE_VERSION = "1.36.0"
_INSTALL = "Install Helm 4 or 3 (https://helm.sh/docs/intro/install), or name one in SLIPWAY_HELM."


@dataclass(frozen=True)
class Release:
    """A revision of a release: `chart` is like "queues-0.1.0", `status` Helm's word (deployed, failed,
    pending-install, pending-upgrade, pending-rollback, superseded, uninstalling), `updated` RFC 3339."""

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    updated: str

    @property
    def chart_name(self) -> str:
        return self.chart.rpartition("-")[0]

    @property
    def pending(self) -> bool:
        """Whether an operation is at work on it, or died at it."""
        return self.status.startswith("pending-") or self.status == "uninstalling"

    @property
    def age(self) -> float:
        """Seconds since the operation began."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.updated)).total_seconds()


class Helm:
    """Helm for one context of the kubeconfig (None: the current one). `where` names the cluster in sentences.

    Raises NoHelm where there is none; which version it is, is found out when it is first run.
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
        values: Object,
        *,
        kube_version: str = KUBE_VERSION,
        live: bool = False,
        upgrade: bool = False,
        api_versions: Sequence[str] = (),
    ) -> str:
        """What `helm template` prints. With `live` the charts may look into the cluster, and its version counts.

        `api_versions`: kinds that the cluster has, which the charts may make use of.
        """
        command = ["template", release, str(charts_dir() / chart), "--namespace", namespace, "--values", "-"]
        if live:
            # Helm 3 asks the cluster for its kinds and version with the first option, and for objects with the other.
            command += ["--validate"] * (self.major < 4) + ["--dry-run=server"]
        else:
            command += ["--kube-version", kube_version]
        for kind in api_versions:
            command += ["--api-versions", kind]
        command += ["--is-upgrade"] * upgrade
        return self._run(command, values, release=release, cluster=live)

    def template(self, chart: str, release: str, namespace: str, values: Object, **options: Any) -> list[Object]:
        """The same (see `manifest`) as objects."""
        return load_all(self.manifest(chart, release, namespace, values, **options))

    # --- releases ---

    def history(self, release: str, namespace: str) -> list[Release]:
        """The release's revisions, oldest first; [] where there is no such release."""
        command = ["history", release, "--namespace", namespace, "--output", "json"]
        try:
            found = json.loads(self._run(command, release=release))
        except NoRelease:
            return []
        return [
            Release(release, namespace, int(entry["revision"]), entry["status"], entry["chart"], str(entry["updated"]))
            for entry in found
        ]

    def releases(self, namespace: str | None = None) -> list[Release]:
        """The newest revision of every release of the namespace (None: of all), in whatever status."""
        command = ["list", "--output", "json", "--max", "0"]
        for status in ("deployed", "failed", "pending", "superseded", "uninstalling"):
            command.append(f"--{status}")  # `--all` is gone in Helm 4
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

    def objects(self, release: Release) -> list[Object]:
        """The objects of a revision, as they were rendered."""
        command = ["get", "manifest", release.name, "--namespace", release.namespace]
        return load_all(self._run([*command, "--revision", str(release.revision)], release=release.name))

    def values(self, release: Release) -> Object:
        """The values that the user gave for a revision."""
        command = ["get", "values", release.name, "--namespace", release.namespace, "--output", "json"]
        given: Object | None = json.loads(
            self._run([*command, "--revision", str(release.revision)], release=release.name)
        )
        return given or {}

    def install_or_upgrade(
        self, chart: str, release: str, namespace: str, values: Object, *, timeout: float = 300
    ) -> None:
        """Install the chart, or upgrade the release to exactly these values; a failure takes back what was changed.

        What somebody changed by hand in the meantime is overwritten by Helm 4, and in custom resources left by Helm 3.
        `timeout` (s) is for the API server; whether what was made becomes ready is not waited for.
        """
        command = ["upgrade", release, str(charts_dir() / chart), "--install", "--reset-values", "--values", "-"]
        command += ["--namespace", namespace, "--timeout", f"{timeout:.0f}s", "--history-max", "10"]
        if self.major >= 4:
            # `legacy` is how Helm 3 waits, which is: not for custom resources. Helm 4's own watcher would wait for what
            # only Kueue or KubeRay can bring about, and take a release back whose chips are busy.
            command += ["--rollback-on-failure", "--wait=legacy", "--server-side=true", "--force-conflicts"]
        else:
            command += ["--atomic"]
        self._run(command, values, release=release)

    def rollback(self, release: str, namespace: str, revision: int, *, timeout: float = 300) -> None:
        """Bring the objects of `revision` back, as a new revision."""
        command = ["rollback", release, str(revision), "--namespace", namespace, "--timeout", f"{timeout:.0f}s"]
        self._run([*command, "--history-max", "10"], release=release)

    def uninstall(self, release: str, namespace: str, *, timeout: float = 300) -> None:
        """Delete the release's objects, but for those that are annotated to be kept, and the release."""
        command = ["uninstall", release, "--namespace", namespace, "--timeout", f"{timeout:.0f}s"]
        self._run(command, release=release)

    # --- inside ---

    @property
    def major(self) -> int:
        """The major version of Helm; NoHelm for one that Slipway does not know."""
        if not self._major:
            self._major = _wait_for(self._find_major())
        return self._major

    def _run(
        self, arguments: Sequence[str], values: Object | None = None, *, release: str = "", cluster: bool = True
    ) -> str:
        return _wait_for(self._both(list(arguments), values, release, cluster))

    async def _both(self, arguments: list[str], values: Object | None, release: str, cluster: bool) -> str:
        """Run Helm, and beside it ask for its version, once: one after the other would take twice as long.

        Only where nothing can be changed by it: what changes a cluster has asked for the version before.
        """
        if self._major or arguments[0] in ("upgrade", "rollback", "uninstall"):
            self._major = self._major or await self._find_major()
            return await self._command(arguments, values, release, cluster)
        said = asyncio.ensure_future(self._command(arguments, values, release, cluster))
        version = asyncio.ensure_future(self._find_major())
        await asyncio.gather(said, version, return_exceptions=True)
        self._major = version.result()  # first: a Helm that is none explains all else
        return said.result()

    async def _command(self, arguments: list[str], values: Object | None, release: str, cluster: bool) -> str:
        pyhelm3 = _pyhelm3()
        command = pyhelm3.command.Command(executable=self.executable, kubecontext=self._context if cluster else None)
        arguments = [*arguments, "--debug=false"]  # HELM_DEBUG would have it print traces
        try:
            done = await command.run(arguments, None if values is None else json.dumps(values).encode())
        except pyhelm3.errors.Error as error:
            if error.returncode in (126, 127):
                raise NoHelm(f"Helm ({self.executable}) cannot be run.", _INSTALL) from error
            raise from_stderr(error.stderr.decode("utf-8", "replace"), where=self._where, release=release) from error
        return bytes(done).decode("utf-8", "replace")

    async def _find_major(self) -> int:
        pyhelm3 = _pyhelm3()
        command = pyhelm3.command.Command(executable=self.executable)
        try:
            said = await command.run(["version", "--template", "{{.Version}}"])
        except pyhelm3.errors.Error as error:
            why = (error.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
            raise NoHelm(f"Helm ({self.executable}) cannot be run: {why}", _INSTALL) from error
        text = bytes(said).decode("utf-8", "replace").strip()
        match = re.match(r"v?(\d+)\.", text)
        if match is None:
            raise NoHelm(f"{self.executable} is no Helm: asked for its version it says {text[:60]!r}.", _INSTALL)
        if int(match[1]) not in MAJORS:
            raise NoHelm(f"Helm {text.removeprefix('v')} ({self.executable}) is not supported.", _INSTALL)
        _MAJOR_OF[self.executable] = int(match[1])
        return int(match[1])


def _pyhelm3() -> Any:
    """pyhelm3 without its models, whose pydantic takes two thirds of its start-up and which are not used here."""
    from importlib import import_module

    from launcher.k8s import lazy_imports

    lazy_imports.prepare(("pyhelm3",))
    import_module("pyhelm3.errors")  # the first, for the next one takes it from the package
    import_module("pyhelm3.command")
    return import_module("pyhelm3")


def find_helm() -> str:
    """The Helm to use: $SLIPWAY_HELM, else `helm` on the PATH. Raises NoHelm."""
    given = os.environ.get("SLIPWAY_HELM")
    found = shutil.which(given or "helm")
    if found is None:
        missing = f"SLIPWAY_HELM names {given}, which is no program" if given else "There is no helm on the PATH"
        raise NoHelm(f"{missing}; the charts cannot be rendered without it.", _INSTALL)
    return found


def _wait_for[T](task: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine. Ctrl-C reaches Helm first, which ends in order; then this is interrupted too."""
    import logging

    # pyhelm3 logs each command that fails, and Python prints that on stderr where nobody has set up logging.
    log = logging.getLogger("pyhelm3.command")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    return asyncio.run(task)


# --- YAML -------------------------------------------------------------------------------------------------------


def load_all(text: str) -> list[Object]:
    """The objects of a manifest, its scalars read as Helm and Kubernetes read them."""
    import yaml

    return [obj for obj in yaml.load_all(text, Loader=_loader()) if obj]


@cache
def _loader() -> Any:
    """PyYAML's safe loader with go-yaml's idea of plain scalars: 1:30 and 2024-01-01 are text, 1e3 is a number."""
    import yaml

    from launcher.config.values.reader import resolve

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the second where PyYAML was built without libyaml

    # By `type`, for which of the two it extends is known at run time only.
    loader_class: Any = type("Loader", (base,), {"yaml_implicit_resolvers": {}})

    def scalar(loader: Any, node: Any) -> Any:
        text = loader.construct_scalar(node)
        return text if node.style else resolve(text)

    loader_class.add_constructor("tag:yaml.org,2002:str", scalar)
    return loader_class


# --- runs -------------------------------------------------------------------------------------------------------


def run_manifest(plan: LaunchPlan, api_versions: Sequence[str] = ()) -> str:
    """The manifest of a ray-job or job-set run, as Helm prints it: exactly one object, with Helm's comments."""
    return Helm().manifest("run", plan.name, plan.namespace, plan.user.tree, api_versions=api_versions)


def run_object(plan: LaunchPlan, api_versions: Sequence[str] = ()) -> Object:
    """The one object, a RayJob or a JobSet, that the run is; its namespace is set."""
    (obj,) = load_all(run_manifest(plan, api_versions))
    return obj


def run_objects(plans: Sequence[LaunchPlan], api_versions: Sequence[str] = ()) -> list[Object]:
    """`run_object` of each plan, in one call of Helm; the plans' names differ.

    A chart is rendered once per release, and a hundred calls of Helm read it a hundred times. So a chart is put
    together for the occasion, from the very same templates: the manifests as partials, and one that goes over the
    effective values of all runs.
    """
    if len(plans) < 2:
        return [run_object(plan, api_versions) for plan in plans]
    trees = [plan.values.tree for plan in plans]
    shared: Object = {}
    if all(tree["common"] == trees[0]["common"] for tree in trees):  # the table of accelerators is long
        shared = {"common": trees[0]["common"]}
        trees = [{key: value for key, value in tree.items() if key != "common"} for tree in trees]
    runs = [
        {"name": plan.name, "namespace": plan.namespace, "values": tree}
        for plan, tree in zip(plans, trees, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="slipway-sweep-") as folder:
        chart = _sweep_chart(Path(folder))
        try:
            values = {"runs": runs, **shared}
            objects = Helm().template(str(chart), "sweep", "default", values, api_versions=api_versions)
        except RulesBroken:
            # Which raises again, and by then it is known for which run.
            return [run_object(plan, api_versions) for plan in plans]
    by_name = {(obj["metadata"]["namespace"], obj["metadata"]["name"]): obj for obj in objects}
    return [by_name[plan.namespace, plan.name] for plan in plans]


_EACH_RUN = """\
{{- range .Values.runs }}
{{- if not (hasKey .values "common") }}{{ $_ := set .values "common" $.Values.common }}{{ end }}
{{- $release := dict "Name" .name "Namespace" .namespace "Service" $.Release.Service "Revision" 1 }}
{{- $_ := set $release "IsInstall" true }}{{ $_ := set $release "IsUpgrade" false }}
{{- $run := dict "Values" .values "Release" $release "Chart" $.Chart "Capabilities" $.Capabilities }}
{{- $_ := set $run "Template" $.Template }}{{ $_ := set $run "Files" $.Files }}
"""


def _sweep_chart(folder: Path) -> Path:
    """The chart `run` with its manifests as partials and one template for many runs, in `folder`."""
    source = charts_dir() / "run"
    templates = folder / "templates"
    templates.mkdir()
    shutil.copy(source / "Chart.yaml", folder)
    (folder / "charts").mkdir()
    shutil.copytree(source / "charts" / "common", folder / "charts" / "common")
    text = _EACH_RUN
    for file in sorted((source / "templates").iterdir()):
        if file.suffix == ".tpl":
            shutil.copy(file, templates)
        elif file.suffix == ".yaml":
            shutil.copy(file, templates / f"_{file.name}")
            # Helm names a template by chart and path.
            text += f'---\n{{{{ include "run/templates/_{file.name}" $run }}}}\n'
    (templates / "runs.yaml").write_text(text + "{{- end }}\n", encoding="utf-8")
    return folder
