{{- /*
common.valueRules: the rules on the values of charts/run and charts/ray-cluster, as JSON. The charts evaluate them with
common.rules.evaluate; the launcher reads this file (launcher/config/checks/value_rules.py) and adds file and line.

A rule has these fields:
  rule     its id in the output of `launcher check -o json`
  keys     the keys that it checks; `*` is every entry of a map or a list
  kinds    the kinds that it applies to, as a list or as a name of `kinds`; by default "objects", those that create
           Kubernetes objects. `cluster` is a release of charts/ray-cluster, `ray-cluster` a run in such a cluster
  when     conditions on other keys, all of which must hold: a value that the key must have, true (set and not empty),
           false (absent or empty), {"given": …} (present, even if empty) or {"not": …}. A key that starts with a dot is
           below the entry that `*` matches; {name} is the name of this entry. KEY.0 is the first item of a list;
           accelerator.kind is the kind of slice.accelerator (tpu, gpu or cpu)
  else     apply the rule only if the rules above it, back to one without `else`, found nothing wrong with the entry
  each     the rule applies to each group of hosts: to slice, and in charts/ray-cluster to each of cluster.groups
  of       name: check the name of the entry instead of its value
  optional the value may be empty
and at most one test. Without a test, the conditions alone make the value wrong.
  matches  a regular expression, or the name of one in `patterns`, that the value must match
  forbids  one that it must not match, except for texts that match `allows`
  longest  the maximum number of characters
  outside  ranges of numbers, inclusive, that it must not be in
In a message, {key} is the dotted key, {parent} the key above the entry, {name} the entry's name, {value} what was
checked, in quotes, {length} its number of characters, {slice} the key of the group of hosts, and {a.b} the value of
the key a.b. Regular expressions must mean the same in Go and in Python; `^` and `$` are the ends of the text.
*/ -}}
{{- define "common.valueRules" -}}
{
  "kinds": {
    "all": ["local", "ray-cluster", "ray-job", "job-set", "cluster"],
    "remote": ["ray-cluster", "ray-job", "job-set", "cluster"],
    "objects": ["ray-job", "job-set", "cluster"],
    "runs": ["local", "ray-cluster", "ray-job", "job-set"]
  },
  "patterns": {
    "kubernetesName": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
    "objectName": "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
    "labelKey": "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
    "labelValue": "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$",
    "secretKey": "^[-._A-Za-z0-9]{1,253}$",
    "secretVariable": "TOKEN[0-9]*$|(^|_)SECRET_|SECRETS?$|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|_KEY[0-9]*$|(API|ACCESS|PRIVATE)KEY$",
    "plainVariable": "_(FILE|PATH|DIR|NAME|ID|URL|TYPE|MODE)$|(^|_)(USE|DISABLE|ENABLE)_|^(JAX|XLA|LIBTPU)_|^GOOGLE_APPLICATION_CREDENTIALS$|^RAY_(SERVE_SESSION_ID_HEADER|TLS_SERVER)_KEY$|(^|_)(PAD|BOS|EOS|UNK|MASK|SEP|CLS|STOP|START|END|SPECIAL|IMAGE|PER)_TOKEN$|(^|_)(PUBLIC|CACHE|SORT|PRIMARY|PARTITION|GROUP|TEXT|PROMPT|LABEL|IMAGE|FEATURE|INPUT|TARGET|METRIC|RNG|PRNG|RANDOM)_KEY$",
    "cpu": "^([1-9][0-9]*m?|[0-9]+\\.[0-9]*[1-9][0-9]*)$",
    "memory": "^[0-9]*\\.?[0-9]*[1-9][0-9]*(\\.0)?(Ki|Mi|Gi|Ti|k|M|G|T)$"
  },
  "rules": [
    {{- /* Names. GKE's TPU webhook cuts the names of services at 50 characters and KubeRay does not, so hosts of a
    RayCluster with a longer name are not found. The host name of a JobSet's pod, NAME-slice-99-9999-xxxxx, must have at
    most 63 characters. A local run is a folder; 63 keeps its name valid on a cluster. */}}
    {"rule": "name", "keys": ["run.name"], "kinds": "all",
     "when": {"run.name": true}, "matches": "^[a-z]([-a-z0-9]*[a-z0-9])?$",
     "message": "{key}: {value} is not a valid name; use lowercase letters, digits and hyphens, starting with a letter and not ending with a hyphen."},
    {"rule": "name", "else": true, "keys": ["run.name"], "kinds": ["local", "ray-cluster"], "longest": 63,
     "message": "{key}: {value} has {length} characters; the name of a {run.kind} run can have at most 63."},
    {"rule": "name", "else": true, "keys": ["run.name"], "kinds": ["ray-job"], "longest": 35,
     "message": "{key}: {value} has {length} characters; the name of a ray-job run can have at most 35."},
    {"rule": "name", "else": true, "keys": ["run.name"], "kinds": ["job-set"], "longest": 40,
     "message": "{key}: {value} has {length} characters; the name of a job-set run can have at most 40."},
    {"rule": "name", "else": true, "keys": ["run.name"], "kinds": ["cluster"], "longest": 41,
     "message": "{key}: {value} has {length} characters; the name of a RayCluster can have at most 41."},
    {"rule": "cluster", "keys": ["run.cluster"], "kinds": ["ray-cluster"], "when": {"run.cluster": false},
     "message": "run.kind is ray-cluster; run.cluster must name the long-lived Ray cluster."},
    {"rule": "name", "else": true, "keys": ["run.cluster"], "kinds": ["ray-cluster"],
     "matches": "^[a-z]([-a-z0-9]*[a-z0-9])?$",
     "message": "{key}: {value} is not a valid name; use lowercase letters, digits and hyphens, starting with a letter and not ending with a hyphen."},
    {"rule": "name", "else": true, "keys": ["run.cluster"], "kinds": ["ray-cluster"], "longest": 41,
     "message": "{key}: {value} has {length} characters; the name of a RayCluster can have at most 41."},
    {"rule": "name",
     "keys": ["team.name", "team.namespace", "team.serviceAccount", "queue.name", "queue.priority", "queue.podPriority", "slice.reservation", "storage.claim"],
     "kinds": "all", "optional": true, "matches": "kubernetesName",
     "message": "{key}: {value} is not a valid Kubernetes name; use at most 63 lowercase letters, digits and hyphens, with no hyphen at either end."},

    {{- /* The image. */}}
    {"rule": "image", "keys": ["image.repository"], "when": {"image.repository": false},
     "message": "image.repository is empty; set it to the image that contains the trainer and Ray."},
    {"rule": "image", "else": true, "keys": ["image.repository"], "forbids": "@|:[^/]*$",
     "message": "{key}: {value} contains a tag or a digest; set image.tag or image.digest instead."},
    {"rule": "image", "else": true, "keys": ["image.repository"],
     "matches": "^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$",
     "message": "{key}: {value} is not a valid image name; write it like example.com/team/trainer."},
    {"rule": "image", "keys": ["image.tag"], "when": {"image.tag": false, "image.digest": false},
     "message": "image.tag is empty; set it, or set image.digest."},
    {"rule": "image", "else": true, "keys": ["image.tag"], "when": {"image.tag": true, "image.digest": true},
     "message": "image.tag and image.digest are both set; remove one of them."},
    {"rule": "image", "else": true, "keys": ["image.tag"], "when": {"image.tag": "latest"},
     "message": "image.tag is latest, which can change during a run; set a version."},
    {"rule": "image", "else": true, "keys": ["image.tag"], "optional": true,
     "matches": "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
     "message": "{key}: {value} is not a valid tag; use letters, digits, dots, hyphens and underscores."},
    {"rule": "image", "else": true, "keys": ["image.digest"], "optional": true, "matches": "^sha256:[0-9a-f]{64}$",
     "message": "{key}: {value} is not a valid digest; write sha256: and 64 hexadecimal digits."},
    {"rule": "image", "keys": ["image.rayVersion"], "matches": "^[0-9]+\\.[0-9]+\\.[0-9]+[-+.A-Za-z0-9]*$",
     "message": "{key}: {value} is not a valid Ray version; write it like 2.60.0."},

    {{- /* Storage. */}}
    {"rule": "storage", "keys": ["storage.bucket"], "kinds": "remote",
     "when": {"storage.kind": "gcsfuse", "storage.bucket": false},
     "message": "storage.kind is gcsfuse; storage.bucket must name the bucket."},
    {"rule": "storage", "else": true, "keys": ["storage.bucket", "storage.text.bucket"], "kinds": "remote",
     "optional": true, "matches": "^[a-z0-9][-a-z0-9._]{1,220}[a-z0-9]$",
     "message": "{key}: {value} is not a valid bucket name; write it without gs:// and without a folder."},
    {"rule": "storage", "keys": ["storage.claim"], "kinds": "remote",
     "when": {"storage.kind": "pvc", "storage.claim": false},
     "message": "storage.kind is pvc; storage.claim must name the PersistentVolumeClaim."},
    {"rule": "storage", "keys": ["storage.kind"], "kinds": ["ray-job", "job-set"],
     "when": {"storage.kind": "local", "run.command": false},
     "message": "storage.kind is local, and on a cluster local files, including checkpoints, are deleted with the pod; use gcsfuse or pvc."},
    {"rule": "local", "keys": ["storage.kind"], "kinds": ["local"], "when": {"storage.kind": {"not": "local"}},
     "message": "a local run keeps its files on this machine: storage.kind must be local, not {storage.kind}."},
    {"rule": "storage", "keys": ["storage.mountPath", "storage.text.mountPath"], "kinds": "remote",
     "matches": "^/[^:]*[^:/]$",
     "message": "{key}: {value} is not valid; it must start with \"/\" and name a folder below it."},
    {"rule": "storage", "else": true, "keys": ["storage.mountPath", "storage.text.mountPath"], "kinds": "remote",
     "forbids": "^/(etc/slipway|dev|proc|sys|tmp/ray)(/|$)",
     "message": "{key}: {value} is a folder that the pods need for other files; use another one, such as /data."},
    {"rule": "storage", "else": true, "keys": ["storage.mountPath", "storage.text.mountPath"],
     "forbids": "^/((bin|sbin|lib|lib64|usr)(/|$)|(etc|tmp|run|var)$)",
     "message": "{key}: {value} is a folder that the pods need for other files; use another one, such as /data."},
    {"rule": "storage", "else": true, "keys": ["storage.mountPath", "storage.text.mountPath"],
     "forbids": "//|/\\.\\.?(/|$)|[\\x00-\\x1f\\x7f]",
     "message": "{key}: {value} is not a plain path; write it without \"..\", \"//\" and control characters."},
    {"rule": "local", "keys": ["storage.text.bucket"], "kinds": ["local"], "when": {"storage.text.bucket": true},
     "message": "a local run mounts no bucket; remove storage.text.bucket, and name folders of this machine in data.files."},
    {"rule": "amount", "keys": ["storage.text.cacheSize"], "optional": true, "matches": "memory",
     "message": "{key}: {value} is not a valid amount of disk or memory; write it like 100Gi."},
    {"rule": "storage", "keys": ["storage.sidecarLimits.*"], "kinds": "remote",
     "of": "name", "matches": "^(cpu|memory|ephemeral-storage)$",
     "message": "{parent}: {value} is not a valid resource; use cpu, memory or ephemeral-storage."},
    {"rule": "amount", "keys": ["storage.sidecarLimits.cpu"], "when": {"storage.sidecarLimits.cpu": {"not": "0"}},
     "matches": "cpu", "message": "{key}: {value} is not a valid amount of cpu; write it like 8 or 500m."},
    {"rule": "amount", "keys": ["storage.sidecarLimits.memory"], "when": {"storage.sidecarLimits.memory": {"not": "0"}},
     "matches": "memory", "message": "{key}: {value} is not a valid amount of memory; write it like 16Gi."},
    {"rule": "amount", "keys": ["storage.sidecarLimits.ephemeral-storage"],
     "when": {"storage.sidecarLimits.ephemeral-storage": {"not": "0"}}, "matches": "memory",
     "message": "{key}: {value} is not a valid amount of ephemeral-storage; write it like 16Gi."},

    {{- /* The weights to start from. */}}
    {"rule": "from", "keys": ["from"], "kinds": "all", "forbids": "^hf:",
     "message": "{key}: {value} is a model on Hugging Face; import it once with launcher import, and set from to the path of the import."},
    {"rule": "from", "else": true, "keys": ["from"], "kinds": "all", "optional": true,
     "matches": "^([a-z]([-a-z0-9]*[a-z0-9])?(@(0|[1-9][0-9]{0,14}))?|[^\\x00-\\x1f\\x7f]*/[^\\x00-\\x1f\\x7f]*)$",
     "message": "{key}: {value} is neither a run nor a path; write RUN, RUN@STEP, or a path such as /data/weights/llama."},
    {"rule": "from", "else": true, "keys": ["from"], "kinds": "remote", "optional": true,
     "matches": "^([^/]*$|/|[a-z][a-z0-9+.-]*://)",
     "message": "{key}: {value} is a relative path; write the path in the pods, such as /data/weights/llama."},
    {"rule": "from", "keys": ["train.load_parameters_path"], "kinds": "runs",
     "when": {"from": true, "train.load_parameters_path": true},
     "message": "train.load_parameters_path follows from the key from, which is set; remove one of them."},
    {"rule": "from", "keys": ["train.load_full_state_path"], "kinds": "runs",
     "when": {"from": true, "train.load_full_state_path": true},
     "message": "train.load_full_state_path and from are both set; remove one of them."},

    {{- /* The hosts. */}}
    {"rule": "reservation", "each": true, "keys": ["slice.reservation"],
     "kinds": "all",
     "when": {"slice.provisioning": "reservation", "slice.reservation": false},
     "message": "{slice}.provisioning is reservation; {slice}.reservation must name it."},
    {"rule": "reservation", "each": true, "keys": ["slice.reservation"],
     "kinds": "all",
     "when": {"slice.provisioning": {"not": "reservation"}, "slice.reservation": true},
     "message": "{slice}.reservation requires {slice}.provisioning: reservation; it is {slice.provisioning}."},
    {"rule": "alternatives", "keys": ["slice.any"], "kinds": ["local", "ray-cluster"], "when": {"slice.any": true},
     "message": "slice.any is for run.kind ray-job and job-set, whose runs have an object in the cluster; set slice.any: []."},
    {"rule": "flex-start", "keys": ["run.deadlineSeconds"], "kinds": ["ray-job", "job-set"],
     "when": {"slice.provisioning": "flex-start"}, "outside": [[604801, 2147483647]],
     "message": "{key} is {run.deadlineSeconds}; nodes of flex-start run for at most 7 days, 604800 seconds."},
    {"rule": "placement", "keys": ["slice.placement"], "when": {"slice.placement": "topology", "accelerator.kind": "cpu"},
     "message": "slice.placement: topology is for slices of chips on node pools of their own; {slice.accelerator} does not need it."},
    {"rule": "amount", "each": true, "keys": ["worker.cpu"], "when": {"accelerator.kind": "cpu", "worker.cpu": false},
     "message": "{key} is empty; a {slice.accelerator} host has no chips to request, so set the cpu and the memory that it needs."},
    {"rule": "amount", "else": true, "each": true, "keys": ["worker.memory"],
     "when": {"accelerator.kind": "cpu", "worker.memory": false},
     "message": "{key} is empty; a {slice.accelerator} host has no chips to request, so set the cpu and the memory that it needs."},
    {"rule": "amount", "keys": ["worker.cpu"], "optional": true, "matches": "cpu",
     "message": "{key}: {value} is not a valid amount of cpu; write it like 8 or 500m."},
    {"rule": "amount", "keys": ["worker.memory"], "optional": true, "matches": "memory",
     "message": "{key}: {value} is not a valid amount of memory; write it like 16Gi."},
    {"rule": "amount", "keys": ["cluster.groups.*.cpu"], "kinds": ["cluster"], "optional": true, "matches": "cpu",
     "message": "{key}: {value} is not a valid amount of cpu; write it like 8 or 500m."},
    {"rule": "amount", "keys": ["cluster.groups.*.memory"], "kinds": ["cluster"], "optional": true, "matches": "memory",
     "message": "{key}: {value} is not a valid amount of memory; write it like 16Gi."},
    {"rule": "amount", "keys": ["head.cpu"], "kinds": ["ray-job", "cluster"], "optional": true, "matches": "cpu",
     "message": "{key}: {value} is not a valid amount of cpu; write it like 8 or 500m."},
    {"rule": "amount", "keys": ["head.memory"], "kinds": ["ray-job", "cluster"], "optional": true, "matches": "memory",
     "message": "{key}: {value} is not a valid amount of memory; write it like 16Gi."},

    {{- /* The environment of the hosts. */}}
    {"rule": "environment", "keys": ["worker.env.*", "worker.secretEnv.*"], "kinds": "all", "of": "name", "matches": "^[A-Za-z_][A-Za-z0-9_]*$",
     "message": "{parent}: {value} is not a valid variable name; use letters, digits and underscores, with no digit first."},
    {"rule": "environment", "else": true, "keys": ["worker.env.*", "worker.secretEnv.*"], "kinds": ["job-set"], "of": "name",
     "forbids": "^(JOB_INDEX|SLIPWAY_COORDINATOR)$", "message": "{key} is set by Slipway; remove it."},
    {"rule": "environment", "else": true, "keys": ["worker.secretEnv.*"], "kinds": "all", "of": "name",
     "forbids": "^(JAX_PLATFORMS|ENABLE_PJRT_COMPATIBILITY)$",
     "message": "{key} is set by Slipway; to change it, set worker.env.{name}."},
    {"rule": "environment", "else": true, "keys": ["worker.secretEnv.*"], "kinds": "all", "when": {"worker.env.{name}": {"given": true}},
     "message": "worker.env.{name} and worker.secretEnv.{name} are both set; remove one of them."},
    {{- /* A secret in worker.env is readable in the run's object, its record and its reports. plainVariable has names
    that look like those of secrets: of files, switches, special tokens, and the variables of JAX and Ray. */}}
    {"rule": "environment", "keys": ["worker.env.*"], "kinds": ["local"], "of": "name", "when": {"worker.env.{name}": true},
     "forbids": "secretVariable", "allows": "plainVariable",
     "message": "{key} would store a secret in the run's record; remove it, and set {name} in the shell that submits the run: a local run inherits its variables."},
    {"rule": "environment", "keys": ["worker.env.*"], "kinds": "remote", "of": "name", "when": {"worker.env.{name}": true},
     "forbids": "secretVariable", "allows": "plainVariable",
     "message": "{key} would store a secret in the run's record; put it into a Secret, and set worker.secretEnv.{name} to the Secret's name and key. If it is not a secret, put it into a ConfigMap, and set worker.envFrom."},
    {"rule": "name", "keys": ["worker.envFrom.*"], "of": "name", "matches": "objectName",
     "message": "{parent}: {value} is not a valid object name; use lowercase letters, digits, hyphens and dots."},
    {"rule": "name", "keys": ["image.pullSecrets.*", "worker.secretEnv.*.name"], "matches": "objectName",
     "message": "{key}: {value} is not a valid object name; use lowercase letters, digits, hyphens and dots."},
    {"rule": "name", "keys": ["worker.secretEnv.*.key"], "matches": "secretKey",
     "message": "{key}: {value} is not a valid key of a Secret; use letters, digits, hyphens, dots and underscores."},
    {"rule": "command", "keys": ["run.command"], "kinds": ["ray-job", "job-set"],
     "when": {"run.command": true, "run.command.0": false},
     "message": "run.command starts with an empty item; the first item must be a program."},

    {{- /* Nodes. */}}
    {"rule": "label", "keys": ["worker.nodeSelector.*"], "of": "name", "matches": "labelKey",
     "message": "{parent}: {value} is not a valid label key; use letters, digits, hyphens, dots and underscores, such as example.com/pool."},
    {"rule": "label", "else": true, "keys": ["worker.nodeSelector.*"], "matches": "labelValue",
     "message": "{key}: {value} is not a valid label value; use at most 63 letters, digits, hyphens, dots and underscores."},
    {"rule": "label", "keys": ["head.nodeSelector.*"], "kinds": ["ray-job", "cluster"], "of": "name", "matches": "labelKey",
     "message": "{parent}: {value} is not a valid label key; use letters, digits, hyphens, dots and underscores, such as example.com/pool."},
    {"rule": "label", "else": true, "keys": ["head.nodeSelector.*"], "kinds": ["ray-job", "cluster"], "matches": "labelValue",
     "message": "{key}: {value} is not a valid label value; use at most 63 letters, digits, hyphens, dots and underscores."},
    {"rule": "toleration", "keys": ["head.tolerations.*", "worker.tolerations.*"], "kinds": "all",
     "when": {".operator": "Exists", ".value": true},
     "message": "{key}: operator Exists takes no value; remove one of them."},
    {"rule": "toleration", "else": true, "keys": ["head.tolerations.*", "worker.tolerations.*"], "kinds": "all",
     "when": {".operator": {"not": "Exists"}, ".key": false},
     "message": "{key}: key is empty; set the key of the taint, or operator: Exists to tolerate all taints."},
    {"rule": "toleration", "else": true, "keys": ["head.tolerations.*.key", "worker.tolerations.*.key"], "kinds": "all",
     "optional": true, "matches": "labelKey",
     "message": "{key}: {value} is not a valid taint key; use letters, digits, hyphens, dots and underscores, such as example.com/pool."},
    {"rule": "toleration", "else": true, "keys": ["head.tolerations.*.value", "worker.tolerations.*.value"], "kinds": "all",
     "matches": "labelValue",
     "message": "{key}: {value} is not a valid taint value; use at most 63 letters, digits, hyphens, dots and underscores."},
    {"rule": "toleration", "keys": ["head.tolerations.*", "worker.tolerations.*"], "kinds": "all",
     "when": {".tolerationSeconds": {"given": true}, ".effect": {"not": "NoExecute"}},
     "message": "{key}: tolerationSeconds requires effect: NoExecute."},

    {{- /* The text to train on. */}}
    {"rule": "data", "keys": ["data.corpus"], "kinds": "runs",
     "when": {"data.files": true, "data.corpus": true},
     "message": "data.files and data.corpus are both set; remove one of them (to use the files, set data.corpus: \"\")."},
    {"rule": "data", "else": true, "keys": ["data"], "kinds": "runs",
     "when": {"run.command": false, "data.files": false, "data.corpus": false, "train.dataset_type": false},
     "message": "data: there is nothing to train on; set data.files, or data.corpus: python, or train.dataset_type (synthetic needs no text)."},
    {"rule": "data", "keys": ["data.files.*", "data.heldOut.files.*"], "kinds": "runs",
     "when": {"run.command": false}, "matches": "[^ \\t\\r\\n]", "message": "{key} has an empty item; remove it, or name a file."},
    {"rule": "data", "else": true, "keys": ["data.files.*", "data.heldOut.files.*"],
     "kinds": "runs", "when": {"run.command": false}, "forbids": "://",
     "message": "{key}: {value} is a URL; the trainer reads files: copy the text, or mount its bucket."},

    {{- /* Metrics and Weights & Biases. The ports are those of the system, of Ray (workers use 10002 and up), of JAX and
    of libtpu in a pod. */}}
    {"rule": "tracking", "keys": ["tracking.metricsPort"], "kinds": "remote",
     "outside": [[1, 1023], [6379, 6379], [8080, 8080], [8265, 8265], [8431, 8431], [8471, 8471], [8476, 8476], [10001, 19999], [52365, 52365]],
     "message": "{key}: {tracking.metricsPort} is a port that the system, Ray, JAX or libtpu uses; use another one, such as 9464."},
    {"rule": "tracking", "keys": ["tracking.wandb.project"], "kinds": "all",
     "optional": true, "matches": "^[^/\\\\#?%:]{1,128}$",
     "message": "{key}: {value} is not a valid project name; use at most 128 characters, and none of / \\ # ? % and :. The user or team goes into tracking.wandb.entity."},
    {"rule": "tracking", "else": true, "keys": ["tracking.wandb.secret.name"], "kinds": ["ray-job", "job-set"],
     "when": {"tracking.wandb.project": true, "tracking.wandb.mode": "online", "tracking.wandb.secret.name": false, "run.command": false, "worker.secretEnv.WANDB_API_KEY": false, "worker.envFrom": false},
     "message": "tracking.wandb.project is set; tracking.wandb.secret.name must name the Secret with the API key (tracking.wandb.mode: offline needs none)."},
    {"rule": "name", "keys": ["tracking.wandb.secret.name"], "kinds": "remote",
     "optional": true, "matches": "objectName",
     "message": "{key}: {value} is not a valid object name; use lowercase letters, digits, hyphens and dots."},
    {"rule": "tracking", "keys": ["worker.secretEnv.WANDB_API_KEY"], "kinds": "remote",
     "when": {"worker.secretEnv.WANDB_API_KEY": true, "tracking.wandb.secret.name": true},
     "message": "worker.secretEnv.WANDB_API_KEY and tracking.wandb.secret.name are both set; remove one of them."},
    {"rule": "name", "keys": ["tracking.wandb.secret.key"], "kinds": "remote",
     "when": {"tracking.wandb.secret.name": true}, "matches": "secretKey",
     "message": "{key}: {value} is not a valid key of a Secret; use letters, digits, hyphens, dots and underscores."},

    {{- /* A long-lived Ray cluster. */}}
    {"rule": "label", "keys": ["cluster.labels.*"], "kinds": ["cluster"], "of": "name", "matches": "labelKey",
     "message": "{parent}: {value} is not a valid label key; use letters, digits, hyphens, dots and underscores, such as example.com/pool."},
    {"rule": "label", "else": true, "keys": ["cluster.labels.*"], "kinds": ["cluster"], "matches": "labelValue",
     "message": "{key}: {value} is not a valid label value; use at most 63 letters, digits, hyphens, dots and underscores."},
    {"rule": "label", "else": true, "keys": ["cluster.labels.*"], "kinds": ["cluster"], "of": "name",
     "forbids": "^(app\\.kubernetes\\.io/(name|component|part-of|managed-by)|helm\\.sh/chart)$",
     "message": "{key} is set by Slipway; remove it."},
    {"rule": "cluster", "keys": ["security.k8sTokenAuth"], "kinds": ["cluster"],
     "when": {"security.k8sTokenAuth": true, "security.tokenAuth": false},
     "message": "security.k8sTokenAuth requires security.tokenAuth: true."},
    {"rule": "cluster", "else": true, "keys": ["security.k8sTokenAuth"], "kinds": ["cluster"],
     "when": {"security.k8sTokenAuth": true, "team.serviceAccount": false, "team.name": false},
     "message": "security.k8sTokenAuth requires team.serviceAccount or team.name: a service account that may review tokens, which the namespace's default one may not."},
    {"rule": "cluster", "keys": ["cluster.maxSlices"], "kinds": ["cluster"],
     "when": {"cluster.maxSlices": true, "slice.placement": "topology"},
     "message": "cluster.maxSlices: Kueue does not scale a cluster with slice.placement: topology; use exclusive."},
    {"rule": "cluster", "keys": ["cluster.minSlices"], "kinds": ["cluster"],
     "when": {"cluster.minSlices": true, "cluster.maxSlices": false},
     "message": "cluster.minSlices requires cluster.maxSlices, the maximum size of a group."}
  ]
}
{{- end -}}
