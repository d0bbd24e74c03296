"""`launcher install` if Helm or the user ends it at a bad moment: the sentences, and the repairs.

Scripted answers replace Helm and the cluster: these moments cannot be caused. tests/cluster/test_install.py uses both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from launcher.config.values.tree import Values
from launcher.errors import Detached, LauncherError
from launcher.helm import diff
from launcher.helm.client import HelmError, Release, RulesBroken
from launcher.helm.errors import OwnedByAnother
from launcher.k8s.client import NAMESPACE, Cluster, Kind, NoNamespace
from launcher.k8s.target import Target
from launcher.releases import install as releases
from launcher.releases import readiness
from launcher.releases.install import ReleasePlan, _cluster_for, _recovery, default_name

DEPLOYED = Release("queues", "default", 1, "deployed", "queues-0.1.0", "2026-11-01T10:00:00Z")
NEW_NAMESPACE = diff.ObjectChange("Namespace", "research", "", diff.CREATE)


@dataclass
class ScriptedHelm:
    """`fails`: what an install raises. `now`: the history after it; an error if it cannot be read."""

    fails: BaseException | None = None
    now: list[Release] | LauncherError = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def install_or_upgrade(self, *arguments: object, timeout: int) -> list[str]:
        self.calls.append(("install", *arguments[1:3]))
        if self.fails is not None:
            raise self.fails
        return []

    def history(self, name: str, namespace: str) -> list[Release]:
        if isinstance(self.now, LauncherError):
            raise self.now
        return self.now

    def uninstall(self, *arguments: object, timeout: int) -> None:
        self.calls.append(("uninstall", *arguments))

    def rollback(self, *arguments: object, timeout: int) -> None:
        self.calls.append(("rollback", *arguments))


@dataclass
class ScriptedCluster:
    """Has these objects by name. Writes are recorded."""

    objects: dict[str, Any] = field(default_factory=dict)
    written: list[tuple[Any, ...]] = field(default_factory=list)
    name: str = "the context lab"
    namespace: str = "default"
    missing: frozenset[str] = frozenset()

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Any:
        return self.objects.get(name)

    get_unchecked = get

    def delete(self, kind: Kind, name: str, *, uid: str) -> None:
        self.written.append(("delete", kind.kind, name, uid))

    def create(self, obj: Any, *, dry_run: bool) -> None:
        if obj["metadata"].get("namespace") in self.missing:
            raise NoNamespace("There is no namespace.")

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None, *, dry_run: bool) -> Any:
        assert dry_run
        live = self.objects[name]
        return {**live, "spec": {**live["spec"], **patch["spec"]}}


def planned(
    helm: ScriptedHelm, history: list[Release], *changes: diff.ObjectChange, cluster: Any = None, recovery: str = ""
) -> ReleasePlan:
    user = Values.empty()
    cluster = cluster or ScriptedCluster()
    return ReleasePlan(
        "queues", "queues", "default", user, cluster, cast(Any, helm), history, [], list(changes), recovery
    )


@pytest.mark.parametrize(
    ("history", "now", "left"),
    [
        ([DEPLOYED], [DEPLOYED], "Nothing was changed."),
        ([], [], "Nothing was changed."),
        ([replace(DEPLOYED, status="pending-install")], [], "The objects that it created were removed again."),
        ([DEPLOYED], [replace(DEPLOYED, revision=3)], "The release queues has its previous state (revision 3)."),
        (
            [DEPLOYED],
            [DEPLOYED, replace(DEPLOYED, revision=2, status="pending-upgrade")],
            "The release queues has the status pending-upgrade; run the same command to try again.",
        ),
        ([DEPLOYED], LauncherError("The API server does not answer."), "The state of the release queues is unknown."),
    ],
)
def test_a_failed_or_interrupted_install_reports_what_it_left(
    history: list[Release], now: list[Release] | LauncherError, left: str
) -> None:
    helm = ScriptedHelm(HelmError("Helm failed: no reason.", "Try again."), now)
    with pytest.raises(LauncherError) as failed:
        releases.install(planned(helm, history, NEW_NAMESPACE), print)
    assert (failed.value.message, failed.value.hint) == (f"Helm failed: no reason. {left}", "Try again.")
    helm.fails = KeyboardInterrupt()
    with pytest.raises(Detached) as interrupted:
        releases.install(planned(helm, history, NEW_NAMESPACE), print)
    assert str(interrupted.value) == f"Interrupted. {left}"


def test_rules_that_the_chart_reports_only_at_the_install() -> None:
    helm = ScriptedHelm(RulesBroken(["teams: empty.", "queues: empty."]))
    with pytest.raises(LauncherError) as error:
        releases.install(planned(helm, [], NEW_NAMESPACE), print)
    assert error.value.message == "teams: empty.\nqueues: empty."


def test_only_namespaces_that_the_failed_install_created_are_removed() -> None:
    def namespace(release: str, created: str) -> dict[str, Any]:
        annotations = {"meta.helm.sh/release-name": release}
        return {"metadata": {"uid": f"of-{release}", "annotations": annotations, "creationTimestamp": created}}

    later, before = "2999-01-01T00:00:00Z", "2026-11-01T10:00:00Z"
    cluster = ScriptedCluster(
        {"new": namespace("queues", later), "old": namespace("queues", before), "theirs": namespace("other", later)}
    )
    changes = [replace(NEW_NAMESPACE, name=name) for name in ("new", "old", "theirs", "never-created")]
    with pytest.raises(LauncherError):
        releases.install(planned(ScriptedHelm(HelmError("No.")), [], *changes, cluster=cluster), print)
    assert cluster.written == [("delete", NAMESPACE.kind, "new", "of-queues")]


def test_ctrl_c_while_waiting_reports_that_the_release_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(readiness, "wait", interrupted)
    helm = ScriptedHelm()
    with pytest.raises(Detached, match="is installed; run the same command again to see whether it is ready"):
        releases.install(planned(helm, [], NEW_NAMESPACE), print)
    assert helm.calls == [("install", "queues", "default")]


@pytest.mark.parametrize(
    ("history", "sentence", "call"),
    [
        ([DEPLOYED, "uninstalling"], "the remaining objects are removed first.", ("uninstall", "queues", "default")),
        ([DEPLOYED, "pending-upgrade"], "revision 1, the last deployed one, is", ("rollback", "queues", "default", 1)),
        (["pending-install"], "its objects are completed first", ("rollback", "queues", "default", 1)),
    ],
)
def test_the_leftovers_of_a_dead_helm_are_repaired_first(
    history: list[Release | str], sentence: str, call: tuple[Any, ...]
) -> None:
    revisions = [
        each if isinstance(each, Release) else replace(DEPLOYED, revision=number, status=each)
        for number, each in enumerate(history, 1)
    ]
    recovery = _recovery(revisions, recover=False)
    assert sentence in recovery
    helm, messages = ScriptedHelm(), list[str]()
    releases.install(planned(helm, revisions, recovery=recovery), messages.append, seconds=0)
    assert helm.calls == [call, ("install", "queues", "default")]
    assert messages[0] == recovery


def test_a_ray_cluster_without_a_name_and_in_two_namespaces() -> None:
    with pytest.raises(LauncherError, match="The Ray cluster has no name"):
        default_name("ray-cluster", {"run": {}})
    assert default_name("ray-cluster", {"run": {"cluster": "shared"}}) == "shared"
    with pytest.raises(LauncherError, match=r"into the namespace research \(team\), but --namespace is default"):
        _cluster_for("ray-cluster", {"team": {"name": "research"}}, Target(namespace="default"))


# --- the comparison with the cluster ---


def made(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name, "namespace": "default"}, **more}


def compared(cluster: ScriptedCluster, obj: dict[str, Any], owner: diff.Owner | None = None) -> diff.ObjectChange:
    [change] = diff.compare(cast(Cluster, cluster), [obj], owner=owner)
    return change


def test_an_object_of_another_release_is_not_changed() -> None:
    live = made("shared", spec={"suspend": False})
    live["metadata"]["annotations"] = {
        "meta.helm.sh/release-name": "other",
        "meta.helm.sh/release-namespace": "default",
    }
    cluster = ScriptedCluster({"shared": live})
    with pytest.raises(OwnedByAnother, match="RayCluster default/shared already exists in the context lab and belongs"):
        compared(cluster, made("shared", spec={"suspend": True}), diff.Owner("shared", "default"))


def test_workers_that_rays_autoscaler_added_are_not_a_change() -> None:
    def cluster(replicas: int, **more: object) -> dict[str, Any]:
        groups = [{"groupName": "workers", "replicas": replicas, **more}]
        return made("shared", spec={"enableInTreeAutoscaling": True, "workerGroupSpecs": groups})

    live = ScriptedCluster({"shared": cluster(3, scaleStrategy={"workersToDelete": ["a"]})})
    assert compared(live, cluster(1)).action == diff.SAME
    changed = compared(live, cluster(1, maxReplicas=9))
    assert changed.action == diff.CHANGE


def test_an_object_in_a_namespace_that_neither_exists_nor_is_created() -> None:
    cluster = ScriptedCluster(missing=frozenset({"default"}))
    with pytest.raises(NoNamespace):
        compared(cluster, made("shared"))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    changes = diff.compare(cast(Cluster, cluster), [namespace, made("shared")])
    assert [change.action for change in changes] == [diff.CREATE, diff.CREATE]


@pytest.mark.parametrize(
    ("chart", "name"),
    [
        ("slipway-queues-0.5.0", "queues"),
        ("queues-0.4.0", "queues"),  # before 0.5.0, the names had no prefix
        ("slipway-ray-cluster-0.5.0-rc.1+build.2", "ray-cluster"),
        ("slipway-run-1.0.0", "run"),
        ("their-queues-1.0.0", "their-queues"),
    ],
)
def test_the_name_of_a_chart_has_no_prefix_and_no_version(chart: str, name: str) -> None:
    assert replace(DEPLOYED, chart=chart).chart_name == name
