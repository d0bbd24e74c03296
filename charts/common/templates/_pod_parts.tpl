{{- /* What the pod template in _pod.tpl is put together from; they take its arguments, if nothing else is said. */ -}}

{{- /* common.image: repository@digest, or repository:tag; of `image`. */ -}}
{{- define "common.image" -}}
  {{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository .tag }}{{ end -}}
{{- end -}}

{{- /* What Pod Security's `restricted` asks of a container. */ -}}
{{- define "common.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "common.pod.nodeSelector" -}}
  {{- if .head -}}
    {{- .values.head.nodeSelector | toJson -}}
  {{- else -}}
    {{- $labels := include "common.nodeLabels" (dict "accelerator" .slice.resolved "machineType" .slice.machineType "provisioning" .slice.provisioning "reservation" .slice.reservation) | fromJson -}}
    {{- mergeOverwrite $labels .values.worker.nodeSelector | toJson -}}
  {{- end -}}
{{- end -}}

{{- /* GKE taints the nodes that have chips, are of the spot kind, or come from a queued provisioning request. */ -}}
{{- define "common.pod.tolerations" -}}
  {{- $tolerations := list -}}
  {{- $own := .values.head.tolerations -}}
  {{- if not .head -}}
    {{- $own = .values.worker.tolerations -}}
    {{- with include "common.resource" .slice.resolved -}}
      {{- $tolerations = append $tolerations (dict "key" . "operator" "Exists" "effect" "NoSchedule") -}}
    {{- end -}}
    {{- if eq .slice.provisioning "spot" -}}
      {{- $tolerations = append $tolerations (dict "key" "cloud.google.com/gke-spot" "operator" "Equal" "value" "true" "effect" "NoSchedule") -}}
    {{- else if eq .slice.provisioning "flex-start" -}}
      {{- $tolerations = append $tolerations (dict "key" "cloud.google.com/gke-queued" "operator" "Equal" "value" "true" "effect" "NoSchedule") -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $toleration := $own }}{{ $tolerations = append $tolerations $toleration }}{{ end -}}
  {{- $tolerations | toJson -}}
{{- end -}}

{{- /* The container's own variables, then JAX's platform, then worker.env, which wins, then those from Secrets. */ -}}
{{- define "common.pod.env" -}}
  {{- $env := .container.env | default list -}}
  {{- if not .head -}}
    {{- $plain := dict "JAX_PLATFORMS" (get (dict "tpu" "tpu,cpu" "gpu" "cuda,cpu" "cpu" "cpu") .slice.resolved.kind) -}}
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

{{- /* Memory and chips are limited to what is asked for; CPU is not, so that idle cores of the host are of use. */ -}}
{{- define "common.pod.resources" -}}
  {{- $requests := dict -}}
  {{- $limits := dict -}}
  {{- with .cpu }}{{ $_ := set $requests "cpu" . }}{{ end -}}
  {{- with .memory }}{{ $_ := set $requests "memory" . }}{{ $_ := set $limits "memory" . }}{{ end -}}
  {{- if not .head -}}
    {{- $chips := .slice.resolved.chipsPerHost | int64 | toString -}}
    {{- with include "common.resource" .slice.resolved }}{{ $_ := set $requests . $chips }}{{ $_ := set $limits . $chips }}{{ end -}}
  {{- end -}}
  {{- $resources := dict -}}
  {{- with $requests }}{{ $_ := set $resources "requests" . }}{{ end -}}
  {{- with $limits }}{{ $_ := set $resources "limits" . }}{{ end -}}
  {{- $resources | toJson -}}
{{- end -}}

{{- /* The annotations that have GKE put its gcsfuse sidecar into the pod; of `storage`. */ -}}
{{- define "common.pod.storageAnnotations" -}}
  {{- $annotations := dict -}}
  {{- if eq .kind "gcsfuse" -}}
    {{- $_ := set $annotations "gke-gcsfuse/volumes" "true" -}}
    {{- range $name, $limit := .sidecarLimits }}{{ $_ := set $annotations (printf "gke-gcsfuse/%s-limit" $name) $limit }}{{ end -}}
  {{- end -}}
  {{- $annotations | toJson -}}
{{- end -}}

{{- /* The volume's source; of `storage`, `user`, who is to own the files of a bucket, which knows no owners, and
`host`, whether the pod is on its machine's network. */ -}}
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
    # Without it the driver does not find the service account of a pod on the host's network (GKE 1.29 and later).
    hostNetworkPodKSA: "true"
    {{- end }}
{{- else if eq .storage.kind "pvc" -}}
persistentVolumeClaim:
  claimName: {{ .storage.claim | quote }}
{{- else -}}
emptyDir: {}
{{- end }}
{{- end -}}

{{- /*
common.pod.metricsPort: JSON dict of the port on which the trainer serves its metrics, by its name in the container. Not
`metrics`: so KubeRay names the one of Ray's own. Of the values.
*/ -}}
{{- define "common.pod.metricsPort" -}}
  {{- $port := int64 .tracking.metricsPort -}}
  {{- ternary (dict "train-metrics" $port) dict (gt $port 0) | toJson -}}
{{- end -}}
