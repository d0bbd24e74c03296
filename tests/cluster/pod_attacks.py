"""Attacks of tests/cluster/test_run_policy_attacks.py on the pods of a run: their fields, volumes and containers."""

from __future__ import annotations

import copy

from tests.cluster.attacks import (
    CLUSTER_WORKER,
    JOB,
    NFS,
    OF_HEAD,
    OF_JOB,
    OF_WORKER,
    RAY,
    WORKER,
    YEAR,
    Attack,
    add,
    container,
    job,
    of,
    on_service,
    volume,
)
from tests.cluster.run_policy import set_at, without

POD_ATTACKS = [
    # Pods that Pod Security would refuse later.
    Attack(
        "no allowPrivilegeEscalation",
        "JobSet",
        without(*OF_JOB, "containers", 0, "securityContext", "allowPrivilegeEscalation"),
        ".securityContext must have allowPrivilegeEscalation",
    ),
    container("securityContext", "capabilities", "drop", value=["NET_RAW"], why=".drop must be"),
    job("securityContext", "runAsNonRoot", value=False, why=".runAsNonRoot must be true"),
    # Tokens of service accounts, and variables with the namespace's Services.
    *(
        attack
        for at in (("JobSet", OF_JOB), ("RayJob", OF_HEAD), ("RayJob", OF_WORKER), ("RayCluster", CLUSTER_WORKER))
        for name in ("automountServiceAccountToken", "enableServiceLinks")
        for attack in (
            of(at[0], *at[1], name, value=True, why=f".{name} must be false"),
            Attack(f"no {name} {at[0]} {at[1][-3]}", at[0], without(*at[1], name), f".{name} is missing"),
        )
    ),
    on_service(
        *("rayClusterConfig", "headGroupSpec", "template", "spec", "automountServiceAccountToken"),
        value=True,
        why=".automountServiceAccountToken must be false",
    ),
    on_service("excludeHeadPodFromServeSvc", value=False, why="must be true if each worker group"),
    Attack(
        "no excludeHeadPodFromServeSvc",
        "RayService",
        without("spec", "excludeHeadPodFromServeSvc"),
        "spec.excludeHeadPodFromServeSvc is missing",
    ),
    # Files of another group, and pods that Pod Security would refuse.
    job("securityContext", "fsGroup", value=0, why=".fsGroup must be equal to runAsUser"),
    job("securityContext", "runAsGroup", value=0, why=".runAsGroup must be equal to runAsUser"),
    Attack(
        "no runAsNonRoot",
        "JobSet",
        without(*OF_JOB, "securityContext", "runAsNonRoot"),
        ".securityContext must have runAsNonRoot",
    ),
    job("tolerations", 0, "operator", value="Any", why=".tolerations[0].operator must be Exists or Equal"),
    job("tolerations", 0, "effect", value="Never", why=".tolerations[0].effect must be NoSchedule"),
    job("tolerations", 0, "tolerationSeconds", value=YEAR, why=".tolerations[0].tolerationSeconds must be 0 to 604800"),
    # Keys have no limit in a template.
    of(
        "JobSet",
        *(*JOB, "template", "metadata", "annotations", f"gke-gcsfuse/{400 * 'x'}-limit"),
        value="1",
        name="long key of an annotation",
        why=".metadata.annotations[gke-gcsfuse/xxx",
    ),
    *(
        Attack(
            f"preStop {command[0]} {command[-1]}",
            "RayJob",
            set_at(*OF_WORKER, "containers", 0, "lifecycle", "preStop", "exec", "command", value=command),
            ".lifecycle must have only the preStop hook",
        )
        for command in (
            ["python", "-m", "trainer.prestop", "--seconds", "30", "--other"],
            ["python", "-m", "trainer.prestop", "--forever", "30"],
        )
    ),
    # Hooks that hold a pod, or that the kubelet sends from the network of the machine.
    container("lifecycle", value={"preStop": {"exec": {"command": ["sleep", "600"]}}}, why=".lifecycle must have only"),
    container("lifecycle", value={"stopSignal": "SIGKILL"}, why=".lifecycle must have only"),
    container("lifecycle", value={"postStart": {"exec": {}}}, why=".lifecycle must have only"),
    container("lifecycle", value={"postStart": {"exec": {"command": []}}}, why=".lifecycle must have only"),
    container(
        "lifecycle", value={"postStart": {"exec": {"command": [200_000 * "x"]}}}, why=".lifecycle must have only"
    ),
    of(
        "RayJob",
        *(*OF_HEAD, "containers", 0, "lifecycle", "postStart"),
        value={"httpGet": {"host": "169.254.169.254", "port": 80}},
        why=".lifecycle must have only",
    ),
    # Pods that Kubernetes refuses or that never start, while Kueue holds their quota.
    container("image", value="", why=".image must have 1 to 1024"),
    Attack("no image", "JobSet", without(*OF_JOB, "containers", 0, "image"), ".image is missing"),
    job("containers", value=[], why="denied request"),
    of("JobSet", "spec", "replicatedJobs", value=[], why="spec.replicatedJobs must have an item"),
    of("RayJob", *RAY, "workerGroupSpecs", value=[], why=".workerGroupSpecs must have an item"),
    Attack("only a head", "RayCluster", without("spec", "workerGroupSpecs"), "spec.workerGroupSpecs is missing"),
    Attack(
        "two groups with one name",
        "RayJob",
        lambda obj: obj["spec"]["rayClusterSpec"]["workerGroupSpecs"].extend(
            copy.deepcopy(obj["spec"]["rayClusterSpec"]["workerGroupSpecs"])
        ),
        ".groupName must have at most 63 lowercase letters, digits and hyphens, and be the name of no",
    ),
    of("RayJob", *WORKER, "groupName", value=70 * "x"),
    container("imagePullPolicy", value="Sometimes"),
    container("ports", 0, "containerPort", value=0),
    container("ports", 0, "containerPort", value=70000),
    container("env", 0, value={"name": "A", "valueFrom": {}}, why=".env[0].valueFrom must have one source"),
    container(
        "env",
        0,
        value={
            "name": "A",
            "valueFrom": {"secretKeyRef": {"name": "c", "key": "d"}, "fieldRef": {"fieldPath": "metadata.name"}},
        },
        why=".env[0].valueFrom must have one source",
    ),
    container("env", 0, "name", value="", why=".env[0].name must have"),
    container("env", 0, "name", value="A B", why=".env[0].name must have"),
    container("env", 0, "name", value="$(A)", why=".env[0].name must have"),
    container("envFrom", value=[{}], why=".envFrom must have items"),
    container(
        "envFrom",
        value=[{"secretRef": {"name": "x"}, "configMapRef": {"name": "x"}}],
        why=".envFrom must have items",
    ),
    job("volumes", 0, value={"name": "storage"}, why=".volumes[0].name must have one source"),
    job(
        "volumes",
        0,
        value={"name": "storage", "emptyDir": {}, "persistentVolumeClaim": {"claimName": "x"}},
        why=".volumes[0].name must have one source",
    ),
    container(
        "readinessProbe", value={"httpGet": {"path": "/", "port": 80}, "periodSeconds": -1}, why=".periodSeconds"
    ),
    of("RayJob", *OF_WORKER, "containers", 0, "livenessProbe", "failureThreshold", value=2_000_000_000),
    of("RayJob", *OF_WORKER, "containers", 0, "readinessProbe", "successThreshold", value=100),
    *(
        of(
            "RayJob",
            *OF_WORKER,
            "containers",
            0,
            "resources",
            value={"requests": {"google.com/tpu": chips}, "limits": {"google.com/tpu": chips}},
            name=f"chips {chips}",
            why=".requests[google.com/tpu] must be more than 0",
        )
        for chips in ("500m", "0.5", "-4", "1e1", "100000")
    ),
    of(
        "RayJob",
        *WORKER,
        *("template", "metadata", "annotations", "kueue.x-k8s.io/podset-slice-size"),
        value="-1",
        why="[kueue.x-k8s.io/podset-slice-size]",
    ),
    job("terminationGracePeriodSeconds", value=-1),
    of("RayJob", "spec", "ttlSecondsAfterFinished", value=-1),
    of("RayJob", "spec", "activeDeadlineSeconds", value=0),
    of("JobSet", "spec", "failurePolicy", "maxRestarts", value=-1),
    on_service(
        "upgradeStrategy",
        value={
            "type": "NewClusterWithIncrementalUpgrade",
            "clusterUpgradeOptions": {
                "gatewayClassName": "istio",
                "stepSizePercent": 5,
                "intervalSeconds": 10,
                "maxSurgePercent": 0,
            },
        },
        why=".clusterUpgradeOptions.maxSurgePercent must be",
    ),
    # S5: storage of others.
    volume("nfs", NFS),
    volume("iscsi", {"targetPortal": "10.0.0.3", "iqn": "iqn.2001-04.com.example:x", "lun": 0}),
    volume("cephfs", {"monitors": ["10.0.0.3"]}),
    volume("gcePersistentDisk", {"pdName": "vision-disk"}),
    volume("image", {"reference": "example.invalid/secrets:1"}),
    volume("hostPath", {"path": "/"}),
    volume(
        "ephemeral",
        {
            "volumeClaimTemplate": {
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Ti"}}}
            }
        },
    ),
    volume("glusterfs", {"endpoints": "a", "path": "b"}),
    volume("fc", {"targetWWNs": ["a"], "lun": 1}),
    volume("rbd", {"image": "a", "monitors": ["b"]}),
    volume("gitRepo", {"repository": "https://example.invalid/x"}),
    volume("flexVolume", {"driver": "example.com/x"}),
    volume("projected", {"sources": []}),
    volume("secret", {"secretName": "x"}),
    volume("configMap", {"name": "x"}),
    volume("csi", {"driver": "pd.csi.storage.gke.io"}, why=".csi.driver must be one of gcsfuse"),
    volume("emptyDir", {"medium": "HugePages"}, why=".emptyDir must have only"),
    of(
        "JobSet",
        *OF_JOB,
        "volumes",
        0,
        "csi",
        "volumeAttributes",
        "bucketName",
        value="models",
        why=".csi.volumeAttributes[bucketName]",
    ),
    of(
        "JobSet",
        *OF_JOB,
        "volumes",
        0,
        "csi",
        "volumeAttributes",
        "bucketName",
        value="_",
        why=".csi.volumeAttributes[bucketName]",
    ),
    of(
        "JobSet",
        *OF_JOB,
        "volumes",
        0,
        "csi",
        "volumeAttributes",
        "gcsfuseLoggingSeverity",
        value="x",
        why="[gcsfuseLoggingSeverity]",
    ),
    of(
        "RayJob",
        *OF_HEAD,
        "volumes",
        0,
        "csi",
        "volumeAttributes",
        "bucketName",
        value="models",
        why=".headGroupSpec.template.spec.volumes[0].csi.volumeAttributes[bucketName]",
    ),
    of("JobSet", *OF_JOB, "volumes", 0, "csi", "nodePublishSecretRef", value={"name": "x"}),
    of("JobSet", *OF_JOB, "volumes", 0, "csi", "fsType", value="ext4"),
    # Pods that Pod Security would refuse.
    container("securityContext", value={"privileged": True}, why=".securityContext.privileged"),
    container("securityContext", "capabilities", "add", value=["SYS_ADMIN"]),
    container("securityContext", "allowPrivilegeEscalation", value=True),
    container("securityContext", "procMount", value="Unmasked"),
    container("securityContext", "runAsUser", value=0),
    container("securityContext", "seccompProfile", value={"type": "Unconfined"}),
    container("securityContext", "appArmorProfile", value={"type": "Unconfined"}),
    Attack(
        "no securityContext",
        "JobSet",
        without(*OF_JOB, "containers", 0, "securityContext"),
        ".securityContext is missing",
    ),
    job("securityContext", "seccompProfile", value={"type": "Unconfined"}),
    job("securityContext", "sysctls", value=[{"name": "kernel.shm_rmid_forced", "value": "1"}]),
    job("securityContext", "supplementalGroups", value=[0]),
    job("securityContext", "windowsOptions", value={"hostProcess": True}),
    of("RayJob", *OF_HEAD, "securityContext", "runAsUser", value=0),
    job("hostNetwork", value=True),
    job("hostPID", value=True),
    job("hostIPC", value=True),
    # More fields that no values render, some of them of newer versions.
    job("hostnameOverride", value="other"),
    job("schedulingGroup", value={"podGroupName": "other"}),
    job("securityContext", "supplementalGroupsPolicy", value="Strict"),
    job("securityContext", "seLinuxChangePolicy", value="Recursive"),
    container(
        "restartPolicyRules",
        value=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}],
    ),
    container("env", 0, "valueFrom", value={"fileKeyRef": {"volumeName": "a", "path": "b", "key": "c"}}),
    container("volumeMounts", 0, "subPathExpr", value="$(NAME)"),
    container("terminationMessagePath", value="/etc/message"),
    of("RayJob", *RAY, "tlsOptions", value={"secretName": "other"}),
    *(
        of(kind, "metadata", at, key, value="1", why=f"metadata.{at}[{key}]")
        for kind, key in (
            ("JobSet", "kueue.x-k8s.io/pod-group-name"),
            ("RayJob", "kueue.x-k8s.io/workloadslice-name"),
            ("RayService", "ray.io/scheduler-name"),
        )
        for at in ("labels", "annotations")
    ),
    job("hostUsers", value=False),
    job("shareProcessNamespace", value=True),
    container("ports", 0, "hostPort", value=8080),
    container("ports", 0, "protocol", value="UDP"),
    # The scheduler and other controllers.
    job("priority", value=2000000000),
    job("preemptionPolicy", value="Never"),
    job("schedulerName", value="mine"),
    job("schedulingGates", value=[{"name": "example.com/wait"}]),
    job("nodeName", value="node-of-others"),
    job("runtimeClassName", value="gvisor"),
    job("overhead", value={"cpu": "1"}),
    job("resources", value={"requests": {"cpu": "1"}}),
    job("resourceClaims", value=[{"name": "x", "resourceClaimName": "y"}]),
    container("resources", "claims", value=[{"name": "x"}]),
    job("readinessGates", value=[{"conditionType": "example.com/x"}]),
    job("topologySpreadConstraints", value=[{"maxSkew": 1, "topologyKey": "x", "whenUnsatisfiable": "DoNotSchedule"}]),
    job("tolerations", 0, value={"operator": "Exists"}, why=".tolerations[0].key is missing"),
    job("tolerations", 0, value={"key": "", "operator": "Exists"}, why=".tolerations[0].key must be"),
    job(
        "tolerations",
        0,
        value={"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
        why=".tolerations[0].key must be",
    ),
    job("tolerations", 0, value={"key": "nvidia.com/gpu", "operator": "Exists"}, why=".tolerations[0].key must be"),
    of(
        "RayJob",
        *OF_HEAD,
        "tolerations",
        value=[{"key": "google.com/tpu", "operator": "Exists"}],
        why=".tolerations[0].key must be",
    ),
    job("nodeSelector", "kubernetes.io/hostname", value="node-1", why=".nodeSelector[kubernetes.io/hostname]"),
    job(
        "nodeSelector",
        "cloud.google.com/gke-nodepool",
        value="of-others",
        why=".nodeSelector[cloud.google.com/gke-nodepool]",
    ),
    job("affinity", value={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
    job(
        "affinity",
        value={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
                    ]
                }
            }
        },
    ),
    job(
        "affinity",
        value={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
                    ]
                }
            }
        },
    ),
    # DNS and hosts.
    job("dnsPolicy", value="Default"),
    job("dnsPolicy", value="ClusterFirstWithHostNet"),
    job("dnsConfig", value={"nameservers": ["10.0.0.9"]}),
    job("hostAliases", value=[{"ip": "10.0.0.9", "hostnames": ["metadata"]}]),
    job("hostname", value="x"),
    job("subdomain", value="x"),
    job("setHostnameAsFQDN", value=True),
    # Devices without a request.
    Attack(
        "NVIDIA_VISIBLE_DEVICES",
        "JobSet",
        add(*OF_JOB, "containers", 0, "env", item={"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}),
        ".name must have at most 256 letters, digits and _, and not be NVIDIA_VISIBLE_DEVICES",
    ),
    Attack(
        "device mount",
        "JobSet",
        add(
            *OF_JOB,
            "containers",
            0,
            "volumeMounts",
            item={"name": "storage", "mountPath": "/var/run/nvidia-container-devices/all"},
        ),
        ".mountPath must",
    ),
    *(
        Attack(
            f"device mount {name}",
            "JobSet",
            add(*OF_JOB, "containers", 0, "volumeMounts", item={"name": "storage", "mountPath": name}),
            ".mountPath must",
        )
        for name in ("/run/nvidia-container-devices/all", "//var/run/../run/nvidia-container-devices/all")
    ),
    container("resources", "requests", "nvidia.com/mig-1g.5gb", value="1", why="[nvidia.com/mig-1g.5gb]"),
    container(
        "resources", "requests", "google.com/tpu", value="1", why=".limits[google.com/tpu] must be equal to the request"
    ),
    container("resources", "limits", "cpu", value="1", why=".limits[cpu]"),
    container("resources", "requests", "ephemeral-storage", value="1Gi", why="[ephemeral-storage]"),
    # Other containers and programs.
    job("initContainers", value=[{"name": "x", "image": "y"}]),
    job("ephemeralContainers", value=[{"name": "x", "image": "y"}]),
    Attack(
        "two containers",
        "JobSet",
        add(*OF_JOB, "containers", item={"name": "x", "image": "y"}),
        ".containers[1].name must be ray-head",
    ),
    of(
        "RayJob",
        *OF_WORKER,
        "containers",
        1,
        value={"name": "x", "image": "y"},
        why=".containers[1].name must be ray-head",
    ),
    of("RayJob", *OF_HEAD, "containers", 0, "command", value=["sh"]),
    container("name", value="other", why=".containers must have 1 to 8 items"),
    container("restartPolicy", value="Always"),
    container("resizePolicy", value=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
    container("volumeDevices", value=[{"name": "storage", "devicePath": "/dev/x"}]),
    container("startupProbe", value={"httpGet": {"port": 80}}),
    container("workingDir", value="/"),
    container("terminationMessagePolicy", value="FallbackToLogsOnError"),
    container("stdin", value=True),
    container("volumeMounts", 0, "subPath", value="../x"),
    container("volumeMounts", 0, "mountPropagation", value="Bidirectional"),
    container("envFrom", value=[{"prefix": "X", "secretRef": {"name": "x"}}], why=".envFrom[0].prefix"),
    Attack(
        "an optional Secret in the head's envFrom",
        "RayJob",
        set_at(*OF_HEAD, "containers", 0, "envFrom", value=[{"secretRef": {"name": "x", "optional": True}}]),
        ".envFrom[0].secretRef must have only a name",
    ),
    Attack(
        "field",
        "JobSet",
        add(
            *OF_JOB,
            "containers",
            0,
            "env",
            item={"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        ),
        ".valueFrom.fieldRef must be",
    ),
    job("serviceAccount", value="deployer"),
    job("restartPolicy", value="OnFailure"),
    job("activeDeadlineSeconds", value=5),
]
