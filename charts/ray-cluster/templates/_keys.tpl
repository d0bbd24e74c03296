{{- /* Keys of other charts, and keys with an empty default. `make charts` writes this file. */ -}}
{{- define "ray-cluster.others" -}}
["run.name", "run.kind", "run.maxRestarts", "run.command", "run.deadlineSeconds", "run.startDeadlineSeconds",
"run.ttlSeconds", "run.keepFinishedDays", "run.hostFailureHours", "storage.logs", "serve",
"tracking.forecastStepSeconds", "tracking.wandb.project", "tracking.wandb.entity", "tracking.wandb.mode", "notify",
"data", "from", "tuning", "train"]
{{- end -}}

{{- define "ray-cluster.emptyValues" -}}
{"run": {"cluster": ""}, "team": {"name": "", "namespace": "", "serviceAccount": ""}, "queue": {"name": "", "priority":
"", "podPriority": ""}, "slice": {"topology": "", "machineType": "", "reservation": "", "any": []}, "image":
{"registry": "", "repository": "", "tag": "", "digest": "", "pullSecrets": []}, "storage": {"bucket": "", "claim": "",
"text": {"bucket": "", "cacheSize": ""}}, "head": {"env": {}, "secretEnv": {}, "envFrom": {}, "nodeSelector": {},
"tolerations": {}, "pods": {}}, "worker": {"cpu": "", "memory": "", "env": {}, "secretEnv": {}, "envFrom": {},
"nodeSelector": {}, "tolerations": {}, "avoidNodes": {}, "pods": {}}, "pods": {"labels": {}, "annotations": {},
"extraVolumes": {}, "extraVolumeMounts": {}, "initContainers": {}, "sidecars": {}, "lifecycle": {}, "affinity": {},
"topologySpreadConstraints": {}, "runtimeClassName": "", "schedulerName": "", "hostAliases": {}, "dnsPolicy": "",
"dnsConfig": {}, "extra": {}}, "commonLabels": {}, "commonAnnotations": {}, "cluster": {"groups": {}, "labels": {}},
"tracking": {"wandb": {"secret": {"name": ""}}}}
{{- end -}}
