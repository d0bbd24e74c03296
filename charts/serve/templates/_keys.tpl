{{- /* Keys of other charts, and keys with an empty default. `make charts` writes this file. */ -}}
{{- define "serve.others" -}}
["run.name", "run.kind", "run.cluster", "run.maxRestarts", "run.command", "run.deadlineSeconds",
"run.startDeadlineSeconds", "run.ttlSeconds", "run.keepFinishedDays", "run.hostFailureHours", "storage.logs",
"security.k8sTokenAuth", "cluster.groups", "cluster.labels", "cluster.minSlices", "cluster.maxSlices", "tracking",
"notify", "data", "from", "tuning"]
{{- end -}}

{{- define "serve.emptyValues" -}}
{"team": {"name": "", "namespace": "", "serviceAccount": ""}, "queue": {"name": "", "priority": "", "podPriority": ""},
"slice": {"topology": "", "machineType": "", "reservation": "", "any": []}, "image": {"registry": "", "repository": "",
"tag": "", "digest": "", "pullSecrets": []}, "storage": {"bucket": "", "claim": "", "text": {"bucket": "", "cacheSize":
""}}, "head": {"env": {}, "secretEnv": {}, "envFrom": {}, "nodeSelector": {}, "tolerations": {}, "pods": {}}, "worker":
{"cpu": "", "memory": "", "env": {}, "secretEnv": {}, "envFrom": {}, "nodeSelector": {}, "tolerations": {},
"avoidNodes": {}, "pods": {}}, "pods": {"labels": {}, "annotations": {}, "extraVolumes": {}, "extraVolumeMounts": {},
"initContainers": {}, "sidecars": {}, "lifecycle": {}, "affinity": {}, "topologySpreadConstraints": {},
"runtimeClassName": "", "schedulerName": "", "hostAliases": {}, "dnsPolicy": "", "dnsConfig": {}, "extra": {}},
"commonLabels": {}, "commonAnnotations": {}, "serve": {"model": "", "name": "", "engineArgs": {}, "apiKey": {"name":
""}, "upgrade": {"gatewayClass": ""}}}
{{- end -}}
