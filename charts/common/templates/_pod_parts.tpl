{{- /* The parts of the pod template in _pod.tpl. They take its arguments, unless a comment lists others. */ -}}

{{- /* common.pod.containers: YAML of sidecars or init containers. Takes `containers`, by name, and the values `image`. */ -}}
{{- define "common.pod.containers" -}}
{{- $in := . -}}
{{- range $name, $container := .containers }}
- name: {{ $name | quote }}
  {{- $security := include "common.containerSecurity" . | fromYaml }}
  {{- $image := $container.image }}
  {{- with $in.image.registry }}{{ $image = printf "%s/%s" . $container.image }}{{ end }}
  {{- $own := dict "image" $image "securityContext" (merge ($container.securityContext | default dict) $security) }}
  {{- toYaml (merge $own $container) | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* common.image: repository@digest, or repository:tag, in the registry. Takes the values `image`. */ -}}
{{- define "common.image" -}}
  {{- with .registry }}{{ . }}/{{ end -}}
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
  {{- if .head -}}
    {{- range $name, $value := .values.head.env }}{{ $env = append $env (dict "name" $name "value" $value) }}{{ end -}}
    {{- range $name, $secret := .values.head.secretEnv -}}
      {{- $env = append $env (dict "name" $name "valueFrom" (dict "secretKeyRef" $secret)) -}}
    {{- end -}}
  {{- else -}}
    {{- $env = append $env (dict "name" "SLIPWAY_NODE" "valueFrom" (dict "fieldRef" (dict "fieldPath" "spec.nodeName"))) -}}
    {{- $plain := dict "JAX_PLATFORMS" (get (dict "tpu" "tpu,cpu" "gpu" "cuda,cpu" "cpu" "cpu") .slice.resolved.kind) -}}
    {{- if eq (include "common.resource" .slice.resolved) "amd.com/gpu" }}{{ $_ := set $plain "JAX_PLATFORMS" "rocm,cpu" }}{{ end -}}
    {{- if eq .slice.resolved.kind "tpu" }}{{ $_ := set $plain "ENABLE_PJRT_COMPATIBILITY" "true" }}{{ end -}}
    {{- range $name, $value := mergeOverwrite $plain .values.worker.env -}}
      {{- $env = append $env (dict "name" $name "value" $value) -}}
    {{- end -}}
    {{- $secrets := .values.worker.secretEnv -}}
    {{- with .values.tracking }}{{ with .wandb.secret }}
      {{- if .name }}{{ $secrets = set (deepCopy $secrets) "WANDB_API_KEY" . }}{{ end -}}
    {{- end }}{{ end -}}
    {{- range $name, $secret := $secrets -}}
      {{- $env = append $env (dict "name" $name "valueFrom" (dict "secretKeyRef" (dict "name" $secret.name "key" $secret.key))) -}}
    {{- end -}}
  {{- end -}}
  {{- /* Notifications must not prevent a pod from starting: the Secret may be missing. */ -}}
  {{- with .values.notify }}{{ with .secret -}}
    {{- $secret := dict "name" . "key" "addresses" "optional" true -}}
    {{- $env = append $env (dict "name" "SLIPWAY_NOTIFY" "valueFrom" (dict "secretKeyRef" $secret)) -}}
  {{- end }}{{ end -}}
  {{- with $env }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* Memory and chips have limits equal to their requests. CPU has none, so that a pod can use idle cores. */ -}}
{{- define "common.pod.resources" -}}
  {{- $requests := dict -}}
  {{- $limits := dict -}}
  {{- with .cpu }}{{ $_ := set $requests "cpu" (include "common.quantity" .) }}{{ end -}}
  {{- with .memory -}}
    {{- $memory := include "common.quantity" . -}}
    {{- $_ := set $requests "memory" $memory -}}
    {{- $_ := set $limits "memory" $memory -}}
  {{- end -}}
  {{- if not .head -}}
    {{- $chips := include "common.quantity" .slice.resolved.chipsPerHost -}}
    {{- with include "common.resource" .slice.resolved }}{{ $_ := set $requests . $chips }}{{ $_ := set $limits . $chips }}{{ end -}}
  {{- end -}}
  {{- $resources := dict -}}
  {{- with $requests }}{{ $_ := set $resources "requests" . }}{{ end -}}
  {{- with $limits }}{{ $_ := set $resources "limits" . }}{{ end -}}
  {{- with $resources }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* The annotations of the pod: those of the values, those with which GKE adds its gcsfuse sidecar, those of the arguments,
and those that ask Kueue to keep the hosts of a slice on one node pool, if slice.placement is topology. */ -}}
{{- define "common.pod.annotations" -}}
  {{- $annotations := mergeOverwrite (deepCopy .values.commonAnnotations) (.pods.annotations | default dict) -}}
  {{- with .values.storage -}}
    {{- if or (eq .kind "gcsfuse") .text.bucket -}}
      {{- $_ := set $annotations "gke-gcsfuse/volumes" "true" -}}
      {{- range $name, $limit := .sidecarLimits -}}
        {{- $_ := set $annotations (printf "gke-gcsfuse/%s-limit" $name) (include "common.quantity" $limit) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $annotations = mergeOverwrite $annotations .annotations -}}
  {{- if and (not .head) (eq .slice.placement "topology") (ne .slice.resolved.kind "cpu") -}}
    {{- $level := "cloud.google.com/gke-nodepool" -}}
    {{- if gt (int64 .slice.count) 1 -}}
      {{- $_ := set $annotations "kueue.x-k8s.io/podset-slice-required-topology" $level -}}
      {{- $_ := set $annotations "kueue.x-k8s.io/podset-slice-size" (.slice.resolved.hosts | int64 | toString) -}}
    {{- else -}}
      {{- $_ := set $annotations "kueue.x-k8s.io/podset-required-topology" $level -}}
    {{- end -}}
  {{- end -}}
  {{- if not .values.run.safeToEvict }}{{ $_ := set $annotations "cluster-autoscaler.kubernetes.io/safe-to-evict" "false" }}{{ end -}}
  {{- range $key, $value := $annotations }}
{{ $key }}: {{ $value | quote }}
  {{- end -}}
{{- end -}}
