"""A cache of a cluster's answers. The checks before a sweep is submitted repeat mostly the same requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launcher.k8s.client import Cluster, ClusterError, Kind


class Snapshot:
    """A cluster that receives each read request once. Errors are cached, too."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._answers: dict[tuple[Any, ...], Any] = {}

    @property
    def unreadable(self) -> dict[str, None]:
        return self.cluster.unreadable

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Any:
        return self._once(("get", kind, name, namespace), lambda: self.cluster.get(kind, name, namespace))

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        all_namespaces: bool = False,
        without: Sequence[str] = (),
    ) -> Any:
        return self._once(
            ("list", kind, namespace, labels, fields, all_namespaces, *without),
            lambda: self.cluster.list(
                kind, namespace, labels=labels, fields=fields, all_namespaces=all_namespaces, without=without
            ),
        )

    def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None) -> Any:
        return self.cluster.request(method, path, query=query)

    def _once(self, asked: tuple[Any, ...], ask: Callable[[], Any]) -> Any:
        if asked not in self._answers:
            try:
                self._answers[asked] = ask()
            except ClusterError as error:
                self._answers[asked] = error
        answer = self._answers[asked]
        if isinstance(answer, ClusterError):
            raise answer
        return answer
