"""Invalid values for charts/run, charts/ray-cluster and charts/serve, with the sentences about them, and valid ones."""

from __future__ import annotations

from dataclasses import dataclass

LOCAL, RAY_CLUSTER, RUN, JOB_SET, CLUSTER = "local", "ray-cluster", "ray-job", "job-set", "cluster"
SERVE = "serve"
RUNS, ALL, RAY = (RUN, JOB_SET), (RUN, JOB_SET, CLUSTER), (RUN, CLUSTER)

GOOD = """
run: {name: t}
team: {name: research}
slice: {accelerator: v6e, topology: 4x4}
image: {repository: example.com/trainer, tag: v1}
storage: {bucket: research-runs}
data: {corpus: python}
train: {steps: 30}
"""
"""The values below those of each row."""

KINDS = {
    LOCAL: "run: {kind: local}\nslice: {accelerator: cpu, topology: ''}\nstorage: {kind: local}",
    RAY_CLUSTER: "run: {kind: ray-cluster, cluster: big}",
    RUN: "run: {kind: ray-job}",
    JOB_SET: "run: {kind: job-set}",
    CLUSTER: "{}",
    SERVE: "serve: {model: exports/llama, apiKey: {name: llama}}",
}
"""The values of each kind, between GOOD and those of a row."""


@dataclass(frozen=True)
class InvalidValues:
    """`values` are invalid at `key` for each of `kinds`, and the chart's sentence contains `says`."""

    key: str
    values: str
    says: str
    kinds: tuple[str, ...] = ALL
    release: str = "t"
    launcher: str = ""
    """How the launcher's sentence differs; empty: it is the same, except for errors of the schema."""


NAME = (
    "is not a valid name; use lowercase letters, digits and hyphens, starting with a letter and not ending with a "
    "hyphen."
)
NEAREST = "the launcher names the nearest shape instead of all shapes"
ADDS = "the launcher adds an example, or the closest name"
ALTERNATIVE = "the launcher names the second alternative of slice.any"

BAD = [
    # Names.
    InvalidValues(
        "run.name",
        f"run: {{name: {'a' * 36}}}",
        "has 36 characters; the name of a ray-job run can have at most 35.",
        (RUN,),
    ),
    InvalidValues(
        "run.name",
        f"run: {{name: {'a' * 41}}}",
        "has 41 characters; the name of a job-set run can have at most 40.",
        (JOB_SET,),
    ),
    InvalidValues("run.name", "run: {name: Llama}", f'"Llama" {NAME}', RUNS, launcher=ADDS),
    InvalidValues("run.name", "run: {name: llama-}", f'"llama-" {NAME}', RUNS, launcher=ADDS),
    InvalidValues("run.name", "run: {name: 3llama}", f'"3llama" {NAME}', RUNS, launcher=ADDS),
    InvalidValues("run.name", "run: {name: llama.v2}", f'"llama.v2" {NAME}', RUNS, launcher=ADDS),
    InvalidValues("run.name", "run: {name: größer}", f'"größer" {NAME}', RUNS, launcher=ADDS),
    InvalidValues("run.name", 'run: {name: " "}', f'" " {NAME}', RUNS),
    InvalidValues(
        "the release's name",
        "{}",
        "has 42 characters; the name of a RayCluster can have at most 41.",
        (CLUSTER,),
        "a" * 42,
    ),
    InvalidValues("the release's name", "{}", f'"my.cluster" {NAME}', (CLUSTER,), "my.cluster"),
    InvalidValues(
        "the release's name (run.name is empty)",
        'run: {name: ""}',
        "has 41 characters; the name of a ray-job run can have at most 35.",
        (RUN,),
        "a" * 41,
    ),
    InvalidValues(
        "team.name",
        "team: {name: Research}",
        '"Research" is not a valid Kubernetes name; use at most 63 lowercase letters',
    ),
    InvalidValues(
        "team.name", f"team: {{name: {'a' * 64}}}", "is not a valid Kubernetes name; use at most 63 lowercase letters"
    ),
    InvalidValues("team.namespace", "team: {namespace: a_b}", '"a_b" is not a valid Kubernetes name'),
    InvalidValues("team.serviceAccount", "team: {serviceAccount: a b}", '"a b" is not a valid Kubernetes name'),
    InvalidValues("queue.name", "queue: {name: -a}", '"-a" is not a valid Kubernetes name'),
    InvalidValues("queue.priority", "queue: {priority: High}", '"High" is not a valid Kubernetes name'),
    InvalidValues("queue.podPriority", "queue: {podPriority: a/b}", '"a/b" is not a valid Kubernetes name'),
    # Bounds of what keeps chips without quota, and of the size of an object.
    InvalidValues(
        "run.ttlSeconds",
        "run: {ttlSeconds: 601}",
        "is 601; the cluster of a finished RayJob keeps its chips without quota, so it must be deleted after at most "
        "600 seconds.",
        (RUN,),
    ),
    InvalidValues("run.graceSeconds", "run: {graceSeconds: 601}", "maximum: got 601, want 600"),
    InvalidValues("run.ttlSeconds", "run: {ttlSeconds: 31536001}", "maximum: got 3.1536001"),
    InvalidValues("run.maxRestarts", "run: {maxRestarts: 10001}", "maximum: got 10,001, want 10,000"),
    InvalidValues(
        "run.restartAction", "run: {restartAction: FailJobSet}", "value must be one of 'RestartJobSet', 'RestartJob'"
    ),
    InvalidValues(
        "run.restartAction",
        "run: {restartAction: RestartJob}",
        "run.restartAction: RestartJob is for run.kind job-set, and run.kind is ray-job; set run.restartAction: "
        "RestartJobSet.",
        (RUN,),
    ),
    InvalidValues(
        "slice.count",
        "run: {restartAction: RestartJob}\nslice: {count: 1025}",
        "slice.count is 1025; with run.restartAction: RestartJob, a JobSet can have at most 1024 slices. Set "
        "run.restartAction: RestartJobSet.",
        (JOB_SET,),
    ),
    InvalidValues(
        "run.maxRestarts",
        "run: {restartAction: RestartJob, maxRestarts: 0}",
        "run.maxRestarts is 0, so a failed slice would end the other slices, too; increase it, or set "
        "run.restartAction: RestartJobSet.",
        (JOB_SET,),
    ),
    InvalidValues(
        "worker.env.SLIPWAY_SPARES",
        'run: {restartAction: RestartJob}\nworker: {env: {SLIPWAY_SPARES: "0"}}',
        "worker.env.SLIPWAY_SPARES is 0, so a failed slice would end the pods of the other slices, too; remove it, or "
        "set run.restartAction: RestartJobSet.",
        (JOB_SET,),
    ),
    InvalidValues(
        "serve.upgrade.deleteOldSeconds",
        "serve: {upgrade: {deleteOldSeconds: 601}}",
        "maximum: got 601, want 600",
        (SERVE,),
    ),
    InvalidValues(
        "worker.env",
        "worker: {env: {NVIDIA_VISIBLE_DEVICES: all}}",
        "NVIDIA_VISIBLE_DEVICES selects devices that the pod does not request; remove it.",
    ),
    InvalidValues(
        "worker.env",
        f"worker: {{env: {{A: {60_000 * 'x'}}}}}",
        "has 60001 bytes; it can have at most 60000. Put long texts into a file in the storage.",
    ),
    InvalidValues(
        "worker.env",
        f"worker: {{env: {{{', '.join(f'A{n}: x' for n in range(201))}}}}}",
        "has 201 entries; it can have at most 200.",
    ),
    InvalidValues(
        "worker.envFrom",
        f"worker: {{envFrom: {{{', '.join(f'a{n}: Secret' for n in range(51))}}}}}",
        "worker.envFrom has 51 entries; it can have at most 50.",
    ),
    InvalidValues(
        "cluster.labels",
        f"cluster: {{labels: {{{', '.join(f'a{n}: b' for n in range(51))}}}}}",
        "cluster.labels has 51 entries; it can have at most 50.",
        (CLUSTER,),
    ),
    InvalidValues(
        "head.tolerations",
        f"head: {{tolerations: {{{', '.join(f'a{n}: {{key: b}}' for n in range(17))}}}}}",
        "head.tolerations has 17 entries; it can have at most 16.",
    ),
    InvalidValues(
        "image.pullSecrets",
        f"image: {{pullSecrets: [{', '.join(f'a{n}' for n in range(11))}]}}",
        "image.pullSecrets has 11 entries; it can have at most 10.",
    ),
    InvalidValues(
        "run.command",
        f"run: {{command: [{', '.join('a' for n in range(1001))}]}}",
        "run.command has 1001 entries; it can have at most 1000.",
        RUNS,
    ),
    InvalidValues(
        "worker",
        f"worker: {{env: {{A: {50_000 * 'x'}}}}}\nslice: {{count: 8, placement: topology}}",
        "9 pod templates with the run config and the environment of a worker have more than 262144 bytes,",
        RAY,
    ),
    InvalidValues(
        "run.command",
        f"run: {{command: [{60_001 * 'x'}]}}",
        "has 60001 bytes; it can have at most 60000. Put long texts into a file in the storage.",
        (RUN, JOB_SET),
    ),
    InvalidValues(
        "serve.engineArgs",
        f"serve: {{engineArgs: {{a: {60_000 * 'x'}}}}}",
        "bytes; it can have at most 60000.",
        (SERVE,),
    ),
    # A served model.
    InvalidValues(
        "the release's name",
        "{}",
        "has 36 characters; the name of a RayService can have at most 35.",
        (SERVE,),
        "a" * 36,
    ),
    InvalidValues("the release's name", "{}", f'"my.model" {NAME}', (SERVE,), "my.model"),
    *(
        InvalidValues(key, values, says, (SERVE,))
        for key, values, says in (
            (
                "serve.model",
                'serve: {model: ""}',
                "is empty; set it to the folder of a Hugging Face model in the storage",
            ),
            ("serve.model", "serve: {model: gs://b/llama}", '"gs://b/llama" is a URL; name the folder below storage.'),
            (
                "serve.model",
                "serve: {model: hf:llama}",
                '"hf:llama" is not a valid model; write a folder in the storage',
            ),
            (
                "serve.model",
                "serve: {model: hf:a/b/c}",
                '"hf:a/b/c" is not a valid model; write a folder in the storage',
            ),
            ("serve.model", "serve: {model: ../llama}", '"../llama" is not a plain path; write it without'),
            ("serve.model", "serve: {model: /models/llama}", '"/models/llama" is not below storage.mountPath, /data,'),
            ("serve.model", "storage: {kind: local}", '"exports/llama" is a folder, and with storage.kind: local'),
            ("serve.name", "serve: {name: my llama}", '"my llama" is not a valid model name; use at most 96 letters'),
            (
                "serve.engine",
                "slice: {accelerator: cpu, topology: ''}\nworker: {cpu: '1', memory: 1Gi}",
                "vllm runs on TPUs and GPUs; for cpu, set serve.engine: mlx.",
            ),
            (
                "serve.engine",
                "serve: {engine: mlx}",
                "mlx runs on CPUs; for v6e, set serve.engine: vllm.",
            ),
            (
                "serve.engine",
                "slice: {accelerator: l4, topology: ''}\nserve: {engine: mlx}",
                "mlx runs on CPUs; for l4, set serve.engine: vllm.",
            ),
            ("serve.engine", "serve: {engine: jetstream}", "value must be one of 'vllm', 'mlx'"),
            ("slice.count", "slice: {count: 2}", "is 2; each replica has a slice of its own: set slice.count: 1"),
            (
                "slice.hosts",
                "slice: {accelerator: l4, topology: '', hosts: 2}",
                "is 2; a replica on l4 runs on one host: set slice.hosts: 0.",
            ),
            (
                "serve.replicas",
                "serve: {replicas: {max: 2}}",
                "a v6e slice of 4x4 has 4 hosts, and a model on several hosts has one replica; set min and max to 1",
            ),
            (
                "serve.replicas",
                "slice: {topology: 2x2, placement: topology}\nserve: {replicas: {max: 2}}",
                "Kueue does not scale a cluster with slice.placement: topology; use exclusive",
            ),
            (
                "serve.replicas.min",
                "slice: {topology: 2x2}\nserve: {replicas: {min: 3, max: 2}}",
                "is 3; it must be at most serve.replicas.max, 2.",
            ),
            ("serve.replicas.max", "serve: {replicas: {max: 0}}", "minimum: got 0, want 1"),
            (
                "serve.targetRequests",
                "serve: {targetRequests: 9, maxRequests: 8}",
                "is 9; it must be at most serve.maxRequests, 8.",
            ),
            ("serve.dtype", "serve: {dtype: float16}", "TPUs have no float16; use bfloat16."),
            ("serve.contextLength", "serve: {contextLength: 8k}", "got string, want integer"),
            (
                "serve.engineArgs",
                "slice: {accelerator: cpu, topology: ''}\nworker: {cpu: '1', memory: 1Gi}\n"
                "serve: {engine: mlx, engineArgs: {seed: 1}}",
                "has arguments of vLLM, and serve.engine is mlx; remove them.",
            ),
            (
                "serve.engineArgs",
                "serve: {engineArgs: {--seed: 1}}",
                '"--seed" is not an argument of vLLM\'s engine; use the names in its EngineArgs',
            ),
            ("serve.engineArgs.dtype", "serve: {engineArgs: {dtype: half}}", "is set by Slipway; remove it."),
            (
                "serve.apiKey.name",
                'serve: {apiKey: {name: ""}}',
                "is empty; set it to the Secret with the API key, or set serve.apiKey.required: false",
            ),
            (
                "serve.apiKey.name",
                "serve: {apiKey: {required: false}}",
                "is set, and serve.apiKey.required is false; remove one of them.",
            ),
            ("serve.apiKey.name", "serve: {apiKey: {name: My_Key}}", '"My_Key" is not a valid object name; use'),
            ("serve.apiKey.key", "serve: {apiKey: {key: a/b}}", '"a/b" is not a valid key of a Secret; use letters'),
            (
                "worker.secretEnv.SLIPWAY_API_KEY",
                "worker: {secretEnv: {SLIPWAY_API_KEY: {name: a, key: b}}}",
                "is set by Slipway; name the Secret in serve.apiKey.",
            ),
            (
                "serve.port",
                "serve: {port: 8265}",
                "8265 is a port that the system, Ray, JAX or libtpu uses; use another",
            ),
            ("serve.port", "serve: {port: 65536}", "maximum: got"),
            (
                "serve.upgrade.gatewayClass",
                "slice: {topology: 2x2}\nserve: {replicas: {max: 2}, upgrade: {strategy: incremental}}",
                "must name the GatewayClass that divides the traffic.",
            ),
            (
                "serve.upgrade.gatewayClass",
                "serve: {upgrade: {gatewayClass: istio}}",
                "requires serve.upgrade.strategy: incremental; it is new-cluster.",
            ),
            (
                "serve.upgrade.gatewayClass",
                "slice: {topology: 2x2}\n"
                "serve: {replicas: {max: 2}, upgrade: {strategy: incremental, gatewayClass: A}}",
                '"A" is not a valid object name; use lowercase letters',
            ),
            (
                "serve.upgrade.strategy",
                "serve: {upgrade: {strategy: incremental, gatewayClass: istio}}",
                "incremental requires autoscaling; set serve.replicas.max above serve.replicas.min.",
            ),
            (
                "serve.upgrade.stepPercent",
                "slice: {topology: 2x2}\nserve: {replicas: {max: 2},"
                " upgrade: {strategy: incremental, gatewayClass: istio, surgePercent: 20}}",
                "is 25; it must be at most serve.upgrade.surgePercent, 20.",
            ),
            ("serve.health.periodSeconds", "serve: {health: {periodSeconds: 0}}", "minimum: got 0, want 1"),
            ("serve.sevre", "serve: {sevre: 1}", "additional properties 'sevre' not allowed"),
        )
    ),
    # The run.
    InvalidValues(
        "run.kind",
        "run: {kind: rayjob}",
        "value must be one of 'local', 'ray-cluster', 'ray-job', 'job-set'",
        (RUN,),
    ),
    InvalidValues("run.maxRestarts", "run: {maxRestarts: -1}", "minimum: got -1, want 0"),
    InvalidValues("run.maxRestarts", "run: {maxRestarts: 1.5}", "got number, want integer"),
    InvalidValues("run.maxRestarts", 'run: {maxRestarts: "4"}', "got string, want integer"),
    InvalidValues("run.maxRestarts", "run: {maxRestarts: 2147483648}", "maximum: got"),
    InvalidValues("run.deadlineSeconds", "run: {deadlineSeconds: -1}", "minimum: got -1, want 0"),
    InvalidValues("run.deadlineSeconds", "run: {deadlineSeconds: 1h}", "got string, want integer"),
    InvalidValues("run.ttlSeconds", "run: {ttlSeconds: 1e30}", "maximum: got"),
    InvalidValues("run.keepFinishedDays", "run: {keepFinishedDays: -1}", "minimum: got -1, want 0"),
    InvalidValues("run.keepFinishedDays", "run: {keepFinishedDays: 24856}", "maximum: got"),
    InvalidValues("run.keepFinishedDays", "run: {keepFinishedDays: null}", "missing property 'keepFinishedDays'"),
    InvalidValues("run.graceSeconds", "run: {graceSeconds: 1099511627776}", "maximum: got"),
    InvalidValues("run.command", "run: {command: sleep infinity}", "got string, want array"),
    InvalidValues("run.command", "run: {command: {sleep: infinity}}", "got object, want array"),
    InvalidValues("run.command", "run: {command: [sleep, 60]}", "got number, want string"),
    InvalidValues(
        "run.command", 'run: {command: [""]}', "starts with an empty item; the first item must be a program.", RUNS
    ),
    InvalidValues("run.nmae", "run: {nmae: x}", "additional properties 'nmae' not allowed"),
    # The slice.
    InvalidValues(
        "slice.topology", "slice: {topology: 4x5}", '"4x5" is not a topology of v6e; use 1x1, 2x2,', launcher=NEAREST
    ),
    InvalidValues("slice.topology", 'slice: {topology: ""}', "a v6e slice requires a topology: 1x1, 2x2, 2x4, 4x4,"),
    InvalidValues(
        "slice.topology", "slice: {topology: v6e-16}", '"v6e-16" is not a topology of v6e; use', launcher=NEAREST
    ),
    InvalidValues("slice.topology", "slice: {topology: 4X4}", '"4X4" is not a topology of v6e; use', launcher=NEAREST),
    InvalidValues("slice.topology", "slice: {topology: 16}", "got number, want string"),
    InvalidValues(
        "slice.topology",
        "slice: {accelerator: v5p, topology: 4x4x6}",
        "or a larger one whose sides are multiples of 4.",
        launcher=NEAREST,
    ),
    InvalidValues(
        "slice.topology",
        "slice: {accelerator: cpu, topology: 4x4}\nworker: {cpu: '1', memory: 1Gi}",
        "only TPU slices have a topology; for cpu, set slice.hosts instead.",
    ),
    InvalidValues(
        "slice.accelerator", "slice: {accelerator: v6}", 'unknown accelerator "v6"; use one of', launcher=ADDS
    ),
    InvalidValues(
        "slice.accelerator", "slice: {accelerator: v6e-16}", 'unknown accelerator "v6e-16"; use', launcher=NEAREST
    ),
    InvalidValues("slice.accelerator", 'slice: {accelerator: ""}', "minLength: got 0, want 1"),
    InvalidValues("slice.accelerator", "slice: {accelerator: null}", "missing property 'accelerator'"),
    InvalidValues(
        "slice.machineType",
        "slice: {machineType: n2}",
        '"n2" is not a machine type of a v6e slice of 4x4; use ct6e-standard-4t.',
    ),
    InvalidValues(
        "slice.machineType",
        "slice: {accelerator: h100-80gb, topology: '', machineType: a2}",
        '"a2" is not a machine type of h100-80gb; use a3-',
    ),
    InvalidValues(
        "slice.hosts",
        "slice: {hosts: 4}",
        "the topology of a v6e slice determines its hosts; remove slice.hosts.",
    ),
    InvalidValues("slice.hosts", "slice: {hosts: -1}", "minimum: got -1, want 0"),
    InvalidValues("slice.count", "slice: {count: 0}", "minimum: got 0, want 1"),
    InvalidValues("slice.count", "slice: {count: two}", "got string, want integer"),
    InvalidValues("slice.count", "slice: {count: true}", "got boolean, want integer"),
    InvalidValues("slice.count", "slice: {count: 3000000000}", "maximum: got"),
    InvalidValues(
        "slice.count",
        "slice: {count: 18, placement: topology}",
        "the Ray cluster has 19 pod sets, including its head, and Kueue accepts at most 18; use fewer groups, or "
        "slice.placement: exclusive.",
        RAY,
    ),
    InvalidValues(
        "slice.provisioning", "slice: {provisioning: preemptible}", "value must be one of 'on-demand', 'spot',"
    ),
    InvalidValues(
        "slice.reservation",
        "slice: {provisioning: reservation}",
        "slice.provisioning is reservation; slice.reservation must name it.",
    ),
    InvalidValues(
        "slice.reservation",
        "slice: {reservation: mine}",
        "requires slice.provisioning: reservation; it is on-demand.",
    ),
    InvalidValues(
        "slice.reservation",
        "slice: {provisioning: reservation, reservation: projects/p/reservations/r}",
        '"projects/p/reservations/r" is a path; write only the reservation\'s name, and its project in',
    ),
    InvalidValues(
        "slice.reservation", "slice: {provisioning: reservation, reservation: A}", '"A" is not a valid Kubernetes name'
    ),
    InvalidValues("slice.placement", "slice: {placement: compact}", "value must be one of 'exclusive', 'topology'"),
    # The image.
    InvalidValues(
        "image.repository",
        'image: {repository: ""}',
        "is empty; set it to the image that contains the trainer and Ray.",
    ),
    InvalidValues("image.repository", "image: {repository: 'example.com/trainer:v1'}", "contains a tag or a digest;"),
    InvalidValues(
        "image.repository", "image: {repository: 'example.com/trainer@sha256:00'}", "contains a tag or a digest;"
    ),
    InvalidValues(
        "image.repository",
        "image: {repository: 'https://example.com/trainer'}",
        "is not a valid image name; write it like",
    ),
    InvalidValues(
        "image.repository", "image: {repository: example.com/Trainer}", "is not a valid image name; write it like"
    ),
    InvalidValues(
        "image.repository", "image: {repository: example.com/trainer/}", "is not a valid image name; write it like"
    ),
    InvalidValues("image.tag", 'image: {tag: ""}', "is empty; set it, or set image.digest."),
    InvalidValues("image.tag", "image: {tag: latest}", "is latest, which can change during a run; set a version."),
    InvalidValues(
        "image.tag", "image: {tag: v1 beta}", '"v1 beta" is not a valid tag; use letters, digits, dots, hyphens and'
    ),
    InvalidValues("image.tag", "image: {tag: 1.5}", "got number, want string"),
    InvalidValues(
        "image.tag", f"image: {{digest: 'sha256:{'0' * 64}'}}", "and image.digest are both set; remove one of them."
    ),
    InvalidValues(
        "image.digest",
        'image: {tag: "", digest: "sha256:12"}',
        "is not a valid digest; write sha256: and 64 hexadecimal digits.",
    ),
    InvalidValues(
        "image.pullPolicy", "image: {pullPolicy: Sometimes}", "value must be one of 'IfNotPresent', 'Always', 'Never'"
    ),
    InvalidValues("image.pullSecrets", "image: {pullSecrets: my-secret}", "got string, want array"),
    InvalidValues(
        "image.pullSecrets", 'image: {pullSecrets: [""]}', '"" is not a valid object name; use lowercase letters,'
    ),
    InvalidValues(
        "image.rayVersion", "image: {rayVersion: v2.60}", '"v2.60" is not a valid Ray version; write it like 2.60.0.'
    ),
    InvalidValues("image.rayVersion", "image: {rayVersion: 2.60}", "got number, want string"),
    InvalidValues(
        "run.deadlineSeconds",
        "run: {deadlineSeconds: 700000}\nslice: {provisioning: flex-start}",
        "nodes of flex-start run for at most 7 days, 604800 seconds.",
        (RUN, JOB_SET),
    ),
    InvalidValues(
        "run.deadlineSeconds",
        "run: {deadlineSeconds: 700000}\nslice: {any: [{}, {provisioning: flex-start}]}",
        "nodes of flex-start run for at most 7 days, 604800 seconds.",
        (RUN, JOB_SET),
        launcher=ALTERNATIVE,
    ),
    InvalidValues("slice.any", "slice: {any: spot}", "got string, want array"),
    # Storage.
    InvalidValues(
        "storage.bucket", 'storage: {bucket: ""}', "storage.kind is gcsfuse; storage.bucket must name the bucket."
    ),
    InvalidValues(
        "storage.bucket",
        "storage: {bucket: 'gs://research-runs'}",
        "is not a valid bucket name; write it without gs:// and",
    ),
    InvalidValues(
        "storage.bucket",
        "storage: {bucket: research-runs/runs}",
        "is not a valid bucket name; write it without gs:// and",
    ),
    InvalidValues("storage.text.bucket", "storage: {text: {bucket: 'gs://text'}}", "is not a valid bucket name;"),
    InvalidValues("storage.text.cacheSize", "storage: {text: {cacheSize: 100GB}}", '"100GB" is not a valid amount of'),
    InvalidValues("storage.text.cacheMedium", "storage: {text: {cacheMedium: ssd}}", "value must be one of"),
    InvalidValues("storage.text.mountPath", "storage: {text: {mountPath: text}}", '"text" is not valid; it must start'),
    InvalidValues(
        "storage.text.mountPath", "storage: {text: {mountPath: /dev/text}}", "is a folder that the pods need"
    ),
    InvalidValues(
        "storage.claim",
        "storage: {kind: pvc}",
        "storage.kind is pvc; storage.claim must name the PersistentVolumeClaim.",
    ),
    InvalidValues("storage.claim", "storage: {kind: pvc, claim: My}", '"My" is not a valid Kubernetes name'),
    InvalidValues(
        "storage.kind", "storage: {kind: local}", "is local, and on a cluster local files, including checkpoints,", RUNS
    ),
    InvalidValues("storage.kind", "storage: {kind: nfs}", "value must be one of 'gcsfuse', 'pvc', 'local'"),
    InvalidValues(
        "storage.mountPath",
        "storage: {mountPath: data}",
        '"data" is not valid; it must start with "/" and name a folder below it.',
    ),
    InvalidValues(
        "storage.mountPath",
        "storage: {mountPath: /}",
        '"/" is not valid; it must start with "/" and name a folder below it.',
    ),
    InvalidValues(
        "storage.mountPath", "storage: {mountPath: /data/}", '"/data/" is not valid; it must start with "/" and name'
    ),
    InvalidValues(
        "storage.mountPath", "storage: {mountPath: 'C:/data'}", 'it must start with "/" and name a folder below it.'
    ),
    InvalidValues(
        "storage.mountPath",
        "storage: {mountPath: /etc/slipway/x}",
        "is a folder that the pods need for other files; use",
    ),
    InvalidValues(
        "storage.mountPath", "storage: {mountPath: /etc}", "is a folder that the pods need for other files; use"
    ),
    InvalidValues(
        "storage.mountPath",
        "storage: {mountPath: /usr/local}",
        "is a folder that the pods need for other files; use",
    ),
    InvalidValues(
        "storage.mountPath", "storage: {mountPath: /dev/shm}", "is a folder that the pods need for other files; use"
    ),
    InvalidValues(
        "storage.mountPath",
        "storage: {mountPath: /data/../etc}",
        'is not a plain path; write it without "..", "//" and',
    ),
    InvalidValues(
        "storage.mountPath",
        "storage: {mountPath: //etc/slipway}",
        'is not a plain path; write it without "..", "//" and',
    ),
    InvalidValues(
        "storage.sidecarLimits",
        'storage: {sidecarLimits: {gpu: "1"}}',
        '"gpu" is not a valid resource; use cpu, memory',
    ),
    InvalidValues(
        "storage.sidecarLimits.memory",
        "storage: {sidecarLimits: {memory: 1 GB}}",
        '"1 GB" is not a valid amount of memory;',
    ),
    InvalidValues(
        "storage.sidecarLimits.cpu", "storage: {sidecarLimits: {cpu: true}}", "got boolean, want null or number"
    ),
    InvalidValues(
        "storage.sidecarLimits.cpu", "storage: {sidecarLimits: {cpu: -1}}", '"-1" is not a valid amount of cpu;'
    ),
    InvalidValues(
        "storage.sidecarLimits.memory",
        "storage: {sidecarLimits: {memory: 512m, cpu: 500m, ephemeral-storage: '0'}}",
        '"512m" is less than 1 MiB; without a unit it is in bytes',
    ),
    InvalidValues(
        "storage.sidecarLimits.cpu", "storage: {sidecarLimits: {cpu: many}}", '"many" is not a valid amount of cpu;'
    ),
    InvalidValues(
        "storage.sidecarLimits.ephemeral-storage",
        "storage: {sidecarLimits: {ephemeral-storage: 5GB}}",
        '"5GB" is not a valid amount of ephemeral-storage; write it like 16Gi.',
    ),
    InvalidValues(
        "slice.placement",
        "slice: {accelerator: cpu, topology: '', placement: topology}\nworker: {cpu: '1', memory: 1Gi}",
        "topology is for slices of chips on node pools of their own; cpu does not need it.",
    ),
    InvalidValues(
        "cluster.maxSlices",
        "slice: {placement: topology}\ncluster: {maxSlices: 2}",
        "Kueue does not scale a cluster with slice.placement: topology; use exclusive.",
        (CLUSTER,),
    ),
    # The resources that pods request.
    InvalidValues(
        "worker.cpu",
        "slice: {accelerator: cpu, topology: ''}",
        "is empty; a cpu host has no chips to request, so set the cpu and the memory that it needs.",
    ),
    InvalidValues(
        "worker.memory",
        "slice: {accelerator: cpu, topology: ''}\nworker: {cpu: '1'}",
        "is empty; a cpu host has no chips to request, so set the cpu and the memory that it needs.",
    ),
    InvalidValues(
        "worker.cpu", "worker: {cpu: 8 cores}", '"8 cores" is not a valid amount of cpu; write it like 8 or 500m.'
    ),
    InvalidValues("worker.cpu", 'worker: {cpu: "0"}', '"0" is not a valid amount of cpu; write it like 8 or 500m.'),
    InvalidValues("worker.cpu", 'worker: {cpu: "-1"}', '"-1" is not a valid amount of cpu; write it like 8 or 500m.'),
    InvalidValues("worker.cpu", "worker: {cpu: 1e3m}", '"1e3m" is not a valid amount of cpu; write it like 8 or 500m.'),
    InvalidValues("worker.cpu", "worker: {cpu: [8]}", "got array, want number or string"),
    *(
        InvalidValues(
            key, f"{key.split('.')[0]}: {{{key.partition('.')[2]}: '{value}'}}", f'"{value}" is more than any machine'
        )
        for key, values in {
            "worker.cpu": ("10000", "100000.5k", "10000000m", "12Ki", "1M", "1e9"),
            "head.cpu": ("10000",),
            "worker.memory": ("100000Gi", "100Ti", "1Pi", "100000000000000k", "9.5e15"),
            "head.memory": ("1E",),
        }.items()
        for value in values
    ),
    InvalidValues(
        "storage.text.cacheSize", "storage: {text: {cacheSize: 500Ti}}", '"500Ti" is more than any machine has'
    ),
    InvalidValues("worker.cpu", "worker: {cpu: -8}", '"-8" is not a valid amount of cpu; write it like 8 or 500m.'),
    InvalidValues(
        "worker.memory", "worker: {memory: 16 GB}", '"16 GB" is not a valid amount of memory; write it like 16Gi.'
    ),
    InvalidValues(
        "worker.memory", "worker: {memory: 16GiB}", '"16GiB" is not a valid amount of memory; write it like 16Gi.'
    ),
    InvalidValues("worker.memory", 'worker: {memory: "16"}', '"16" is less than 1 MiB; without a unit it is in bytes'),
    InvalidValues("worker.memory", "worker: {memory: 0.5}", '"0.5" is less than 1 MiB; without a unit it is in bytes'),
    InvalidValues("head.memory", "head: {memory: 512m}", '"512m" is less than 1 MiB; without a unit it is in', RAY),
    InvalidValues(
        "cluster.groups.big.memory",
        "cluster: {groups: {big: {accelerator: v6e, topology: 4x4, memory: 16}}}",
        '"16" is less than 1 MiB; without a unit it is in bytes, and m is a thousandth. Write it like 16Gi.',
        (CLUSTER,),
    ),
    InvalidValues(
        "storage.text.cacheSize", "storage: {text: {cacheSize: 100}}", '"100" is less than 1 MiB; without a unit it is'
    ),
    InvalidValues(
        "worker.memory", "worker: {memory: 0Gi}", '"0Gi" is not a valid amount of memory; write it like 16Gi.'
    ),
    InvalidValues(
        "head.cpu", "head: {cpu: eight}", '"eight" is not a valid amount of cpu; write it like 8 or 500m.', RAY
    ),
    InvalidValues(
        "head.memory", "head: {memory: 16gb}", '"16gb" is not a valid amount of memory; write it like 16Gi.', RAY
    ),
    InvalidValues("head.cpu", 'head: {cpu: ""}', "minLength: got 0, want 1"),
    InvalidValues("security.runAsUser", "security: {runAsUser: -1}", "minimum: got -1, want 0"),
    InvalidValues("security.runAsUser", "security: {runAsUser: 4294967296}", "maximum: got"),
    InvalidValues("security.runAsUser", "security: {runAsUser: root}", "got string, want integer"),
    InvalidValues("security.privileged", 'security: {privileged: "yes"}', "got string, want boolean"),
    # The environment.
    InvalidValues(
        "worker.env", 'worker: {env: {XLA-FLAGS: "a"}}', '"XLA-FLAGS" is not a valid variable name; use letters, digits'
    ),
    InvalidValues("worker.env", 'worker: {env: {"": "a"}}', '"" is not a valid variable name; use letters, digits and'),
    InvalidValues("worker.env.A", "worker: {env: {A: 1}}", "got number, want null or string"),
    InvalidValues("worker.env.A", "worker: {env: {A: true}}", "got boolean, want null or string"),
    InvalidValues("worker.env", "worker: {env: [{name: A, value: b}]}", "got array, want object"),
    InvalidValues(
        "worker.secretEnv.A",
        "worker: {env: {A: a}, secretEnv: {A: {name: my, key: k}}}",
        "worker.env.A and worker.secretEnv.A are both set; remove one of them.",
    ),
    InvalidValues(
        "worker.secretEnv", "worker: {secretEnv: {A-B: {name: my, key: k}}}", '"A-B" is not a valid variable name;'
    ),
    InvalidValues("worker.secretEnv.A.key", "worker: {secretEnv: {A: {name: my}}}", "missing property 'key'"),
    InvalidValues(
        "worker.secretEnv.A.name",
        "worker: {secretEnv: {A: {name: My, key: k}}}",
        '"My" is not a valid object name; use',
    ),
    InvalidValues(
        "worker.secretEnv.A.key",
        "worker: {secretEnv: {A: {name: my, key: a/b}}}",
        '"a/b" is not a valid key of a Secret; use',
    ),
    InvalidValues("worker.secretEnv.A", "worker: {secretEnv: {A: token}}", "got string, want null or object"),
    InvalidValues(
        "worker.secretEnv.JAX_PLATFORMS",
        "worker: {secretEnv: {JAX_PLATFORMS: {name: my, key: k}}}",
        "is set by Slipway; to change it, set worker.env.JAX_PLATFORMS.",
    ),
    InvalidValues(
        "worker.env.JOB_INDEX", 'worker: {env: {JOB_INDEX: "0"}}', "is set by Slipway; remove it.", (JOB_SET,)
    ),
    *(
        InvalidValues(
            f"worker.env.{name}",
            f'worker: {{env: {{{name}: "0"}}}}',
            f"would be the same on every host, and {name} is set for each host; remove it.",
            kinds,
        )
        for name, kinds in (
            ("TPU_WORKER_ID", ALL),
            ("TPU_WORKER_HOSTNAMES", ALL),
            ("TPU_TOPOLOGY", ALL),
            ("TPU_PROCESS_ADDRESSES", ALL),
            ("CLOUD_TPU_TASK_ID", ALL),
            ("TPU_VISIBLE_CHIPS", ALL),
            ("MEGASCALE_SLICE_ID", ALL),
            ("SLIPWAY_HOST_INDEX", ALL),
            ("SLIPWAY_NODE", ALL),
            ("JAX_COORDINATOR_ADDRESS", ALL),
            ("JOB_COMPLETION_INDEX", (JOB_SET,)),
        )
    ),
    InvalidValues(
        "worker.secretEnv.JAX_PROCESS_ID",
        "worker: {secretEnv: {JAX_PROCESS_ID: {name: my, key: k}}}",
        "would be the same on every host, and JAX_PROCESS_ID is set for each host; remove it.",
    ),
    InvalidValues(
        "worker.env.RAY_ADDRESS",
        "worker: {env: {RAY_ADDRESS: auto}}",
        "KubeRay sets RAY_ADDRESS, the place of a host in its Ray cluster; remove it.",
        RAY,
    ),
    InvalidValues(
        "worker.envFrom", "worker: {envFrom: {My Settings: ConfigMap}}", '"My Settings" is not a valid object name; use'
    ),
    # Additional fields of the pods.
    InvalidValues(
        "pods.extraVolumes", "pods: {extraVolumes: {storage: {emptyDir: {}}}}", "already have a volume storage"
    ),
    InvalidValues("pods.extraVolumes.ca", "pods: {extraVolumes: {ca: {}}}", "minProperties: got 0, want 1"),
    InvalidValues("pods.extraVolumes", "pods: {extraVolumes: {A b: {emptyDir: {}}}}", '"A b" is not a valid name;'),
    InvalidValues(
        "pods.extraVolumes.ca",
        "pods: {extraVolumes: {ca: {configMap: {name: a}, emptyDir: {}}}}",
        "has 2 sources; a volume has one. In an overlay, null removes that of another file.",
    ),
    InvalidValues(
        "pods.extraVolumes.ca.emptyDir", "pods: {extraVolumes: {ca: {emptyDir: Memory}}}", "got string, want"
    ),
    InvalidValues(
        "pods.affinity.nodeaffinity", "pods: {affinity: {nodeaffinity: {}}}", "additional properties 'nodeaffinity' not"
    ),
    InvalidValues("pods.affinity.nodeAffinity", "pods: {affinity: {nodeAffinity: [a]}}", "got array, want null or"),
    InvalidValues(
        "worker.pods.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        "worker: {pods: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {a: b}}}}}",
        "got object, want array",
    ),
    InvalidValues(
        "head.pods.initContainers",
        "head: {pods: {initContainers: {ray-head: {image: i}}}}",
        "already have a container ray-head",
    ),
    InvalidValues(
        "pods.sidecars", "pods: {sidecars: {A b: {image: i}}}", '"A b" is not a valid name;', (RUN, CLUSTER, SERVE)
    ),
    InvalidValues(
        "pods.sidecars.logs",
        "pods: {sidecars: {logs: {image: i}}}",
        "move it to pods.initContainers, with restartPolicy: Always.",
        (JOB_SET,),
    ),
    InvalidValues(
        "worker.pods.sidecar", "worker: {pods: {sidecar: {}}}", "additional properties 'sidecar' not allowed"
    ),
    InvalidValues(
        "pods.extraVolumeMounts", "pods: {extraVolumeMounts: {data: {name: a}}}", '"data" is not a mount path;'
    ),
    InvalidValues(
        "pods.extraVolumeMounts", "pods: {extraVolumeMounts: {/dev/shm: {name: a}}}", "Slipway uses /dev/shm; mount"
    ),
    InvalidValues(
        "pods.extraVolumeMounts", "pods: {extraVolumeMounts: {/a/: {name: storage}}}", '"/a/" is not a mount path;'
    ),
    InvalidValues(
        "worker.pods.extraVolumeMounts",
        "worker: {pods: {extraVolumeMounts: {/data: {name: storage}}}}",
        "/data is storage.mountPath, where the storage of the run is; mount the volume at another path.",
    ),
    InvalidValues(
        "pods.extraVolumeMounts",
        "pods: {extraVolumeMounts: {/text: {name: storage}}}\nstorage: {text: {bucket: texts}}",
        "/text is storage.text.mountPath, where the text is; mount the volume at another path.",
    ),
    InvalidValues(
        "pods.extraVolumeMounts./etc/ca.name",
        "pods: {extraVolumeMounts: {/etc/ca: {name: ca}}, extraVolumes: {corporate-ca: {configMap: {name: ca}}}}",
        'there is no volume "ca"; add it to pods.extraVolumes.',
    ),
    InvalidValues(
        "pods.lifecycle",
        "pods: {lifecycle: {preStop: {exec: {command: [sleep, '600']}}}}",
        "preStop is not available, because Slipway's own hook asks a run that must end for one more checkpoint;",
    ),
    InvalidValues(
        "pods.extra.hostNetwork", "pods: {extra: {hostNetwork: true}}", "set security.hostNetwork instead, which also"
    ),
    InvalidValues(
        "worker.pods.extra.hostNetwork",
        "worker: {pods: {extra: {hostNetwork: true}}}",
        "set security.hostNetwork instead, which also",
    ),
    InvalidValues(
        "worker.pods.extra.terminationGracePeriodSeconds",
        "worker: {pods: {extra: {terminationGracePeriodSeconds: 5}}}",
        "set run.graceSeconds instead, which also limits how long the last checkpoint may take.",
    ),
    InvalidValues(
        "pods.extra.tolerations",
        "pods: {extra: {tolerations: [{operator: Exists}]}}",
        "replaces the tolerations for the nodes of v6e; set head.tolerations and worker.tolerations instead.",
    ),
    InvalidValues(
        "pods.extra.nodeSelector",
        "pods: {extra: {nodeSelector: {cloud.google.com/gke-tpu-topology: 2x2}}}",
        "set head.nodeSelector or worker.nodeSelector instead, which are compared with the slice.",
    ),
    InvalidValues(
        "worker.pods.extra.initContainers",
        "worker: {pods: {extra: {initContainers: [{name: logs, image: i}]}}}",
        "set pods.initContainers instead, which has the same fields.",
    ),
    InvalidValues(
        "pods.extra.volumes",
        "pods: {extra: {volumes: [{name: storage, emptyDir: {}}]}}",
        "replaces all volumes, and lacks storage or shared-memory; set pods.extraVolumes instead, which adds volumes.",
    ),
    InvalidValues(
        "pods.extra.containers",
        "pods: {extra: {containers: [{name: ray-head, image: i}]}}",
        "replaces the containers of the head and of the hosts, which differ; set pods.sidecars, or head.pods.extra",
        (RUN, CLUSTER, SERVE),
    ),
    InvalidValues(
        "head.pods.extra.containers",
        "head: {pods: {extra: {containers: [{name: logs, image: i}]}}}",
        "lacks ray-head, which runs Ray; set pods.sidecars instead",
        (RUN, CLUSTER, SERVE),
    ),
    InvalidValues(
        "worker.pods.extra.containers",
        "worker: {pods: {extra: {containers: [{name: logs, image: i}]}}}",
        "lacks ray-worker, which runs Ray; set pods.sidecars instead",
        (RUN, CLUSTER, SERVE),
    ),
    InvalidValues(
        "worker.pods.extra.containers",
        "worker: {pods: {extra: {containers: [{image: i}]}}}",
        "lacks trainer, which trains; set pods.initContainers instead, which adds containers.",
        (JOB_SET,),
    ),
    InvalidValues(
        "pods.extra.containers",
        "pods: {extra: {containers: [{name: trainer, image: i}, {name: logs, image: i}]}}",
        '"logs": a JobSet finishes only after all containers of its pods have ended; move it to pods.initContainers',
        (JOB_SET,),
    ),
    InvalidValues(
        "head.envFrom", "head: {envFrom: {My Settings: ConfigMap}}", '"My Settings" is not a valid object name; use'
    ),
    InvalidValues(
        "commonLabels", "commonLabels: {slipway.dev/run: a}", "a controller sets slipway.dev/run; remove it."
    ),
    InvalidValues("commonLabels", "commonLabels: {a b: c}", '"a b" is not a valid key of a label;'),
    InvalidValues("commonLabels.a", "commonLabels: {a: b c}", '"b c" is not a valid label value;'),
    InvalidValues("commonAnnotations", "commonAnnotations: {a b: c}", '"a b" is not a valid key of an annotation;'),
    InvalidValues(
        "pods.annotations",
        "pods: {annotations: {ray.io/a: b}}",
        "Slipway or a controller sets ray.io/a; remove it.",
    ),
    InvalidValues("head.env", "head: {env: {A-B: a}}", '"A-B" is not a valid variable name;'),
    InvalidValues(
        "head.secretEnv.A",
        "head: {env: {A: a}, secretEnv: {A: {name: my, key: k}}}",
        "head.env.A and head.secretEnv.A are both set; remove one of them.",
    ),
    InvalidValues(
        "head.env.RAY_JOB_STOP_WAIT_TIME_S",
        "head: {env: {RAY_JOB_STOP_WAIT_TIME_S: '1'}}",
        "is set by Slipway or KubeRay; remove it.",
    ),
    InvalidValues("head.env.MY_TOKEN", "head: {env: {MY_TOKEN: a}}", "would store a secret in the run's record;"),
    InvalidValues(
        "worker.envFrom.a", "worker: {envFrom: {a: Configmap}}", "is not a kind of object with variables; use ConfigMap"
    ),
    # Nodes.
    InvalidValues(
        "worker.nodeSelector",
        'worker: {nodeSelector: {"a: b": c}}',
        '"a: b" is not a valid label key; use letters, digits',
    ),
    InvalidValues(
        "worker.nodeSelector.a", "worker: {nodeSelector: {a: b c}}", '"b c" is not a valid label value; use at most 63'
    ),
    InvalidValues(
        "worker.nodeSelector",
        "worker: {nodeSelector: {cloud.google.com/gke-tpu-topology: 2x2}}",
        '"2x2" contradicts slice.topology, 4x4: no node has both labels. Remove it, or change slice.topology.',
    ),
    InvalidValues(
        "worker.nodeSelector",
        "worker: {nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v5p-slice}}",
        '"tpu-v5p-slice" contradicts slice.accelerator, whose nodes have tpu-v6e-slice: no node has both labels.',
    ),
    InvalidValues(
        "worker.nodeSelector",
        "worker: {nodeSelector: {node.kubernetes.io/instance-type: ct5p-hightpu-4t}}",
        '"ct5p-hightpu-4t" contradicts slice.machineType, ct6e-standard-4t. Remove it, and set slice.machineType.',
    ),
    InvalidValues(
        "worker.nodeSelector",
        "worker: {nodeSelector: {kubernetes.io/arch: arm64}}",
        '"arm64" is wrong for v6e, whose nodes have amd64. Remove it.',
    ),
    InvalidValues(
        "worker.nodeSelector",
        "worker: {nodeSelector: {kubernetes.io/os: windows}}",
        '"windows" is wrong: the image is for linux. Remove it.',
    ),
    InvalidValues(
        "worker.nodeSelector",
        "worker: {nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}}",
        "nodes of v6e do not have this label. Remove it, or change slice.accelerator.",
    ),
    InvalidValues(
        "worker.nodeSelector",
        "slice: {accelerator: h100-80gb, topology: ''}\n"
        "worker: {nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}}",
        '"nvidia-l4" contradicts slice.accelerator, whose nodes have nvidia-h100-80gb: no node has both labels.',
    ),
    InvalidValues(
        "worker.nodeSelector",
        "slice: {accelerator: h100-80gb, topology: ''}\n"
        "worker: {nodeSelector: {cloud.google.com/gke-tpu-topology: 2x2}}",
        "nodes of h100-80gb do not have this label. Remove it, or change slice.accelerator.",
    ),
    InvalidValues(
        "worker.nodeSelector",
        "worker: {nodeSelector: {cloud.google.com/gke-accelerator-count: '8'}}",
        '"8" contradicts slice.machineType, ct6e-standard-4t, which has 4 chips. Remove it, and set slice.machineType.',
    ),
    InvalidValues(
        "worker.nodeSelector",
        "slice: {accelerator: h100-80gb, topology: ''}\n"
        "worker: {nodeSelector: {cloud.google.com/gke-accelerator-count: '2'}}",
        '"2" contradicts slice.machineType, a3-highgpu-8g, which has 8 GPUs. Remove it, and set slice.machineType.',
    ),
    InvalidValues(
        "worker.nodeSelector",
        "slice: {provisioning: reservation, reservation: mine}\n"
        "worker: {nodeSelector: {cloud.google.com/reservation-name: other}}",
        '"other" contradicts slice.reservation, mine: no node has both labels. Remove it, or change slice.reservation.',
    ),
    InvalidValues(
        "worker.nodeSelector",
        "slice: {accelerator: h100-80gb, topology: ''}\nworker: {nodeSelector: {node.kubernetes.io/instance-type: g2}}",
        '"g2" contradicts slice.machineType, a3-highgpu-8g. Remove it, and set slice.machineType.',
    ),
    InvalidValues(
        "worker.avoidNodes", "worker: {avoidNodes: {Node_1: 2099-01-01}}", '"Node_1" is not a valid node name;'
    ),
    InvalidValues("worker.avoidNodes", "worker: {avoidNodes: {a..b: 2099-01-01}}", '"a..b" is not a valid node name;'),
    InvalidValues(
        "worker.avoidNodes",
        f"worker: {{avoidNodes: {{{64 * 'a'}: 2099-01-01}}}}",
        "is too long; the name of a node, which is its label",
    ),
    InvalidValues(
        "worker.avoidNodes.a",
        "worker: {avoidNodes: {a: tomorrow}}",
        '"tomorrow" is not a date or a time; write until when',
    ),
    InvalidValues(
        "worker.avoidNodes.a", "worker: {avoidNodes: {a: 2099-02-29}}", '"2099-02-29" is not a date or a time;'
    ),
    InvalidValues(
        "worker.avoidNodes.a",
        "worker: {avoidNodes: {a: '2099-01-01T10:00:00'}}",
        "is not a date or a time; write until when",
    ),
    InvalidValues(
        "worker.avoidNodes.a", "worker: {avoidNodes: {a: ''}}", '"" is not a date or a time; write until when'
    ),
    InvalidValues("worker.avoidNodes.a", "worker: {avoidNodes: {a: 7}}", "got number, want null or string"),
    InvalidValues(
        "worker.avoidNodes",
        f"worker: {{avoidNodes: {{{', '.join(f'n{n}: 2099-01-01' for n in range(65))}}}}}",
        "worker.avoidNodes has 65 entries; it can have at most 64.",
    ),
    InvalidValues(
        "head.nodeSelector",
        "head: {nodeSelector: {kubernetes.io/os: windows}}",
        "the image is for linux. Remove it.",
        RAY,
    ),
    InvalidValues(
        "worker.nodeSelector",
        "cluster: {groups: {big: {accelerator: v6e, topology: 2x2}}}\n"
        "worker: {nodeSelector: {cloud.google.com/gke-tpu-topology: 4x4}}",
        '"4x4" contradicts cluster.groups.big.topology, 2x2: no node has both labels.',
        (CLUSTER,),
    ),
    InvalidValues("worker.nodeSelector.a", "worker: {nodeSelector: {a: true}}", "got boolean, want null or string"),
    InvalidValues(
        "head.nodeSelector",
        'head: {nodeSelector: {"{{x}}": c}}',
        '"{{x}}" is not a valid label key; use letters, digits',
        RAY,
    ),
    InvalidValues(
        "head.nodeSelector.a", "head: {nodeSelector: {a: b c}}", '"b c" is not a valid label value; use at most 63', RAY
    ),
    InvalidValues(
        "worker.tolerations.x.when", "worker: {tolerations: {x: {key: k, when: now}}}", "additional properties 'when'"
    ),
    InvalidValues(
        "worker.tolerations.x.operator",
        "worker: {tolerations: {x: {key: k, operator: In}}}",
        "must be one of 'Exists', 'Equal'",
    ),
    InvalidValues(
        "worker.tolerations.x.key", "worker: {tolerations: {x: {operator: Exists}}}", "missing property 'key'"
    ),
    InvalidValues("worker.tolerations", "worker: {tolerations: [{key: k}]}", "got array, want object"),
    InvalidValues(
        "worker.tolerations.x",
        "worker: {tolerations: {x: {key: k, operator: Exists, value: v}}}",
        "operator Exists takes no value; remove one of them.",
    ),
    InvalidValues(
        "head.tolerations.x",
        'head: {tolerations: {x: {key: ""}}}',
        "key is empty; set the key of the taint, or operator: Exists",
    ),
    InvalidValues(
        "head.tolerations.x.key", "head: {tolerations: {x: {key: a b}}}", '"a b" is not a valid taint key; use letters,'
    ),
    InvalidValues(
        "head.tolerations.x.value",
        "head: {tolerations: {x: {key: k, value: a b}}}",
        '"a b" is not a valid taint value;',
    ),
    InvalidValues(
        "worker.tolerations.x",
        "worker: {tolerations: {x: {key: k, tolerationSeconds: 60}}}",
        "tolerationSeconds requires effect: NoExecute.",
    ),
    InvalidValues(
        "worker.tolerations.x.tolerationSeconds",
        "worker: {tolerations: {x: {key: k, effect: NoExecute, tolerationSeconds: 1e30}}}",
        "maximum: got",
    ),
    # A long-lived Ray cluster.
    InvalidValues(
        "cluster.minSlices",
        "cluster: {minSlices: 1}",
        "requires cluster.maxSlices, the maximum size of a group.",
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.minSlices",
        "cluster: {minSlices: 3, maxSlices: 2}",
        "is 3; it must be at most cluster.maxSlices, 2.",
        (CLUSTER,),
    ),
    InvalidValues("cluster.idleSeconds", "cluster: {idleSeconds: 0}", "minimum: got 0, want 1"),
    InvalidValues(
        "security.k8sTokenAuth",
        "team: {name: ours}\nsecurity: {k8sTokenAuth: true, tokenAuth: false}",
        "requires security.tokenAuth: true.",
        (CLUSTER,),
    ),
    InvalidValues(
        "security.k8sTokenAuth",
        'team: {name: ""}\nsecurity: {k8sTokenAuth: true}',
        "requires team.serviceAccount or team.name: a service account that may review tokens,",
        (CLUSTER,),
    ),
    InvalidValues("security.k8sTokenAuth", 'security: {k8sTokenAuth: "yes"}', "got string, want boolean"),
    InvalidValues("cluster.groups", "cluster: {groups: [{accelerator: v5e}]}", "got array, want object"),
    *[
        InvalidValues(
            f"cluster.groups.{name}",
            f"cluster: {{groups: {{{name}: {{accelerator: v5e, topology: 2x4}}}}}}",
            f'"{name}" is not a valid group name; use lowercase letters, digits and hyphens, and not',
            (CLUSTER,),
        )
        for name in ("head", "slice", "headgroup", "Head", "a-", "a_b", "a" * 53)
    ],
    InvalidValues(
        "cluster.groups",
        f"cluster: {{groups: {{{', '.join(f'g{i}: {{accelerator: v5e, topology: 2x4}}' for i in range(17))}}}}}",
        "the Ray cluster has 19 pod sets, including its head, and Kueue accepts at most 18; use fewer groups.",
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.groups.a.accelerator", "cluster: {groups: {a: {topology: 2x4}}}", "missing property 'accelerator'"
    ),
    InvalidValues(
        "cluster.groups.a.topolgy", "cluster: {groups: {a: {accelerator: v5e, topolgy: 2x4}}}", "additional properties"
    ),
    InvalidValues(
        "cluster.groups.a.topology",
        "cluster: {groups: {a: {accelerator: v5e, topology: 3x3}}}",
        '"3x3" is not a topology of v5e; use 1x1,',
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.groups.a.cpu",
        "cluster: {groups: {a: {accelerator: cpu}}}",
        "is empty; a cpu host has no chips to request, so set the cpu and the memory that it needs.",
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.groups.a.cpu",
        "cluster: {groups: {a: {accelerator: v5e, topology: 2x4, cpu: 8 cores}}}",
        '"8 cores" is not a valid amount of cpu; write it like 8 or 500m.',
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.groups.a.memory",
        "cluster: {groups: {a: {accelerator: cpu, cpu: '1', memory: 16 GB}}}",
        '"16 GB" is not a valid amount of memory; write it like 16Gi.',
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.groups.a.count",
        "cluster: {groups: {a: {accelerator: v5e, topology: 2x4, count: 1e30}}}",
        "maximum: got",
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.groups.a.provisioning",
        "cluster: {groups: {a: {accelerator: v5e, topology: 2x4, provisioning: reservation}}}",
        "is reservation; cluster.groups.a.reservation must name it.",
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.groups.slice-0",
        "slice: {count: 2, placement: topology}\ncluster: {groups: {slice-0: {accelerator: v5e, topology: 2x4}}}",
        'there are two groups "slice-0", one of them a slice of a larger group; rename this one.',
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.labels", 'cluster: {labels: {"a: b": c}}', '"a: b" is not a valid label key; use letters,', (CLUSTER,)
    ),
    InvalidValues(
        "cluster.labels.a",
        "cluster: {labels: {a: b/c}}",
        '"b/c" is not a valid label value; use at most 63',
        (CLUSTER,),
    ),
    InvalidValues(
        "cluster.labels.app.kubernetes.io/name",
        "cluster: {labels: {app.kubernetes.io/name: x}}",
        "is set by Slipway; remove it.",
        (CLUSTER,),
    ),
    # The text to train on.
    InvalidValues(
        "data", 'data: {corpus: ""}', "there is nothing to train on; set data.files, or data.corpus: python,", RUNS
    ),
    InvalidValues("data.corpus", "data: {files: [/a]}", "data.files and data.corpus are both set; remove one", RUNS),
    InvalidValues(
        "data.files",
        "data: {corpus: '', files: ['gs://b/x.txt']}",
        '"gs://b/x.txt" is a URL; the trainer reads files',
        RUNS,
    ),
    *(
        InvalidValues(
            "data.files",
            f"data: {{corpus: '', files: ['{text}']}}",
            f'"{text}" is not a data set of Hugging Face; write hf:ORG/NAME or hf:ORG/NAME@REVISION/SUBSET/SPLIT.',
            RUNS,
        )
        for text in ("hf:texts", "hf://datasets/example/texts", "hf:example/texts@a@b", "hf:example/texts:train")
    ),
    *(
        InvalidValues(
            "data.files",
            f"data: {{corpus: '', files: ['{text}']}}",
            f'"{text}" is not an item that the trainer reads; write hf:ORG/NAME or hf:ORG/NAME@REVISION/SUBSET/SPLIT.',
            RUNS,
        )
        for text in ("hf:datasets/org/name", "HF:org/name", "https://huggingface.co/datasets/org/name")
    ),
    InvalidValues(
        "data.files",
        "data: {corpus: '', files: [/data/A.JSONL.BZ2]}",
        '"/data/A.JSONL.BZ2" is not a .txt, .md, .jsonl or .parquet file; convert it.',
        RUNS,
    ),
    InvalidValues(
        "data.files", "data: {corpus: '', files: [' ']}", "has an empty item; remove it, or name a file.", RUNS
    ),
    InvalidValues("data.files", "data: {corpus: '', files: a.txt}", "got string, want array"),
    InvalidValues(
        "data.heldOut.files",
        "data: {heldOut: {files: ['s3://b/x']}}",
        '"s3://b/x" is a URL; the trainer reads files',
        RUNS,
    ),
    InvalidValues(
        "data.files",
        "data: {corpus: '', files: [text/a.txt]}",
        '"text/a.txt" is a relative path, and the pods do not have the files of this machine; write the path in',
        RUNS,
    ),
    InvalidValues(
        "data.heldOut.files",
        "data: {heldOut: {files: [/data/a.CSV]}}",
        '"/data/a.CSV" is not a .txt, .md, .jsonl or .parquet file; convert it. A folder of this name needs a "/"',
        RUNS,
    ),
    InvalidValues(
        "data.mixture",
        "data: {mixture: {a: {files: [/a], weight: 1}}}",
        "data.mixture and data.corpus are both set; remove one of them",
        RUNS,
    ),
    InvalidValues(
        "data.mixture",
        "data: {corpus: '', files: [/b], mixture: {a: {files: [/a], weight: 1}}}",
        "data.mixture and data.files are both set; remove one of them",
        RUNS,
    ),
    InvalidValues(
        "data.mixture",
        "data: {corpus: '', mixture: {a/b: {files: [/a], weight: 1}}}",
        '"a/b" is not a valid name of a source; use letters, digits, hyphens and underscores.',
        RUNS,
    ),
    *(
        InvalidValues(
            "data.mixture.a.files",
            f"data: {{corpus: '', mixture: {{a: {{files: ['{text}'], weight: 1}}}}}}",
            says,
            RUNS,
        )
        for text, says in (
            ("", "has an empty item; remove it, or name a file."),
            ("hf:texts", '"hf:texts" is not a data set of Hugging Face'),
            ("gs://b/x.txt", '"gs://b/x.txt" is a URL; the trainer reads files'),
            ("a.txt", '"a.txt" is a relative path, and the pods do not have the files of this machine'),
            ("/data/a.csv", '"/data/a.csv" is not a .txt, .md, .jsonl or .parquet file; convert it.'),
        )
    ),
    InvalidValues(
        "data.mixture.a.files",
        "data: {corpus: '', mixture: {a: {files: [], weight: 1}}}",
        "minItems: got 0, want 1",
    ),
    InvalidValues(
        "data.mixture.a.weight",
        "data: {corpus: '', mixture: {a: {files: [/a], weight: 0}}}",
        "minimum: got 0, want 0.001",
    ),
    InvalidValues(
        "data.mixture.a.weight",
        "data: {corpus: '', mixture: {a: {files: [/a], weight: -1}}}",
        "minimum: got -1, want 0.001",
    ),
    InvalidValues(
        "data.mixture.a.weight",
        "data: {corpus: '', mixture: {a: {files: [/a]}}}",
        "missing property 'weight'",
    ),
    *(
        InvalidValues(
            key,
            f"{values}\n{have}: {{secretEnv: {{HF_TOKEN: {{name: a, key: b}}}}}}",
            says,
            (RUN,),
        )
        for have, says in (
            ("worker", "and only worker.secretEnv has HF_TOKEN; set head.secretEnv.HF_TOKEN."),
            ("head", "and only head.secretEnv has HF_TOKEN; set worker.secretEnv.HF_TOKEN."),
        )
        for key, values in (
            ("data.files", "data: {corpus: '', files: ['hf:a/b']}"),
            ("data.heldOut.files", "data: {heldOut: {files: ['hf:a/b']}}"),
            ("data.mixture.a.files", "data: {corpus: '', mixture: {a: {files: ['hf:a/b'], weight: 1}}}"),
        )
    ),
    InvalidValues("data.heldOut.fraction", "data: {heldOut: {fraction: 0.6}}", "maximum: got 0.6, want 0.5"),
    InvalidValues("data.corpus", "data: {corpus: wikipedia}", "value must be one of '', 'python'"),
    InvalidValues(
        "data",
        f"data: {{corpus: '', files: [{', '.join('/x' * 50 + str(i) for i in range(1200))}]}}",
        "the run config is too large: a Kubernetes object can have at most 256 KiB of annotations;",
        RUNS,
        launcher=ADDS,
    ),
    InvalidValues("train", "train: [steps]", "got array, want object"),
    # The table of accelerators.
    InvalidValues(
        "common.accelerators.v6e.kid",
        "common: {accelerators: {v6e: {kid: 1}}}",
        "additional properties 'kid' not allowed",
    ),
    InvalidValues(
        "common.accelerators.v6e.hostMemoryGiB.ct6e-standard-4t",
        "common: {accelerators: {v6e: {hostMemoryGiB: {ct6e-standard-4t: 720GB}}}}",
        "got string, want null or number",
    ),
    InvalidValues(
        "common.prices.v6e.perChipHour.spot",
        "common: {prices: {v6e: {perChipHour: {spot: cheap}}}}",
        "got string, want number",
    ),
    InvalidValues(
        "common.prices.v6e.price", "common: {prices: {v6e: {price: 1}}}", "additional properties 'price' not allowed"
    ),
    InvalidValues(
        "common.accelerators.v6e.hbmGiB", "common: {accelerators: {v6e: {hbmGiB: 32GB}}}", "got string, want number"
    ),
    InvalidValues(
        "common.accelerators.v6e.kind",
        "common: {accelerators: {v6e: {kind: asic}}}",
        "value must be one of 'tpu', 'gpu',",
    ),
    InvalidValues(
        "common.accelerators.l4.label", "common: {accelerators: {l4: {label: NVIDIA L4}}}", "does not match pattern"
    ),
    InvalidValues(
        "common.accelerators.l4.labelKey", "common: {accelerators: {l4: {labelKey: a/b/c}}}", "does not match pattern"
    ),
    InvalidValues(
        "common.accelerators.l4.resource", "common: {accelerators: {l4: {resource: gpu}}}", "does not match pattern"
    ),
    InvalidValues(
        "common.accelerators.mine.hbmGiB",
        "common: {accelerators: {mine: {kind: gpu, label: a, rayAcceleratorType: a, dimensions: 0, machineTypes: {}, "
        "peakTflops: 1}}}",
        "missing property 'hbmGiB'",
    ),
    InvalidValues("common.acelerators", "common: {acelerators: {}}", "additional properties 'acelerators' not allowed"),
    InvalidValues(
        "common.accelerators.v6e.topologies.x",
        "common: {accelerators: {v6e: {topologies: {x: [ct6e-standard-4t]}}}}",
        '"x" is not a valid topology; write it like 4x4.',
    ),
    InvalidValues(
        "common.accelerators.v6e.topologies.3x3",
        "common: {accelerators: {v6e: {topologies: {3x3: [ct6e-standard-4t]}}}}",
        "9 chips are not a whole number of hosts; a host of ct6e-standard-4t has 4 chips.",
    ),
    InvalidValues(
        "common.accelerators.v5p.larger",
        "slice: {accelerator: v5p, topology: 4x4x8}\n"
        "common: {accelerators: {v5p: {larger: {machineTypes: [ct5p-hightpu-4t, nope]}}}}",
        '"nope" is not in common.accelerators.v5p.machineTypes; add it there with its chips per host.',
    ),
    # Tracking.
    InvalidValues("tracking.metricsPort", "tracking: {metricsPort: -1}", "minimum: got -1, want 0"),
    InvalidValues("tracking.metricsPort", "tracking: {metricsPort: 65536}", "maximum: got"),
    InvalidValues("tracking.metricsPort", "tracking: {metricsPort: on}", "got boolean, want integer"),
    *(
        InvalidValues(
            "tracking.metricsPort", f"tracking: {{metricsPort: {port}}}", f"{port} is a port that the system, Ray, JAX"
        )
        for port in (80, 1023, 8080, 8265, 8471, 10001, 19999)
    ),
    InvalidValues("tracking.metricPort", "tracking: {metricPort: 1}", "additional properties 'metricPort' not allowed"),
    InvalidValues(
        "tracking.wandb.projct", "tracking: {wandb: {projct: p}}", "additional properties 'projct' not allowed"
    ),
    InvalidValues(
        "tracking.historyServer.image",
        "tracking: {historyServer: {image: quay.io/kuberay/collector:v1.7.0}}",
        "tracking.historyServer.image is set; set tracking.historyServer.bucket, the bucket that the collector ",
        (RUN, CLUSTER),
    ),
    InvalidValues(
        "tracking.historyServer.bucket",
        "tracking: {historyServer: {bucket: history}}",
        "tracking.historyServer.bucket is set; set tracking.historyServer.image, such as quay.io/kuberay/",
    ),
    InvalidValues(
        "tracking.historyServer.image",
        "tracking: {historyServer: {image: quay.io/kuberay/collector:v1.7.0, bucket: history}}",
        "tracking.historyServer.image: a JobSet has no Ray cluster, whose history the server shows; remove it.",
        (JOB_SET,),
    ),
    InvalidValues("tracking.wandb", "tracking: {wandb: true}", "got boolean, want object"),
    InvalidValues(
        "tracking.wandb.mode", "tracking: {wandb: {mode: shared}}", "value must be one of 'online', 'offline'"
    ),
    InvalidValues(
        "tracking.wandb.project",
        "tracking: {wandb: {project: ours/llama, secret: {name: wandb}}}",
        '"ours/llama" is not a valid project name; use at most 128 characters, and none of / \\ # ? % and :.',
    ),
    InvalidValues(
        "tracking.wandb.secret.name",
        "tracking: {wandb: {project: llama}}",
        "tracking.wandb.project is set; tracking.wandb.secret.name must name the Secret with the API key",
        RUNS,
    ),
    InvalidValues(
        "tracking.wandb.secret.name",
        "tracking: {wandb: {secret: {name: Wandb}}}",
        '"Wandb" is not a valid object name; use lowercase letters',
    ),
    InvalidValues(
        "tracking.wandb.secret.key",
        "tracking: {wandb: {secret: {name: wandb, key: a/b}}}",
        '"a/b" is not a valid key of a Secret; use letters',
    ),
    InvalidValues(
        "worker.env.WANDB_API_KEY",
        "worker: {env: {WANDB_API_KEY: x}}",
        "worker.env.WANDB_API_KEY would store a secret in the run's record; put it into a Secret, and set "
        "worker.secretEnv.WANDB_API_KEY to the Secret's name and key.",
    ),
    InvalidValues(
        "worker.secretEnv.WANDB_API_KEY",
        "worker: {secretEnv: {WANDB_API_KEY: {name: my, key: k}}}\ntracking: {wandb: {secret: {name: wandb}}}",
        "worker.secretEnv.WANDB_API_KEY and tracking.wandb.secret.name are both set; remove one of them.",
    ),
    InvalidValues(
        "notify.secret",
        "notify: {secret: Our_Secret}",
        '"Our_Secret" is not a valid object name; use lowercase letters',
    ),
    InvalidValues(
        "data.tokenizer.path",
        "data: {tokenizer: {kind: tiktoken, path: /data/tokenizer.model}}",
        '"/data/tokenizer.model" does not contain "tiktoken", as MaxText requires; rename the file',
        RUNS,
    ),
    *(
        InvalidValues(
            "data.tokenizer.path",
            f"data: {{tokenizer: {{kind: huggingface, path: '{path}'}}}}",
            f'"{path}" is neither a folder in the pods nor a name on Hugging Face',
            RUNS,
        )
        for path in ("hf:org/name", "https://huggingface.co/org/name", "gs://bucket/name", "./tokenizer", "a/b/c")
    ),
    *(
        InvalidValues(
            "data.tokenizer.path",
            f"data: {{tokenizer: {{kind: huggingface, path: {path}}}}}",
            f'"{path}" is a file; with data.tokenizer.kind: huggingface, set the path of its folder',
            RUNS,
        )
        for path in ("/data/name/tokenizer.json", "tokenizer.json", "/data/name/tokenizer.model")
    ),
    # Keys of MaxText.
    InvalidValues("train.ici_parallelism", "train: {ici_parallelism: [1, 4]}", "is calculated by MaxText; set", RUNS),
    InvalidValues("train.dcn_parallelism", "train: {dcn_parallelism: [2]}", "is calculated by MaxText; set", RUNS),
    InvalidValues("train.eval_steps", "train: {eval_steps: -1}", "must be positive: every host evaluates", RUNS),
    InvalidValues(
        "train.eval_interval",
        "train: {eval_interval: 10}\ndata: {heldOut: {fraction: 0}}",
        "is set but nothing is held out; set data.heldOut.fraction.",
        RUNS,
    ),
    # The weights to start from.
    InvalidValues("from", "from: 'hf:org/model'", '"hf:org/model" is a model on Hugging Face; import it once', RUNS),
    InvalidValues(
        "from", "from: Llama", '"Llama" is neither a run nor a path; write RUN, RUN@STEP, RUN@best, or a path', RUNS
    ),
    InvalidValues("from", "from: base@last", '"base@last" is neither a run nor a path;', RUNS),
    InvalidValues("from", "from: base@01", '"base@01" is neither a run nor a path;', RUNS),
    InvalidValues(
        "from", "from: weights/llama", '"weights/llama" is a relative path; write the path in the pods', RUNS
    ),
    InvalidValues("from", "from: t", '"t" is the run itself; a run that is submitted again resumes from its own', RUNS),
    InvalidValues("from", "from: t@3", '"t@3" is the run itself; a run that is submitted again', RUNS),
    InvalidValues(
        "train.load_parameters_path",
        "from: base\ntrain: {load_parameters_path: /data/base/checkpoints/9/items}",
        "train.load_parameters_path follows from the key from, which is set; remove one of them.",
        RUNS,
    ),
    InvalidValues(
        "train.load_full_state_path",
        "from: base\ntrain: {load_full_state_path: /data/base/checkpoints/9/items}",
        "train.load_full_state_path and from are both set; remove one of them.",
        RUNS,
    ),
    # No value, or one of the wrong type.
    InvalidValues("slice", "slice: null", "missing property 'slice'"),
    InvalidValues("run", "run: []", "got array, want object"),
    InvalidValues("steps", "steps: 30", "additional properties 'steps' not allowed"),
    # Fine-tuning.
    InvalidValues(
        "tuning.method", "tuning: {method: sft}", "tuning.method: sft changes a model that exists; set from", RUNS
    ),
    InvalidValues(
        "data.files", "from: base\ntuning: {method: sft}", "data.files is empty; tuning.method: sft requires", RUNS
    ),
    InvalidValues(
        "data.files",
        "from: base\ntuning: {method: sft}\ndata: {corpus: '', files: [/data/a.jsonl, /data/b.md]}",
        '"/data/b.md" is text without columns; tuning.method: sft requires .jsonl or .parquet files.',
        RUNS,
    ),
    InvalidValues(
        "tuning.template",
        "from: base\ntuning: {method: sft, template: chat.jinja}\ndata: {corpus: '', files: [/data/a.jsonl]}",
        'tuning.template is "chat.jinja", a relative path, and the pods do not have the files of this machine;',
        RUNS,
    ),
    InvalidValues(
        "tuning.adapter", "tuning: {adapter: lora}", "tuning.adapter: lora changes a model that exists;", RUNS
    ),
    InvalidValues(
        "tuning.adapter",
        "from: base\ntuning: {method: lora, adapter: qlora}\ndata: {corpus: '', files: [/data/a.jsonl]}",
        "tuning.adapter is qlora, and tuning.method is lora; remove one of them.",
        RUNS,
    ),
    InvalidValues(
        "tuning.adapter",
        "from: base\ntuning: {method: qlora, adapter: lora}\ndata: {corpus: '', files: [/data/a.jsonl]}",
        "tuning.adapter is lora, and tuning.method is qlora; remove one of them.",
        RUNS,
    ),
]
"""Rows with one mistake each."""

BAD_WITHOUT_CHART = [
    # Values for another accelerator.
    InvalidValues("train.attention", "train: {attention: cudnn_flash_te}", "is a kernel for GPUs; use flash", RUNS),
    InvalidValues("train.quantization", "train: {quantization: te_mxfp8}", "NVIDIA's Transformer Engine", RUNS),
    InvalidValues(
        "worker.env.JAX_PLATFORMS", "worker: {env: {JAX_PLATFORMS: cpu}}", "hides the chips of the hosts from JAX", RUNS
    ),
    InvalidValues(
        "worker.env.JAX_PLATFORMS",
        "worker: {env: {JAX_PLATFORMS: cpu}}\nslice: {accelerator: h100-80gb, topology: ''}",
        "hides the GPUs of the hosts from JAX",
        RUNS,
    ),
    InvalidValues(
        "slice.any", "slice: {any: [{}]}", "slice.any is for run.kind ray-job and job-set,", (LOCAL, RAY_CLUSTER)
    ),
    InvalidValues("storage.text.bucket", "storage: {text: {bucket: texts}}", "a local run mounts no bucket;", (LOCAL,)),
    InvalidValues("run.name", f"run: {{name: {'a' * 64}}}", "the name of a local run can have at most 63.", (LOCAL,)),
    InvalidValues(
        "worker.env.HF_TOKEN",
        "worker: {env: {HF_TOKEN: x}}",
        "worker.env.HF_TOKEN would store a secret in the run's record; remove it, and set HF_TOKEN in the shell that",
        (LOCAL,),
    ),
    InvalidValues(
        "worker.env.HF_TOKEN",
        "worker: {env: {HF_TOKEN: x}}",
        "put it into a Secret, and set worker.secretEnv.HF_TOKEN to the Secret's name and key.",
        (RAY_CLUSTER,),
    ),
    InvalidValues(
        "run.name", f"run: {{name: {'a' * 64}}}", "the name of a ray-cluster run can have at most 63.", (RAY_CLUSTER,)
    ),
    InvalidValues(
        "run.cluster", 'run: {cluster: ""}', "run.cluster must name the long-lived Ray cluster.", (RAY_CLUSTER,)
    ),
    InvalidValues("run.cluster", "run: {cluster: Big}", f'"Big" {NAME} For example "big".', (RAY_CLUSTER,)),
    InvalidValues(
        "run.cluster",
        f"run: {{cluster: {'c' * 42}}}",
        "has 42 characters; the name of a RayCluster can have at most 41.",
        (RAY_CLUSTER,),
    ),
    InvalidValues("storage.kind", "storage: {kind: pvc}", "storage.kind must be local, not pvc.", (LOCAL,)),
    InvalidValues(
        "slice.accelerator",
        "slice: {accelerator: v6e, provisioning: reservation}",
        "slice.accelerator must be cpu or a GPU of the table, not v6e.",
        (LOCAL,),
    ),
    InvalidValues(
        "storage.mountPath",
        "storage: {mountPath: /dev/shm}",
        "is a folder that the pods need for other files; use another one, such as /data.",
        (RAY_CLUSTER,),
    ),
    InvalidValues("tracking.metricsPort", "tracking: {metricsPort: 80}", "80 is a port that", (RAY_CLUSTER,)),
    InvalidValues(
        "worker.env",
        "worker: {env: {A-B: c}}",
        '"A-B" is not a valid variable name; use letters, digits and underscores, with no digit first.',
        (LOCAL, RAY_CLUSTER),
    ),
    InvalidValues(
        "worker.tolerations.x",
        "worker: {tolerations: {x: {key: k, tolerationSeconds: 60}}}",
        "tolerationSeconds requires effect: NoExecute.",
        (LOCAL, RAY_CLUSTER),
    ),
]
"""Rows for the kinds that no chart renders."""

PLAIN_NAMES = """
TOKENIZERS_PARALLELISM TOKENIZER_PATH MAX_TOKENS PAD_TOKEN COST_PER_TOKEN USE_AUTH_TOKEN TOKEN_BUDGET HF_TOKEN_PATH
HF_HUB_DISABLE_IMPLICIT_TOKEN GOOGLE_APPLICATION_CREDENTIALS AWS_ACCESS_KEY_ID AWS_SHARED_CREDENTIALS_FILE
AWS_WEB_IDENTITY_TOKEN_FILE PASSWORD_FILE SECRET_NAME RAY_TLS_SERVER_KEY RAY_SERVE_SESSION_ID_HEADER_KEY
JAX_COMPILATION_CACHE_INCLUDE_METADATA_IN_KEY XLA_FLAGS LIBTPU_INIT_ARGS KEY KEYS TEXT_KEY PUBLIC_KEY MONKEY KEYBOARD
SECRETARY
"""
"""Names of variables that look like those of secrets."""

_PLAIN = ", ".join(f"{name}: x" for name in PLAIN_NAMES.split())

GOOD_VALUES = {
    "a RayJob's name of 35": (f"run: {{name: {'a' * 35}}}", (RUN,)),
    "a JobSet's name of 40": (f"run: {{name: {'a' * 40}}}", (JOB_SET,)),
    "names of 63": (f"team: {{name: {'a' * 63}, namespace: {'b' * 63}}}", ALL),
    "a registry with a port": ("image: {repository: 'localhost:5000/team/trainer'}", ALL),
    "a repository of one word": ("image: {repository: trainer}", ALL),
    "a digest": (f"image: {{tag: '', digest: 'sha256:{'0a' * 32}'}}", ALL),
    "a tag of 128": (f"image: {{tag: {'a' * 128}}}", ALL),
    "an amount with a fraction": ("worker: {memory: 1.5Gi, cpu: '0.5'}", ALL),
    "numbers": ("worker: {cpu: 40, memory: 17179869184}\nhead: {cpu: 1.5}\nstorage: {sidecarLimits: {cpu: 0}}", ALL),
    "forms of Kubernetes": ("worker: {cpu: '5e-1', memory: 128974848000m}\nhead: {memory: '+1E10'}", ALL),
    "milli": ("worker: {cpu: 500m, memory: 512M}\nhead: {cpu: 1500m}", ALL),
    "seven slices by topology": ("slice: {count: 7, placement: topology}", ALL),
    "eight slices": ("slice: {count: 8}", ALL),
    "nodes to avoid": (
        "worker: {avoidNodes: {a: 2099-01-01, b.internal: '2096-02-29T23:59:59.5+01:00', c: '2099-01-01T00:00:00Z'}}",
        ALL,
    ),
    "a reservation": ("slice: {provisioning: reservation, reservation: mine}", ALL),
    "alternatives": ("slice: {any: [{provisioning: spot}, {provisioning: reservation, reservation: mine}, {}]}", ALL),
    "cpu hosts": ("slice: {accelerator: cpu, topology: '', hosts: 2}\nworker: {cpu: '1', memory: 1Gi}", ALL),
    "a GPU machine": ("slice: {accelerator: h100-80gb, topology: '', hosts: 2}", ALL),
    "no restarts": (
        "run: {maxRestarts: 0, deadlineSeconds: 0, ttlSeconds: 0, keepFinishedDays: 0, graceSeconds: 0}",
        ALL,
    ),
    "the largest numbers": (
        "run: {maxRestarts: 10000, deadlineSeconds: 31536000, startDeadlineSeconds: 604800, graceSeconds: 600}",
        ALL,
    ),
    "the largest ttl of a cluster": ("run: {ttlSeconds: 600}", ALL),
    "the largest ttl of a JobSet": ("run: {ttlSeconds: 31536000}", (JOB_SET, CLUSTER)),
    "the largest environment": (f"worker: {{env: {{A: {59_999 * 'x'}}}}}", ALL),
    "the largest command": (f"run: {{command: [{60_000 * 'x'}]}}", (RUN, JOB_SET)),
    "root": ("security: {runAsUser: 0}", ALL),
    "local storage for a command": (
        "storage: {kind: local}\nrun: {command: [sleep, infinity]}\ndata: {corpus: ''}",
        RUNS,
    ),
    "a claim": ("storage: {kind: pvc, claim: data, bucket: ''}", ALL),
    "no limits of the sidecar": ("storage: {sidecarLimits: {cpu: null, memory: null, ephemeral-storage: 5Gi}}", ALL),
    "text that is no text": ("data: {corpus: ''}\ntrain: {dataset_type: synthetic}", ALL),
    "a toleration of all": ("worker: {tolerations: {all: {key: '', operator: Exists}}}", ALL),
    "a label with a domain": ("worker: {nodeSelector: {example.com/pool: A_b.c}}", ALL),
    "labels of the slice's nodes": (
        "worker: {nodeSelector: {cloud.google.com/gke-tpu-topology: 4x4, kubernetes.io/arch: amd64,"
        " node.kubernetes.io/instance-type: ct6e-standard-4t, cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice}}",
        ALL,
    ),
    "GPUs off GKE": (
        "slice: {accelerator: mine, topology: ''}\n"
        "worker: {nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}}\n"
        "common: {accelerators: {mine: {kind: gpu, label: H, labelKey: nvidia.com/gpu.product, machineTypes: {p5: 8},"
        " defaultMachineType: p5, rayAcceleratorType: H100, dimensions: 0, hbmGiB: 80, peakTflops: 989}}}",
        ALL,
    ),
    "an empty label": ("worker: {nodeSelector: {pool: ''}}", ALL),
    "chips and processors for JAX": ("worker: {env: {JAX_PLATFORMS: 'tpu,cpu'}}", ALL),
    "a tokenizer in a folder": ("data: {tokenizer: {kind: huggingface, path: /data/tokenizer}}", RUNS),
    "a tokenizer of Hugging Face": ("data: {tokenizer: {kind: huggingface, path: org/Name-1.1}}", RUNS),
    "a large config": (f"data: {{corpus: '', files: [{', '.join('/x' * 50 + str(i) for i in range(1100))}]}}", RUNS),
    "a row of one's own": (
        "slice: {accelerator: mine, topology: ''}\ncommon: {accelerators: {mine: {kind: gpu, label: mine, "
        "rayAcceleratorType: X, dimensions: 0, machineTypes: {big: 8}, defaultMachineType: big, hbmGiB: 1, "
        "peakTflops: 0}}}",
        ALL,
    ),
    "variables of the head from a ConfigMap": ("head: {envFrom: {ours: ConfigMap, none: null}}", ALL),
    "a hook at the start": ("pods: {lifecycle: {postStart: {exec: {command: [touch, /tmp/a]}}, preStop: null}}", ALL),
    "a mount in the storage": ("pods: {extraVolumeMounts: {/data/cache: {name: shared-memory}}}", ALL),
    "a mount at the path of a text that is not used": (
        "worker: {pods: {extraVolumes: {a: {emptyDir: {}}}, extraVolumeMounts: {/text: {name: a}}}}",
        ALL,
    ),
    "fields of the pod": (
        "pods: {extra: {shareProcessNamespace: true, hostNetwork: false, securityContext: {fsGroup: 5}}}",
        ALL,
    ),
    "the network of the head's machine": ("head: {pods: {extra: {hostNetwork: true}}}", ALL),
    "removed keys of pods": ("head: {pods: {labels: null, schedulerName: null}}\nworker: {pods: {extra: null}}", ALL),
    "no metrics": ("tracking: {metricsPort: 0}", ALL),
    "metrics at the lowest port": ("tracking: {metricsPort: 1024}", ALL),
    "metrics beside Ray's ports": ("tracking: {metricsPort: 20000}", ALL),
    "variables that look like secrets": (f"worker: {{env: {{{_PLAIN}, HF_TOKEN: ''}}}}", ALL),
    "W&B with a Secret": ("tracking: {wandb: {project: p q, entity: ours, secret: {name: wandb}}}", ALL),
    "W&B offline": ("tracking: {wandb: {project: p, mode: offline}}", ALL),
    "W&B with a key of the worker's": (
        "tracking: {wandb: {project: p}}\nworker: {secretEnv: {WANDB_API_KEY: {name: my, key: k}}}",
        ALL,
    ),
    "W&B with a Secret of variables": ("tracking: {wandb: {project: p}}\nworker: {envFrom: {ours: Secret}}", ALL),
    "W&B of a program that is not the trainer": (
        "tracking: {wandb: {project: p}}\nrun: {command: [sleep]}\ndata: {corpus: ''}",
        RUNS,
    ),
    "a run to start from": ("from: base", RUNS),
    "a step to start from": ("from: base-2@0", RUNS),
    "imported weights to start from": ("from: /data/weights of ours/llama/", RUNS),
    "weights in a bucket to start from": ("from: gs://weights/llama/items", RUNS),
    "conversations": (
        "from: base\ntuning: {method: sft, columns: {prompt: q, completion: a}}\n"
        "data: {corpus: '', files: [/data/a.jsonl]}",
        RUNS,
    ),
    "adapters": (
        "from: base\ntuning: {method: lora, lora: {rank: 8, targets: [q_proj]}}\n"
        "data: {corpus: '', files: [/data/a.jsonl]}",
        RUNS,
    ),
    "pairs with adapters": (
        "from: base\ntuning: {method: dpo, adapter: qlora}\ndata: {corpus: '', files: [/data/a.jsonl]}",
        RUNS,
    ),
    "the text of a chat template": (
        "from: base\ntuning: {method: sft, template: '{{ messages }}'}\ndata: {corpus: '', files: [/data/a.jsonl]}",
        RUNS,
    ),
    "weights of this machine to start from": ("from: weights/llama", (LOCAL,)),
    "nulls that take a map's key back": ("train: {steps: null}", ALL),
    "a run with the groups and labels of a cluster, which it ignores": (
        "cluster: {groups: {a: {accelerator: v5e, cpu: x y}}, labels: {'a: b': c}}",
        RUNS,
    ),
    "a mount path in /tmp, for a cluster that the charts do not create": ("storage: {mountPath: /tmp}", (RAY_CLUSTER,)),
    "large amounts": ("worker: {cpu: 179999m, memory: 719Gi}\nhead: {cpu: 1920, memory: 32e12}", ALL),
    "amounts for pods, which a local run does not have": ("worker: {cpu: 8 cores}\nimage: {tag: latest}", (LOCAL,)),
}
"""Values at the limits, which charts and launcher accept."""

ONLY_LAUNCHER = {
    "run: {name: ''}": "charts/run takes the release's name",
    "train: {stps: 30}": "only the launcher and the trainer have the table of MaxText's keys",
    "train: {steps: -1}": "and of their bounds",
    "train: {steps: many}": "and of their types",
    "train: {model_name: llama9}": "and of its models",
    "train: {run_name: x}": "only the launcher has the list of MaxText's keys that Slipway sets",
    "train: {enable_wandb: true}": "and of the values to use instead",
    "train: {dataset_type: synthetic}": "and of those that it sets if there is text",
}
"""Values that the launcher rejects and the charts accept, with the reason."""
