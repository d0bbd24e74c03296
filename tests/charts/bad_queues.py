"""Values of flavors, quota and sharing that the rules of charts/queues reject, with the sentence, and accepted ones."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """Values on top of BASE that the chart rejects with this sentence, and similar values that it accepts."""

    invalid: str
    message: str
    valid: str


def many_flavors(count: int) -> str:
    """Return values with `count` more cpu flavors, all in the quota of one queue."""
    flavors = ", ".join(f"f{number}: {{accelerator: cpu}}" for number in range(count))
    quota = ", ".join(f"f{number}: {{cpu: '1', memory: 1Gi}}" for number in range(count))
    return f"{{flavors: {{{flavors}}}, clusterQueues: {{product: {{quota: {{{quota}}}}}}}}}"


FLAVORS = [
    Case(
        "flavors: {v6e-4x4: {accelerator: v9}}",
        'flavors.v6e-4x4.accelerator: unknown accelerator "v9"; use one of a100-40gb, a100-80gb, b200, cpu, '
        "h100-80gb, h100-mega, h200, l4, tpu7x, v4, v5e, v5p, v6e, or add it to common.accelerators.",
        "flavors: {v6e-4x4: {accelerator: v5e}}",
    ),
    Case(
        "flavors: {v6e-4x4: {topology: 3x3}}",
        'flavors.v6e-4x4.topology: "3x3" is not a topology of v6e; use 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16.',
        "flavors: {v6e-4x4: {topology: 8x8}}",
    ),
    Case(
        "flavors: {v6e-4x4: {topology: null}}",
        "flavors.v6e-4x4.topology: a v6e slice requires a topology: 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16.",
        "flavors: {v6e-4x4: {topology: 2x2}}",
    ),
    Case(
        "flavors: {v6e-4x4: {hosts: 4}}",
        "flavors.v6e-4x4.hosts: the topology of a v6e slice determines its hosts; remove flavors.v6e-4x4.hosts.",
        "flavors: {v6e-4x4: {hosts: 0}}",
    ),
    Case(
        "flavors: {v6e-4x4: {machineType: ct6e-standard-8t}}",
        'flavors.v6e-4x4.machineType: "ct6e-standard-8t" is not a machine type of a v6e slice of 4x4; use '
        "ct6e-standard-4t.",
        "flavors: {v6e-4x4: {machineType: ct6e-standard-4t}}",
    ),
    Case(
        "flavors: {cpu: {topology: 2x2}}",
        "flavors.cpu.topology: a cpu flavor is counted in cpu and memory, not in slices; remove this key.",
        "flavors: {cpu: {topology: ''}}",
    ),
    Case(
        "flavors: {cpu: {hosts: 3}}",
        "flavors.cpu.hosts: a cpu flavor is counted in cpu and memory, not in slices; remove this key.",
        "flavors: {cpu: {hosts: 0}}",
    ),
    Case(
        "flavors: {cpu: {machineType: n2-standard-8}}",
        "flavors.cpu.machineType: a cpu flavor is counted in cpu and memory, not in slices; remove this key.",
        "flavors: {cpu: {machineType: ''}}",
    ),
    Case(
        "flavors: {v6e-4x4: {provisioning: reservation}}",
        "flavors.v6e-4x4.provisioning is reservation; flavors.v6e-4x4.reservation must name it.",
        "flavors: {v6e-4x4: {provisioning: reservation, reservation: spring}}",
    ),
    Case(
        "flavors: {v6e-4x4: {provisioning: reservation, reservation: projects/p/reservations/r}}",
        'flavors.v6e-4x4.reservation: "projects/p/reservations/r" is a path; write only the reservation\'s name, and '
        "its project in flavors.v6e-4x4.nodeLabels (cloud.google.com/reservation-project: PROJECT).",
        "flavors: {v6e-4x4: {provisioning: reservation, reservation: r}}",
    ),
    Case(
        "flavors: {v6e-4x4: {reservation: spring}}",
        "flavors.v6e-4x4.reservation requires flavors.v6e-4x4.provisioning: reservation; it is on-demand.",
        "flavors: {v6e-4x4: {provisioning: reservation, reservation: spring}}",
    ),
    Case(
        "flavors: {v6e-4x4: {provisioning: reservation, reservation: My Spring}}",
        'flavors.v6e-4x4.reservation: "My Spring" is not a valid Kubernetes name; use at most 63 lowercase letters, '
        "digits and hyphens, with no hyphen at either end.",
        "flavors: {v6e-4x4: {provisioning: reservation, reservation: my-spring}}",
    ),
    Case(
        "flavors: {v6e-4x4: {anyRun: true}}",
        "flavors.v6e-4x4.anyRun applies only to spot and flex-start, which runs must request; any run can use "
        "on-demand.",
        "flavors: {v6e-4x4: {anyRun: true, provisioning: spot}}",
    ),
    Case(
        "flavors: {V6E: {accelerator: v6e, topology: 4x4}}",
        'flavors.V6E: "V6E" is not a valid Kubernetes name; use lowercase letters, digits and hyphens, with no '
        "hyphen at either end.",
        "flavors: {v6e: {accelerator: v6e, topology: 4x4}}",
    ),
    Case(
        f"flavors: {{{'f' * 64}: {{accelerator: cpu}}}}",
        f'flavors.{"f" * 64}: "{"f" * 64}" has 64 characters; the name can have at most 63.',
        f"flavors: {{{'f' * 63}: {{accelerator: cpu}}}}",
    ),
    Case(
        f"flavors: {{{'f' * 55}: {{accelerator: cpu, versioned: true}}}}",
        f'flavors.{"f" * 55}: "{"f" * 55}" has 55 characters; the name can have at most 54.',
        f"flavors: {{{'f' * 54}: {{accelerator: cpu, versioned: true}}}}",
    ),
    Case(
        "flavors: {v6e-4x4: {hostCpu: '180'}}",
        "flavors.v6e-4x4.hostCpu requires flavors.v6e-4x4.hostMemory.",
        "flavors: {v6e-4x4: {hostCpu: '180', hostMemory: 700Gi}}",
    ),
    Case(
        "flavors: {v6e-4x4: {hostMemory: 700Gi}}",
        "flavors.v6e-4x4.hostMemory requires flavors.v6e-4x4.hostCpu.",
        "flavors: {v6e-4x4: {hostCpu: '180', hostMemory: 700Gi}}",
    ),
    Case(
        "flavors: {v6e-4x4: {hostCpu: many, hostMemory: 700Gi}}",
        'flavors.v6e-4x4.hostCpu: "many" is not a valid amount; write it like 64 or 500m.',
        "flavors: {v6e-4x4: {hostCpu: '180', hostMemory: 700Gi}}",
    ),
    Case(
        "flavors: {v6e-4x4: {hostCpu: '181', hostMemory: 700Gi}}",
        "flavors.v6e-4x4.hostCpu: 181 is more than the 180 vCPUs of a ct6e-standard-4t, and pods get less; lower it.",
        "flavors: {v6e-4x4: {hostCpu: '180', hostMemory: 700Gi}}",
    ),
    Case(
        "flavors: {v6e-4x4: {hostCpu: 179500m, hostMemory: 0.8Ti}}",
        "flavors.v6e-4x4.hostMemory: 0.8Ti is more than the 720Gi of a ct6e-standard-4t, and pods get less; lower it.",
        "flavors: {v6e-4x4: {hostCpu: 179500m, hostMemory: 0.7Ti}}",
    ),
    Case(
        "flavors: {v6e-4x4: {hostCpu: '180', hostMemory: 700m}}",
        'flavors.v6e-4x4.hostMemory: "700m" is less than 1 MiB; without a unit it is in bytes, and m is a thousandth. '
        "Write it like 256Gi.",
        "flavors: {v6e-4x4: {hostCpu: '180', hostMemory: 700Mi}}",
    ),
    Case(
        "flavors: {cpu: {hostCpu: '8', hostMemory: 32Gi}}",
        "flavors.cpu.hostCpu: the quota of a cpu flavor is in clusterQueues.NAME.quota.NAME.cpu and .memory; remove "
        "this key.",
        "flavors: {cpu: {hostCpu: ''}}",
    ),
    Case(
        "flavors: {v6e-4x4: {topologyName: racks}}",
        'flavors.v6e-4x4.topologyName: unknown topology "racks" (available in topologies: no entries).',
        "{flavors: {v6e-4x4: {topologyName: racks}}, topologies: {racks: {levels: [kubernetes.io/hostname]}}}",
    ),
    Case(
        "{flavors: {spare: {accelerator: cpu, topologyName: racks}}, topologies: {racks: {levels: [x/rack]}}}",
        "flavors.spare.topologyName requires at least one label in flavors.spare.nodeLabels; Kueue finds the nodes "
        "by these labels.",
        "{flavors: {spare: {accelerator: cpu, topologyName: racks, nodeLabels: {a: b}}}, "
        "topologies: {racks: {levels: [x/rack]}}}",
    ),
    Case(
        "flavors: {v6e-4x4: {nodeLabels: {a b: c}}}",
        "flavors.v6e-4x4.nodeLabels: a b=c is not a valid node label; write it like "
        "cloud.google.com/gke-nodepool=pool-1.",
        "flavors: {v6e-4x4: {nodeLabels: {a: c}}}",
    ),
    Case(
        "flavors: {v6e-4x4: {nodeLabels: {a: '', b: '', c: '', d: '', e: '', f: '', g: ''}}}",
        "flavors.v6e-4x4.nodeLabels: the flavor has 9, with those that follow from its machines; Kueue accepts at "
        "most 8.",
        "flavors: {v6e-4x4: {nodeLabels: {a: '', b: '', c: '', d: '', e: '', f: ''}}}",
    ),
    Case(
        "flavors: {v6e-4x4: {tolerations: {a: {key: a, operator: Exists, value: b}}}}",
        "flavors.v6e-4x4.tolerations.a: operator Exists takes no value; remove one of them.",
        "flavors: {v6e-4x4: {tolerations: {a: {key: a, operator: Equal, value: b}}}}",
    ),
]

QUOTAS = [
    Case(
        "clusterQueues: {product: {quota: null}}",
        "clusterQueues.product.quota is empty; add a flavor and its slices, such as {v6e-4x4: {slices: 4}}.",
        "clusterQueues: {product: {quota: {v6e-4x4: {slices: 1}}}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {v5e: {slices: 1}}}}",
        'clusterQueues.product.quota.v5e: unknown flavor "v5e" (available in flavors: cpu, v6e-4x4).',
        "{flavors: {v5e: {accelerator: v5e, topology: 2x4}}, clusterQueues: {product: {quota: {v5e: {slices: 1}}}}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {v6e-4x4: {slices: null}}}}",
        "clusterQueues.product.quota.v6e-4x4.slices is missing; set it to the number of slices of 16 chips.",
        "clusterQueues: {product: {quota: {v6e-4x4: {slices: 1}}}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {v6e-4x4: {slices: 0}}}}",
        "clusterQueues.product.quota.v6e-4x4.slices is 0 and the queue cannot borrow, so no run would ever start; "
        "set it to at least 1.",
        "clusterQueues: {product: {cohort: all, quota: {v6e-4x4: {slices: 0}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {v6e-4x4: {slices: 0, borrowing: 0}}}}",
        "clusterQueues.research.quota.v6e-4x4.slices is 0 and the queue cannot borrow, so no run would ever start; "
        "set it to at least 1.",
        "clusterQueues: {research: {quota: {v6e-4x4: {slices: 0, borrowing: 1}}}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {v6e-4x4: {borrowing: 1}}}}",
        "clusterQueues.product.quota.v6e-4x4.borrowing requires clusterQueues.product.cohort, the cohort to borrow "
        "from.",
        "clusterQueues: {product: {cohort: all, quota: {v6e-4x4: {borrowing: 1}}}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {v6e-4x4: {lending: 1}}}}",
        "clusterQueues.product.quota.v6e-4x4.lending requires clusterQueues.product.cohort, the cohort to lend to.",
        "clusterQueues: {product: {cohort: all, quota: {v6e-4x4: {lending: 1}}}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {cpu: {cpuBorrowing: '1'}}}}",
        "clusterQueues.product.quota.cpu.cpuBorrowing requires clusterQueues.product.cohort, the cohort to borrow "
        "from.",
        "clusterQueues: {product: {cohort: all, quota: {cpu: {cpuBorrowing: '1'}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {v6e-4x4: {lending: 5}}}}",
        "clusterQueues.research.quota.v6e-4x4.lending is 5; it must be at most slices, which is 4.",
        "clusterQueues: {research: {quota: {v6e-4x4: {lending: 4}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {cpu: {cpuLending: 41000m}}}}",
        "clusterQueues.research.quota.cpu.cpuLending is 41000m; it must be at most cpu, which is 40.",
        "clusterQueues: {research: {quota: {cpu: {cpuLending: 40000m}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {cpu: {memoryLending: 1Ti}}}}",
        "clusterQueues.research.quota.cpu.memoryLending is 1Ti; it must be at most memory, which is 80Gi.",
        "clusterQueues: {research: {quota: {cpu: {memoryLending: 81920Mi}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {cpu: {cpu: 1.5, cpuLending: 1501m, memory: 1Ti, memoryLending: 16.7Gi}}}}",
        "clusterQueues.research.quota.cpu.cpuLending is 1501m; it must be at most cpu, which is 1.5.",
        "clusterQueues: {research: {quota: {cpu: {cpu: 1.5, cpuLending: '1.50', memory: 0.5Ti, memoryLending: 1e9}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {cpu: {cpu: '-1'}}}}",
        "clusterQueues.research.quota.cpu.cpu is -1; it cannot be negative.",
        "clusterQueues: {research: {quota: {cpu: {cpu: '1'}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {cpu: {memory: 80GB}}}}",
        'clusterQueues.research.quota.cpu.memory: "80GB" is not a valid amount; write it like 256Gi.',
        "clusterQueues: {research: {quota: {cpu: {memory: 80G}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {cpu: {memory: 100m}}}}",
        'clusterQueues.research.quota.cpu.memory: "100m" is less than 1 MiB; without a unit it is in bytes, and m is a '
        "thousandth. Write it like 256Gi.",
        "clusterQueues: {research: {quota: {cpu: {memory: 1Mi}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {cpu: {memoryBorrowing: 64}}}}",
        'clusterQueues.research.quota.cpu.memoryBorrowing: "64" is less than 1 MiB; without a unit it is in bytes, '
        "and m is a thousandth. Write it like 256Gi.",
        "clusterQueues: {research: {quota: {cpu: {memoryBorrowing: 0}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {cpu: {memory: null}}}}",
        "clusterQueues.research.quota.cpu.memory is missing; heads and hosts take memory from it; write it like 256Gi.",
        "clusterQueues: {research: {quota: {cpu: {memory: 1Gi}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {cpu: {slices: 1}}}}",
        "clusterQueues.research.quota.cpu.slices: a cpu flavor is counted in cpu and memory, not in slices; remove "
        "this key.",
        "clusterQueues: {research: {quota: {cpu: {cpu: '1'}}}}",
    ),
    Case(
        "clusterQueues: {research: {quota: {v6e-4x4: {cpu: '8'}}}}",
        "clusterQueues.research.quota.v6e-4x4.cpu: a flavor with chips is counted in slices; for the cpu and memory "
        "of its hosts, set hostCpu and hostMemory of the flavor.",
        "flavors: {v6e-4x4: {hostCpu: '8', hostMemory: 1Gi}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {cpu: null}}}",
        "clusterQueues.product.quota contains only chips, so a run that requests cpu or memory, as every Ray head "
        "does, would never start; add a flavor with accelerator: cpu, or set clusterQueues.product.chipsAlone: true.",
        "clusterQueues: {product: {chipsAlone: true, quota: {cpu: null}}}",
    ),
    Case(
        "clusterQueues: {product: {chipsAlone: true}}",
        "clusterQueues.product.chipsAlone is true, but clusterQueues.product.quota has the cpu flavor cpu; remove "
        "one of them.",
        "clusterQueues: {product: {chipsAlone: false}}",
    ),
    Case(
        "{flavors: {cpu: {nodeLabels: {pool: heads}}}, clusterQueues: {product: null}, teams: {product: null}}",
        "clusterQueues.research.quota.cpu: hosts with chips also take cpu and memory from this flavor, and its node "
        "labels or taints would keep them off their nodes; remove the labels and taints of flavors.cpu, or set "
        "hostCpu and hostMemory of the flavors with chips.",
        "flavors: {cpu: {nodeLabels: {pool: heads}}, v6e-4x4: {hostCpu: '180', hostMemory: 700Gi}}",
    ),
    Case(
        "{flavors: {v5e: {accelerator: v5e, topology: 2x4, hostCpu: '1', hostMemory: 1Gi}}, "
        "clusterQueues: {product: {quota: {v5e: {slices: 1}}}}}",
        "clusterQueues.product.quota: only v5e has hostCpu and hostMemory; in one quota, all flavors with chips or "
        "none must have them.",
        "{flavors: {v5e: {accelerator: v5e, topology: 2x4}}, clusterQueues: {product: {quota: {v5e: {slices: 1}}}}}",
    ),
    Case(
        many_flavors(63),
        "clusterQueues.product.quota has 65 flavors; Kueue accepts at most 64.",
        many_flavors(62),
    ),
    Case(
        "clusterQueues: {product: {quota: {cpu: {resources: {cpu: '1'}}}}}",
        'clusterQueues.product.quota.cpu.resources: "cpu" is not the name of another resource; write it like '
        "ephemeral-storage.",
        "clusterQueues: {product: {quota: {cpu: {resources: {ephemeral-storage: 2Ti}}}}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {cpu: {resources: {ephemeral-storage: much}}}}}",
        'clusterQueues.product.quota.cpu.resources: ephemeral-storage: "much" is not a valid amount; write it like 500 '
        "or 256Gi.",
        "clusterQueues: {product: {quota: {cpu: {resources: {example.com/nic: '8'}}}}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {cpu: {resources: {ephemeral-storage: 500m}}}}}",
        'clusterQueues.product.quota.cpu.resources: ephemeral-storage: "500m" is less than 1 MiB; without a unit it is '
        "in bytes, and m is a thousandth. Write it like 256Gi.",
        "clusterQueues: {product: {quota: {cpu: {resources: {example.com/gpu-memory: '80'}}}}}",
    ),
    Case(
        "resourceQuota: {requests.storage: '32'}",
        'resourceQuota: requests.storage: "32" is less than 1 MiB; without a unit it is in bytes, and m is a '
        "thousandth. Write it like 256Gi.",
        "resourceQuota: {requests.storage: '0', slow.storageclass.storage.k8s.io/persistentvolumeclaims: '5'}",
    ),
    Case(
        "limitRange: {Container: {max: {memory: 600m}}}",
        'limitRange.Container.max: memory: "600m" is less than 1 MiB; without a unit it is in bytes, and m is a '
        "thousandth. Write it like 256Gi.",
        "limitRange: {Container: {max: {memory: 600Gi, cpu: 600m}}}",
    ),
    Case(
        "clusterQueues: {product: {quota: {v6e-4x4: {resources: {ephemeral-storage: 2Ti}}}}}",
        "clusterQueues.product.quota.v6e-4x4.resources: a flavor with chips is counted in slices; for the cpu and "
        "memory of its hosts, set hostCpu and hostMemory of the flavor.",
        "clusterQueues: {product: {quota: {cpu: {resources: {ephemeral-storage: 2Ti}}}}}",
    ),
    Case(
        "{flavors: {v6e-4x4: {hostCpu: '100', hostMemory: 400Gi}},"
        " clusterQueues: {product: {quota: {cpu: {resources: {ephemeral-storage: 2Ti}}}}}}",
        "clusterQueues.product.quota.cpu.resources: the hosts of v6e-4x4 take all resources from that flavor (hostCpu, "
        "hostMemory), which has none of these; remove this key.",
        "flavors: {v6e-4x4: {hostCpu: '100', hostMemory: 400Gi}}",
    ),
]

SHARING = [
    Case(
        "clusterQueues: {product: {cohort: some}}",
        'clusterQueues.product.cohort: unknown cohort "some" (available in cohorts: all).',
        "clusterQueues: {product: {cohort: all}}",
    ),
    Case(
        "clusterQueues: {product: {fairWeight: 2}}",
        "clusterQueues.product.fairWeight is the queue's share of a cohort; it requires clusterQueues.product.cohort.",
        "clusterQueues: {product: {cohort: all, fairWeight: 2}}",
    ),
    Case(
        "cohorts: {all: {parent: company}}",
        'cohorts.all.parent: unknown cohort "company" (available in cohorts: all).',
        "cohorts: {all: {parent: company}, company: {}}",
    ),
    Case(
        "cohorts: {all: {parent: all}}",
        "cohorts.all.parent: the parents of the cohorts form a cycle (all, all); remove one parent.",
        "cohorts: {all: {parent: ''}}",
    ),
    Case(
        "cohorts: {all: {parent: b}, b: {parent: c}, c: {parent: all}, d: {parent: c}}",
        "cohorts.all.parent: the parents of the cohorts form a cycle (all, b, c, all); remove one parent.",
        "cohorts: {all: {parent: b}, b: {parent: c}, c: {}, d: {parent: c}}",
    ),
    Case(
        "cohorts: {all: {fairWeight: 2}}",
        "cohorts.all.fairWeight is the cohort's share of its parent; it requires cohorts.all.parent.",
        "cohorts: {all: {fairWeight: 2, parent: b}, b: {}}",
    ),
    Case(
        "cohorts: {all: {quota: {v6e-4x4: {slices: 1, borrowing: 1}}}}",
        "cohorts.all.quota.v6e-4x4.borrowing requires cohorts.all.parent, the cohort to borrow from.",
        "cohorts: {all: {parent: b, quota: {v6e-4x4: {slices: 1, borrowing: 1}}}, b: {}}",
    ),
    Case(
        "cohorts: {all: {quota: {v5p: {slices: 1}}}}",
        'cohorts.all.quota.v5p: unknown flavor "v5p" (available in flavors: cpu, v6e-4x4).',
        "cohorts: {all: {quota: {v6e-4x4: {slices: 1}}}}",
    ),
    Case(
        "cohorts: {All: {}}",
        'cohorts.All: "All" is not a valid Kubernetes name; use lowercase letters, digits and hyphens, with no '
        "hyphen at either end.",
        "cohorts: {al: {}}",
    ),
    Case(
        "clusterQueues: {-product: {create: false}}",
        'clusterQueues.-product: "-product" is not a valid Kubernetes name; use lowercase letters, digits and '
        "hyphens, with no hyphen at either end.",
        "clusterQueues: {pro-duct: {create: false}}",
    ),
    Case(
        "{priorities: {low: {value: 0}, normal: {value: 0}, high: {value: 0}}, "
        "clusterQueues: {product: {preemption: {withinClusterQueue: LowerPriority}}}}",
        "clusterQueues.product.preemption.withinClusterQueue is LowerPriority, but all runs have the same priority; "
        "add an entry whose value is not 0 to priorities.",
        "{priorities: {low: {value: 0}, normal: {value: 0}, high: {value: 0}}, "
        "clusterQueues: {product: {preemption: {withinClusterQueue: LowerOrNewerEqualPriority}}}}",
    ),
    Case(
        "clusterQueues: {product: {preemption: {borrowWithinCohort: LowerPriority, reclaimWithinCohort: Any}}}",
        "clusterQueues.product.preemption.borrowWithinCohort requires clusterQueues.product.cohort, the cohort to "
        "borrow from.",
        "clusterQueues: {research: {preemption: {borrowWithinCohort: LowerPriority, reclaimWithinCohort: Any}}}",
    ),
    Case(
        "clusterQueues: {research: {preemption: {borrowWithinCohort: LowerPriority}}}",
        "clusterQueues.research.preemption.borrowWithinCohort is LowerPriority; this requires LowerPriority or Any "
        "in clusterQueues.research.preemption.reclaimWithinCohort.",
        "clusterQueues: {research: {preemption: {borrowWithinCohort: LowerPriority, reclaimWithinCohort: "
        "LowerPriority}}}",
    ),
    Case(
        "clusterQueues: {research: {preemption: "
        "{borrowWithinCohort: LowerPriority, reclaimWithinCohort: Any, maxPriorityThreshold: urgent}}}",
        'clusterQueues.research.preemption.maxPriorityThreshold: unknown priority "urgent" (available in priorities: '
        "high, low, normal).",
        "clusterQueues: {research: {preemption: "
        "{borrowWithinCohort: LowerPriority, reclaimWithinCohort: Any, maxPriorityThreshold: low}}}",
    ),
    Case(
        "clusterQueues: {research: {preemption: {maxPriorityThreshold: low}}}",
        "clusterQueues.research.preemption.maxPriorityThreshold limits which runs borrowing preempts; it requires "
        "clusterQueues.research.preemption.borrowWithinCohort: LowerPriority.",
        "clusterQueues: {research: {preemption: {maxPriorityThreshold: ''}}}",
    ),
    Case(
        "priorities: {low: {pods: true, globalDefault: true}, high: {pods: true, globalDefault: true}}",
        "priorities: globalDefault is set for high and low; a cluster can have only one default.",
        "priorities: {low: {pods: true, globalDefault: true}, high: {pods: true}}",
    ),
    Case(
        "priorities: {low: {globalDefault: true}}",
        "priorities.low.globalDefault applies only to PriorityClasses; set priorities.low.pods: true, or remove "
        "globalDefault.",
        "priorities: {low: {pods: true, globalDefault: true}}",
    ),
    Case(
        "priorities: {high: {pods: true, value: 1000000001}}",
        "priorities.high.value is 1000000001; the value of a PriorityClass can be at most 1000000000.",
        "priorities: {high: {pods: true, value: 1000000000}}",
    ),
    Case(
        "priorities: {system-high: {pods: true, value: 1}}",
        "priorities.system-high: Kubernetes reserves the names of PriorityClasses that begin with system-; choose "
        "another name.",
        "priorities: {system-high: {value: 1}}",
    ),
    Case(
        "priorities: {very_high: {value: 1}}",
        'priorities.very_high: "very_high" is not a valid Kubernetes name; use lowercase letters, digits and '
        "hyphens, with no hyphen at either end.",
        "priorities: {very-high: {value: 1}}",
    ),
]
