{{- /* The parts of the pod template in _pod.tpl. They take its arguments, unless a comment lists others. */ -}}

{{- /* common.image: repository@digest, or repository:tag. Takes the values `image`. */ -}}
{{- define "common.image" -}}
  {{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository .tag }}{{ end -}}
{{- end -}}

{{- /* The container fields that Pod Security's level `restricted` requires. */ -}}
{{- define "common.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* The container's own variables, then JAX's platform, which worker.env overrides, then those from Secrets. */ -}}
{{- define "common.pod.env" -}}
  {{- $env := .container.env | default list -}}
  {{- if not .head -}}
    {{- $plain := dict "JAX_PLATFORMS" (get (dict "tpu" "tpu,cpu" "gpu" "cuda,cpu" "cpu" "cpu") .slice.resolved.kind) -}}
    {{- if eq (include "common.resource" .slice.resolved) "amd.com/gpu" }}{{ $_ := set $plain "JAX_PLATFORMS" "rocm,cpu" }}{{ end -}}
    {{- if eq .slice.resolved.kind "tpu" }}{{ $_ := set $plain "ENABLE_PJRT_COMPATIBILITY" "true" }}{{ end -}}
    {{- range $name, $value := mergeOverwrite $plain .values.worker.env -}}
      {{- $env = append $env (dict "name" $name "value" $value) -}}
    {{- end -}}
    {{- $secrets := .values.worker.secretEnv -}}
    {{- with .values.tracking.wandb.secret }}{{ if .name }}{{ $secrets = set (deepCopy $secrets) "WANDB_API_KEY" . }}{{ end }}{{ end -}}
    {{- range $name, $secret := $secrets -}}
      {{- $env = append $env (dict "name" $name "valueFrom" (dict "secretKeyRef" (dict "name" $secret.name "key" $secret.key))) -}}
    {{- end -}}
  {{- end -}}
  {{- $env | toJson -}}
{{- end -}}

{{- /* Memory and chips have limits equal to their requests. CPU has none, so that a pod can use idle cores. */ -}}
{{- define "common.pod.resources" -}}
  {{- $requests := dict -}}
  {{- $limits := dict -}}
  {{- with .cpu }}{{ $_ := set $requests "cpu" (include "common.quantity" .) }}{{ end -}}
  {{- with .memory }}{{ $memory := include "common.quantity" . }}{{ $_ := set $requests "memory" $memory }}{{ $_ := set $limits "memory" $memory }}{{ end -}}
  {{- if not .head -}}
    {{- $chips := include "common.quantity" .slice.resolved.chipsPerHost -}}
    {{- with include "common.resource" .slice.resolved }}{{ $_ := set $requests . $chips }}{{ $_ := set $limits . $chips }}{{ end -}}
  {{- end -}}
  {{- $resources := dict -}}
  {{- with $requests }}{{ $_ := set $resources "requests" . }}{{ end -}}
  {{- with $limits }}{{ $_ := set $resources "limits" . }}{{ end -}}
  {{- $resources | toJson -}}
{{- end -}}

{{- /* The annotations with which GKE adds its gcsfuse sidecar to the pod. Takes the values `storage`. */ -}}
{{- define "common.pod.storageAnnotations" -}}
  {{- $annotations := dict -}}
  {{- if or (eq .kind "gcsfuse") .text.bucket -}}
    {{- $_ := set $annotations "gke-gcsfuse/volumes" "true" -}}
    {{- range $name, $limit := .sidecarLimits }}{{ $_ := set $annotations (printf "gke-gcsfuse/%s-limit" $name) $limit }}{{ end -}}
  {{- end -}}
  {{- $annotations | toJson -}}
{{- end -}}

{{- /* The source of the volume. Takes `storage`; `user`, the owner of the files, because a bucket stores no owners; and
`host`, whether the pod uses its machine's network. */ -}}
{{- define "common.pod.storage" -}}
{{- if eq .storage.kind "gcsfuse" -}}
{{- $options := list .storage.mountOptions -}}
{{- if .user }}{{ $options = append $options (printf "uid=%d,gid=%d" .user .user) }}{{ end -}}
csi:
  driver: gcsfuse.csi.storage.gke.io
  volumeAttributes:
    bucketName: {{ .storage.bucket | quote }}
    mountOptions: {{ $options | compact | join "," | quote }}
    {{- if .host }}
    # Without this, the driver cannot find the service account of a pod on the host's network (GKE 1.29 and later).
    hostNetworkPodKSA: "true"
    {{- end }}
{{- else if eq .storage.kind "pvc" -}}
persistentVolumeClaim:
  claimName: {{ .storage.claim | quote }}
{{- else -}}
emptyDir: {}
{{- end }}
{{- end -}}

{{- /* The read-only volume with text, and the volume of its cache, whose name is that of GKE. Takes the values
`storage.text` as `text`; `user` and `host`. */ -}}
{{- define "common.pod.text" -}}
{{- $options := list .text.mountOptions -}}
{{- if .user }}{{ $options = append $options (printf "uid=%d,gid=%d" .user .user) }}{{ end -}}
- name: text
  csi:
    driver: gcsfuse.csi.storage.gke.io
    readOnly: true
    volumeAttributes:
      bucketName: {{ .text.bucket | quote }}
      mountOptions: {{ $options | compact | join "," | quote }}
      {{- with .text.cacheSize }}
      fileCacheCapacity: {{ include "common.quantity" . | quote }}
      fileCacheForRangeRead: "true"
      {{- end }}
      {{- if .host }}
      hostNetworkPodKSA: "true"
      {{- end }}
{{- if .text.cacheSize }}
- name: gke-gcsfuse-cache
  emptyDir:
    {{- if eq .text.cacheMedium "memory" }}
    medium: Memory
    {{- end }}
    sizeLimit: {{ include "common.quantity" .text.cacheSize | quote }}
{{- end }}
{{- end -}}

{{- /*
common.pod.metricsPort: JSON dict with the name and number of the port on which the trainer serves its metrics. The name
is not `metrics`, because KubeRay uses this name for the port of Ray's own metrics. Takes the values.
*/ -}}
{{- define "common.pod.metricsPort" -}}
  {{- $port := int64 .tracking.metricsPort -}}
  {{- ternary (dict "train-metrics" $port) dict (gt $port 0) | toJson -}}
{{- end -}}
