"""The types of the fields that the launcher reads from objects of a cluster, and a check of an object against them.

An API server checks objects against the schemas of their kinds, but an aggregated API server, a CRD of another version
or a schema that keeps unknown fields can return anything. The readers of objects rely on these types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any

from launcher.k8s.objects import parse_time, quantity

type Shape = Callable[[Any], str] | Map | list[Shape] | Mapping[str, Shape]
"""A leaf, which returns what the value must be, or "" if it is that; a Map; a list of one shape; or the keys of an
object. A key that ends with "!" is required. Other keys, and null for an optional key, are accepted."""


class Map:
    """An object with any keys."""

    def __init__(self, values: Shape) -> None:
        self.values = values


def compiled(shape: Shape) -> Callable[[Any], bool]:
    """Return a function that returns whether a value has the shape: `not fault(value, shape)`, but three times faster.

    A list of a thousand runs has some hundred thousand values to check.
    """
    if shape is text:
        return lambda value: isinstance(value, str)
    if isinstance(shape, Map):
        if shape.values is text:  # labels and annotations
            return lambda value: isinstance(value, dict) and set(map(type, value.values())) <= {str}
        of_value = compiled(shape.values)
        return lambda value: isinstance(value, dict) and all(map(of_value, value.values()))
    if isinstance(shape, list):
        of_item = compiled(shape[0])
        return lambda value: isinstance(value, list) and all(map(of_item, value))
    if callable(shape):
        leaf = shape
        return lambda value: not leaf(value)
    required = [key.removesuffix("!") for key in shape if key.endswith("!")]
    check_of = {key.removesuffix("!"): compiled(inner) for key, inner in shape.items()}.get

    def of_object(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for key, each in value.items():
            check = check_of(key)
            if check is not None and each is not None and not check(each):
                return False
        return not required or all(value.get(key) is not None for key in required)

    return of_object


def fault(value: Any, shape: Shape, path: str = "") -> str:
    """Return what is wrong as a clause, "spec.replicas must be a whole number"; "" if the value has the shape.

    The clause does not quote the value, which may be long.
    """
    if isinstance(shape, Map):
        if not isinstance(value, dict):
            return _differs(path, "an object")
        return next(filter(None, (fault(each, shape.values, f"{path}.{key}") for key, each in value.items())), "")
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _differs(path, "a list")
        return next(filter(None, (fault(each, shape[0], f"{path}[{at}]") for at, each in enumerate(value))), "")
    if callable(shape):
        expected = shape(value)
        return _differs(path, expected) if expected else ""
    if not isinstance(value, dict):
        return _differs(path, "an object")
    for key, inner in shape.items():
        name = key.removesuffix("!")
        each = value.get(name)
        if each is None:
            if name != key:
                return f"{path}.{name} is missing".lstrip(".")
        elif found := fault(each, inner, f"{path}.{name}"):
            return found
    return ""


def _differs(path: str, expected: str) -> str:
    return f"{path.lstrip('.') or 'it'} must be {expected}"


# --- leaves -------------------------------------------------------------------------------------------------------


def text(value: Any) -> str:
    return "" if isinstance(value, str) else "text"


def name(value: Any) -> str:
    return "" if isinstance(value, str) and value else "a name"


def flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "a boolean"


def number(value: Any) -> str:
    """A whole number of at most 64 bits."""
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return "" if whole else "a whole number"


def seconds(value: Any) -> str:
    """A duration of at most a thousand years, which can be subtracted from a time."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 31_536_000_000
    return "" if whole else "a number of seconds"


def amount(value: Any) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool) and _is_amount(value):
        return ""
    return "a quantity, such as 4, 500m or 16Gi"


@functools.lru_cache(maxsize=1024)  # the objects of a list repeat most amounts and times
def _is_amount(value: str | float) -> bool:
    try:
        quantity(value)
    except ValueError:
        return False
    return True


def moment(value: Any) -> str:
    """An RFC 3339 time with a zone, which has a place in UTC and can be compared with others."""
    return "" if isinstance(value, str) and _is_moment(value) else "a time, such as 2026-01-31T12:00:00Z"


@functools.lru_cache(maxsize=4096)
def _is_moment(value: str) -> bool:
    try:
        time = parse_time(value)
        return time.tzinfo is not None and 1 <= time.astimezone(UTC).year <= 9998
    except (ValueError, OverflowError):
        return False


# --- objects ------------------------------------------------------------------------------------------------------

_TEXTS = Map(text)
_AMOUNTS = Map(amount)
_META: dict[str, Shape] = {
    "name!": name,
    "namespace": text,
    "uid": text,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "creationTimestamp": moment,
    "deletionTimestamp": moment,
    "deletionGracePeriodSeconds": seconds,
    "finalizers": [text],
    "ownerReferences": [{"kind": text, "name!": text, "uid": text}],
}
_CREATED: dict[str, Shape] = {**_META, "uid!": text, "creationTimestamp!": moment}
_CONDITIONS: Shape = [
    {"type!": text, "status!": text, "reason": text, "message": text, "lastTransitionTime": moment},
]
_TAINTS: Shape = [{"key!": text, "value": text, "effect": text}]
_TOLERATIONS: Shape = [{"key": text, "operator": text, "value": text, "effect": text}]
_RESOURCES: Shape = {"limits": _AMOUNTS, "requests": _AMOUNTS}
_CONTAINERS: Shape = [
    {
        "name!": text,
        "image": text,
        "command": [text],
        "args": [text],
        "resources": _RESOURCES,
        "restartPolicy": text,
        "volumeMounts": [{"mountPath!": text}],
        "env": [{"name!": text}],
        "envFrom": [{"configMapRef": {"name": text}, "secretRef": {"name": text}}],
    }
]
_TERMS: Shape = [{"matchExpressions": [{"key!": text, "operator!": text, "values": [text]}]}]
_POD_SPEC: Shape = {
    "containers!": _CONTAINERS,
    "initContainers": _CONTAINERS,
    "nodeSelector": _TEXTS,
    "nodeName": text,
    "tolerations": _TOLERATIONS,
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _TERMS}}},
    "volumes": [{"persistentVolumeClaim": {"claimName!": text}, "configMap": {"name": text}}],
    "schedulingGates": [{"name": text}],
    "imagePullSecrets": [{"name": text}],
    "resources": _RESOURCES,
    "overhead": _AMOUNTS,
}
_TEMPLATE: Shape = {"metadata": {"labels": _TEXTS, "annotations": _TEXTS}, "spec!": _POD_SPEC}
# A list of runs is read without the specs of their pods.
_LISTED_TEMPLATE: Shape = {"metadata": {"labels": _TEXTS, "annotations": _TEXTS}, "spec": _POD_SPEC}
_STATE: Shape = {
    "waiting": {"reason": text, "message": text},
    "terminated": {"exitCode": number, "reason": text, "message": text},
}
_CONTAINER_STATUSES: Shape = [
    {"name!": text, "image": text, "restartCount": number, "state": _STATE, "lastState": _STATE}
]


def _ray_spec(template: Shape) -> dict[str, Shape]:
    return {
        "rayVersion": text,
        "headGroupSpec!": {"template!": template},
        "workerGroupSpecs": [
            {"groupName": text, "replicas": number, "maxReplicas": number, "numOfHosts": number, "template!": template}
        ],
        "authOptions": {"mode": text, "secretName": text, "enableK8sTokenAuth": flag},
    }


_SERVICE_STATUS: Shape = {
    "rayClusterName": text,
    "trafficRoutedPercent": number,
    "applicationStatuses": Map({"status": text, "message": text}),
    "rayClusterStatus": {"conditions": _CONDITIONS},
}
_QUOTA: Shape = [
    {
        "flavors": [
            {
                "name!": text,
                "resources": [
                    {"name!": text, "nominalQuota": amount, "borrowingLimit": amount, "lendingLimit": amount}
                ],
            }
        ]
    }
]
_USAGE: Shape = [{"name!": text, "resources": [{"name!": text, "total": amount}]}]
_QUEUE_STATUS: Shape = {
    "conditions": _CONDITIONS,
    "pendingWorkloads": number,
    "admittedWorkloads": number,
    "flavorsReservation": _USAGE,
}
_HOOKS: Mapping[str, Shape] = {
    "metadata!": _META,
    "webhooks": [
        {
            "name": text,
            "failurePolicy": text,
            "clientConfig": {"url": text, "caBundle": text, "service": {"namespace": text, "name": text}},
        }
    ],
}

PENDING: Shape = {"metadata!": _META, "priority": number, "positionInClusterQueue": number}
"""A PendingWorkload of Kueue's visibility API."""

SHAPES: Mapping[str, Mapping[str, Shape]] = {
    "RayJob": {
        "metadata!": _CREATED,
        "spec!": {"suspend": flag, "activeDeadlineSeconds": number, "rayClusterSpec": _ray_spec(_LISTED_TEMPLATE)},
        "status": {
            "jobDeploymentStatus": text,
            "jobStatus": text,
            "message": text,
            "reason": text,
            "failed": number,
            "endTime": moment,
            "rayClusterName": text,
            "rayJobInfo": {"startTime": moment},
            "rayClusterStatus": {"conditions": _CONDITIONS},
        },
    },
    "JobSet": {
        "metadata!": _CREATED,
        "spec!": {
            "suspend": flag,
            "replicatedJobs": [
                {
                    "replicas": number,
                    "template!": {
                        "spec!": {
                            "parallelism": number,
                            "activeDeadlineSeconds": number,
                            "template!": _LISTED_TEMPLATE,
                        }
                    },
                }
            ],
        },
        "status": {"restarts": number, "restartsCountTowardsMax": number, "conditions": _CONDITIONS},
    },
    "RayCluster": {
        "metadata!": _META,
        "spec!": {"suspend": flag, **_ray_spec(_TEMPLATE)},
        "status": {
            "state": text,
            "desiredWorkerReplicas": number,
            "head": {"serviceName": text},
            "conditions": _CONDITIONS,
        },
    },
    "RayService": {
        "metadata!": _CREATED,
        "spec!": {
            "serveConfigV2": text,
            "excludeHeadPodFromServeSvc": flag,
            "rayClusterConfig!": {"suspend": flag, **_ray_spec(_TEMPLATE)},
        },
        "status": {
            "conditions": _CONDITIONS,
            "numServeEndpoints": number,
            "observedGeneration": number,
            "activeServiceStatus": _SERVICE_STATUS,
            "pendingServiceStatus": _SERVICE_STATUS,
        },
    },
    "Workload": {
        "metadata!": _CREATED,
        "spec!": {
            "active": flag,
            "priority": number,
            "queueName": text,
            "priorityClassName": text,
            "priorityClassRef": {"name": text},
            "maximumExecutionTimeSeconds": number,
            "podSets": [{"name!": text, "count": number, "template": _TEMPLATE}],
        },
        "status": {
            "conditions": _CONDITIONS,
            "admission": {
                "clusterQueue": text,
                "podSetAssignments": [{"name!": text, "count": number, "flavors": _TEXTS, "resourceUsage": _AMOUNTS}],
            },
            "admissionChecks": [{"name!": text, "state": text, "message": text, "lastTransitionTime": moment}],
            "reclaimablePods": [{"name!": text, "count!": number}],
            "requeueState": {"count": number, "requeueAt": moment},
            "resourceRequests": [{"name!": text, "resources": _AMOUNTS}],
            "accumulatedPastExecutionTimeSeconds": number,
            "schedulingStats": {"evictions": [{"reason": text, "count": number}]},
        },
    },
    "LocalQueue": {
        "metadata!": _META,
        "spec": {"clusterQueue": text, "stopPolicy": text},
        "status": _QUEUE_STATUS,
    },
    "ClusterQueue": {
        "metadata!": _META,
        "spec": {
            "cohortName": text,
            "stopPolicy": text,
            "queueingStrategy": text,
            "resourceGroups": _QUOTA,
            "admissionScope": {"admissionMode": text},
            "preemption": {"withinClusterQueue": text, "reclaimWithinCohort": text},
            "namespaceSelector": {"matchLabels": _TEXTS},
        },
        "status": _QUEUE_STATUS,
    },
    "Cohort": {"metadata!": _META, "spec": {"parentName": text, "resourceGroups": _QUOTA}},
    "ResourceFlavor": {
        "metadata!": _META,
        "spec": {"nodeLabels": _TEXTS, "nodeTaints": _TAINTS, "tolerations": _TOLERATIONS, "topologyName": text},
    },
    "Topology": {"metadata!": _META, "spec": {"levels": [{"nodeLabel!": text}]}},
    "AdmissionCheck": {
        "metadata!": _META,
        "spec": {"controllerName": text},
        "status": {"conditions": _CONDITIONS},
    },
    "WorkloadPriorityClass": {"metadata!": _META, "value": number},
    "Pod": {
        "metadata!": _CREATED,
        "spec!": _POD_SPEC,
        "status": {
            "phase": text,
            "podIP": text,
            "conditions": _CONDITIONS,
            "initContainerStatuses": _CONTAINER_STATUSES,
            "containerStatuses": _CONTAINER_STATUSES,
        },
    },
    "Node": {
        "metadata!": _META,
        "spec": {"taints": _TAINTS, "unschedulable": flag},
        "status": {"allocatable": _AMOUNTS, "conditions": _CONDITIONS},
    },
    "Event": {
        "metadata!": _META,
        "involvedObject": {"kind": text, "name": text, "uid": text},
        "type": text,
        "reason": text,
        "message": text,
        "count": number,
        "series": {"count": number, "lastObservedTime": moment},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "eventTime": moment,
    },
    "Job": {
        "metadata!": _META,
        "spec": {"parallelism": number, "suspend": flag},
        "status": {"conditions": _CONDITIONS},
    },
    "PersistentVolumeClaim": {
        "metadata!": _META,
        "spec": {"storageClassName": text},
        "status": {"phase": text},
    },
    "ResourceQuota": {"metadata!": _META, "status": {"hard": _AMOUNTS, "used": _AMOUNTS}},
    "Secret": {"metadata!": _META, "data": _TEXTS},
    "ConfigMap": {"metadata!": _META, "data": _TEXTS},
    "Deployment": {
        "metadata!": _META,
        "spec!": {"replicas": number, "template!": _TEMPLATE},
        "status": {"conditions": _CONDITIONS, "availableReplicas": number, "readyReplicas": number},
    },
    "EndpointSlice": {"metadata!": _META, "endpoints": [{"conditions": {"ready": flag}}]},
    "MutatingWebhookConfiguration": _HOOKS,
    "ValidatingWebhookConfiguration": _HOOKS,
}
"""The shape of each kind that the launcher reads. Of other kinds, it reads only the metadata."""

OTHER: Mapping[str, Shape] = {"metadata!": _META}


@functools.cache
def checker(kind: str) -> Callable[[Any], bool]:
    """Return a function that returns whether an object of a kind has its shape."""
    return compiled(SHAPES.get(kind, OTHER))
