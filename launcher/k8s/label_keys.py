"""The keys of labels and annotations that the launcher reads or writes: Slipway's own, Kueue's, KubeRay's, JobSet's."""

from __future__ import annotations

# Labels of a run's object and its pods; keys of a Ray job's metadata, too. charts/common sets them.
RUN = "slipway.dev/run"
TEAM = "slipway.dev/team"
SWEEP = "slipway.dev/sweep"

MODEL = "slipway.dev/model"
"""On a RayService of charts/serve and its pods: the name of the release."""

# Annotations of a run's object; keys of a Ray job's metadata, too.
RUN_CONFIG = "slipway.dev/run-config"
"""The run config, as JSON."""
SWEEP_VALUES = "slipway.dev/sweep-values"
"""The values that the sweep varies, as JSON."""
ATTEMPT = "slipway.dev/attempt"
"""The number of the attempt; 1 if missing."""
CANCELLED = "slipway.dev/cancelled"
"""The time at which the run was cancelled (RFC 3339)."""
CANCELLED_FOR = "slipway.dev/cancelled-for"
"""The reason, if launcher cancelled the run automatically."""

# Keys of a Ray job's metadata.
DIGEST = "slipway.dev/digest"
SUBMISSION = "slipway.dev/submission"

RAY_CLIENT = "slipway.dev/ray-client"
"""On the service account of a Ray cluster's clients: the cluster's name. charts/queues sets it."""

RETIRED = "slipway.dev/retired"
"""On a ResourceFlavor that is not in the values any more, but that runs hold. charts/queues sets it."""

PART_OF = "app.kubernetes.io/part-of"
VERSION = "app.kubernetes.io/version"

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
KUEUE_PRIORITY_BOOST = "kueue.x-k8s.io/priority-boost"
KUEUE_JOB_UID = "kueue.x-k8s.io/job-uid"
KUEUE_WORKLOAD = "kueue.x-k8s.io/workload"
"""On a pod, as an annotation: the name of its Workload."""

MAINTENANCE_TIME = "cloud.google.com/scheduled-maintenance-time"

RAY_CLUSTER = "ray.io/cluster"
RAY_NODE_TYPE = "ray.io/node-type"
RAY_GROUP = "ray.io/group"
RAY_HOST = "ray.io/replica-host-index"
RAY_SLICE = "ray.io/worker-group-replica-index"
RAY_ORIGIN = "ray.io/originated-from-crd"

JOB_COMPLETION = "batch.kubernetes.io/job-completion-index"
JOB_SET_JOB = "jobset.sigs.k8s.io/job-index"
JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOB_SET_UID = "jobset.sigs.k8s.io/jobset-uid"
