"""For each alert: series that make it fire, and series that do not, with a value each minute in promtool's notation."""

from __future__ import annotations

from dataclasses import dataclass, field

RUN = 'run="llama",team="research",namespace="research"'
OF_RUN = {"run": "llama", "team": "research", "namespace": "research"}
LEASES = {"kueue": "c1f6bfd2.kueue.x-k8s.io", "jobset": "6d4f6a47.jobset.x-k8s.io", "kuberay": "ray-operator-leader"}
"""The leases of Kueue 0.19.2, JobSet 0.12.0 and KubeRay 1.7.0 (tests/upstream/recordings/metrics)."""

Series = dict[str, str]


@dataclass(frozen=True)
class Case:
    """`at` is when the alert fires, with `labels` in addition to its own, and with `value` in its sentences."""

    alert: str
    at: str
    fires: Series
    quiet: Series
    labels: dict[str, str] = field(default_factory=dict)
    value: str = ""


def leaders(*names: str, value: str = "1x30") -> Series:
    return {f'leader_election_master_status{{name="{LEASES[name]}"}}': value for name in names}


def policies(count: str, bindings: str = "9x30") -> Series:
    """Return what the API server of Kubernetes 1.34 and later serves."""
    group = 'apiserver_resource_objects{group="admissionregistration.k8s.io",resource="validatingadmissionpolic'
    return {f'{group}ies"}}': count, f'{group}ybindings"}}': bindings}


_QUEUE = 'cluster_queue="blue",replica_role="leader"'
_STATUS = f'kueue_cluster_queue_status{{{_QUEUE},status="active"}}'
_WAITED, _WAITS = (
    f'kueue_admission_wait_time_seconds_{part}{{{_QUEUE},priority_class="high"}}' for part in ("sum", "count")
)
_PENDING = f'kueue_pending_workloads{{{_QUEUE},status="active"}}'
_ADMITTED = f'kueue_admitted_workloads_total{{{_QUEUE},priority_class="high"}}'
_PROGRESS = f"slipway_last_progress_timestamp_seconds{{{RUN}}}"
_STEPPED, _STEPS = (f"slipway_step_duration_seconds_{part}{{{RUN}}}" for part in ("sum", "count"))
_FORECAST = f"slipway_forecast_step_seconds{{{RUN}}}"
_SAVED = f"slipway_last_checkpoint_timestamp_seconds{{{RUN}}}"
_PRODUCTIVE = f"slipway_productive_seconds{{{RUN}}}"
_ELAPSED = f"slipway_elapsed_seconds{{{RUN}}}"
_SIZE = f"slipway_storage_size_bytes{{{RUN}}}"
_OLD_NAME = 'apiserver_storage_objects{resource="validatingadmissionpolicybindings.admissionregistration.k8s.io"}'
_AVAILABLE = f"slipway_storage_available_bytes{{{RUN}}}"

CASES = (
    Case("SlipwayQueueNotActive", "20m", {_STATUS: "0x30"}, {_STATUS: "1x30"}, {"cluster_queue": "blue"}),
    # A queue that is inactive for a short time.
    Case("SlipwayQueueNotActive", "20m", {_STATUS: "1x2 0x30"}, {_STATUS: "0x2 1x2 0x30"}, {"cluster_queue": "blue"}),
    Case(
        "SlipwayWaitTooLong",
        "65m",
        {_WAITED: "0+20000x70", _WAITS: "0+1x70"},
        {_WAITED: "0+14000x70", _WAITS: "0+1x70"},
        {"cluster_queue": "blue"},
        "5h 33m 20s",
    ),
    Case(
        "SlipwayNothingAdmitted",
        "250m",
        {_PENDING: "3x300", _ADMITTED: "5x300"},
        {_PENDING: "3x300", _ADMITTED: "5x100 6x200"},
        {"cluster_queue": "blue"},
        "3",
    ),
    Case("SlipwayRunNotStepping", "31m", {_PROGRESS: "0x60"}, {_PROGRESS: "0x4 300x60"}, OF_RUN, "31m 0s"),
    Case(
        "SlipwayStepTimeAboveForecast",
        "45m",
        {_STEPPED: "0+60x60", _STEPS: "0+30x60", _FORECAST: "1x60"},
        {_STEPPED: "0+60x60", _STEPS: "0+30x60", _FORECAST: "1.75x60"},
        OF_RUN,
        "2",
    ),
    Case("SlipwayCheckpointTooOld", "121m", {_SAVED: "0x200"}, {_SAVED: "0x10 600x200"}, OF_RUN, "2h 1m 0s"),
    Case(
        "SlipwayGoodputLow",
        "375m",
        {_PRODUCTIVE: "0+30x400", _ELAPSED: "0+60x400"},
        {_PRODUCTIVE: "0+50x400", _ELAPSED: "0+60x400"},
        OF_RUN,
        "50%",
    ),
    # A run that began an hour ago has no share of the last hours yet.
    Case(
        "SlipwayGoodputLow",
        "375m",
        {_PRODUCTIVE: "0x400", _ELAPSED: "0+60x400"},
        {_PRODUCTIVE: "_x300 0x100", _ELAPSED: "_x300 0+60x100"},
        OF_RUN,
        "0%",
    ),
    Case(
        "SlipwayStorageNearlyFull",
        "10m",
        {_AVAILABLE: "5x20", _SIZE: "100x20"},
        {_AVAILABLE: "11x20", _SIZE: "100x20"},
        OF_RUN,
        "5%",
    ),
    *(
        Case(
            "SlipwayControllerDown",
            "15m",
            leaders(*(set(LEASES) - {name})),
            leaders(*LEASES),
            {"controller": name},
        )
        for name in LEASES
    ),
    # The process serves metrics, but has no lease.
    Case(
        "SlipwayControllerDown",
        "15m",
        leaders("jobset", "kuberay") | leaders("kueue", value="0x30"),
        leaders(*LEASES),
        {"controller": "kueue"},
    ),
    Case(
        "SlipwayPolicyMissing",
        "10m",
        policies("2x30"),
        policies("3x30"),
        {"resource": "validatingadmissionpolicies"},
        "2",
    ),
    # There are policies of others, and one was removed.
    Case(
        "SlipwayPolicyMissing",
        "20m",
        policies("8x10 7x20"),
        policies("7x10 8x20"),
        {"resource": "validatingadmissionpolicies"},
        "7",
    ),
    # The name of the series in older versions of Kubernetes, and on GKE.
    Case(
        "SlipwayPolicyMissing",
        "10m",
        {_OLD_NAME: "1x30"},
        {_OLD_NAME: "3x30"},
        {"resource": "validatingadmissionpolicybindings"},
        "1",
    ),
)
