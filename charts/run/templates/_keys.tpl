{{- /* Keys of other charts, and keys with an empty default. `make charts` writes this file. */ -}}
{{- define "run.others" -}}
["security.k8sTokenAuth", "cluster", "serve"]
{{- end -}}

{{- define "run.emptyValues" -}}
{"run": {"name": "", "cluster": "", "command": []}, "team": {"name": "", "namespace": "", "serviceAccount": ""},
"queue": {"name": "", "priority": "", "podPriority": ""}, "slice": {"topology": "", "machineType": "", "reservation":
"", "any": []}, "image": {"registry": "", "repository": "", "tag": "", "digest": "", "pullSecrets": []}, "storage":
{"bucket": "", "claim": "", "text": {"bucket": "", "cacheSize": ""}}, "head": {"env": {}, "secretEnv": {}, "envFrom":
{}, "nodeSelector": {}, "tolerations": {}, "pods": {}}, "worker": {"cpu": "", "memory": "", "env": {}, "secretEnv": {},
"envFrom": {}, "nodeSelector": {}, "tolerations": {}, "avoidNodes": {}, "pods": {}}, "pods": {"labels": {},
"annotations": {}, "extraVolumes": {}, "extraVolumeMounts": {}, "initContainers": {}, "sidecars": {}, "lifecycle": {},
"affinity": {}, "topologySpreadConstraints": {}, "runtimeClassName": "", "schedulerName": "", "hostAliases": {},
"dnsPolicy": "", "dnsConfig": {}, "extra": {}}, "commonLabels": {}, "commonAnnotations": {}, "tracking": {"wandb":
{"project": "", "entity": "", "secret": {"name": ""}}}, "notify": {"events": []}, "data": {"files": [], "mixture": {},
"corpus": "", "heldOut": {"files": []}, "tokenizer": {"path": ""}}, "from": "", "tuning": {"template": "", "columns":
{}, "samples": [], "lora": {"targets": []}}}
{{- end -}}
