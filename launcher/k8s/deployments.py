"""Deployments as typed values, with the template of their pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from launcher.k8s.objects import ApiObject, Object


@dataclass(frozen=True, slots=True)
class ContainerTemplate:
    """A container of the template, without what it inherits from its image."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]


class Deployment(ApiObject):
    """A Deployment."""

    @property
    def available(self) -> int:
        """The number of its pods that are available."""
        return self.status.get("availableReplicas") or 0

    @property
    def scaled_to_zero(self) -> bool:
        return bool(self.spec.get("replicas") == 0)

    @property
    def pod_labels(self) -> Mapping[str, str]:
        return (self._template.get("metadata") or {}).get("labels") or {}

    @cached_property
    def containers(self) -> tuple[ContainerTemplate, ...]:
        return tuple(
            ContainerTemplate(
                entry.get("image") or "", tuple(entry.get("command") or ()), tuple(entry.get("args") or ())
            )
            for entry in (self._template.get("spec") or {}).get("containers") or ()
        )

    @property
    def config_maps(self) -> list[str]:
        """The names of the ConfigMaps that its pods mount."""
        volumes = (self._template.get("spec") or {}).get("volumes") or ()
        names = ((volume.get("configMap") or {}).get("name") for volume in volumes)
        return [name for name in names if name]

    @property
    def _template(self) -> Object:
        return self.spec.get("template") or {}
