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
{{- $own := ternary .values.head .values.worker .head }}
{{- $plain := deepCopy $own.env }}
{{- $secrets := deepCopy $own.secretEnv }}
{{- with .container.env }}
{{ toYaml . }}
{{- end }}
{{- if not .head }}
- name: SLIPWAY_NODE
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- $jax := dict "JAX_PLATFORMS" (get (dict "tpu" "tpu,cpu" "gpu" "cuda,cpu" "cpu" "cpu") .slice.resolved.kind) }}
{{- if eq (include "common.resource" .slice.resolved) "amd.com/gpu" }}{{ $_ := set $jax "JAX_PLATFORMS" "rocm,cpu" }}{{ end }}
{{- if eq .slice.resolved.kind "tpu" }}{{ $_ := set $jax "ENABLE_PJRT_COMPATIBILITY" "true" }}{{ end }}
{{- $plain = mergeOverwrite $jax $plain }}
{{- with .values.tracking }}{{ with .wandb.secret }}
{{- if .name }}{{ $_ := set $secrets "WANDB_API_KEY" . }}{{ end }}
{{- end }}{{ end }}
{{- end }}
{{- range $name, $value := $plain }}
{{ list (dict "name" $name "value" $value) | toYaml }}
{{- end }}
{{- range $name, $secret := $secrets }}
{{ list (dict "name" $name "valueFrom" (dict "secretKeyRef" (pick $secret "name" "key"))) | toYaml }}
{{- end }}
{{- /* Notifications must not prevent a pod from starting: the Secret may be missing. */}}
{{- with .values.notify }}{{ with .secret }}
- name: SLIPWAY_NOTIFY
  valueFrom: {secretKeyRef: {key: addresses, name: {{ quote . }}, optional: true}}
{{- end }}{{ end }}
{{- end -}}

{{- /* Memory and chips have limits equal to their requests. CPU has none, so that a pod can use idle cores. */ -}}
{{- define "common.pod.resources" -}}
  {{- $limits := dict -}}
  {{- with .memory }}{{ $_ := set $limits "memory" (include "common.quantity" .) }}{{ end -}}
  {{- if not .head -}}
    {{- $chips := include "common.quantity" .slice.resolved.chipsPerHost -}}
    {{- with include "common.resource" .slice.resolved }}{{ $_ := set $limits . $chips }}{{ end -}}
  {{- end -}}
  {{- $requests := deepCopy $limits -}}
  {{- with .cpu }}{{ $_ := set $requests "cpu" (include "common.quantity" .) }}{{ end -}}
  {{- with $limits }}{{ dict "limits" . | toYaml }}{{ end -}}
  {{- with $requests }}{{ dict "requests" . | toYaml | nindent 0 }}{{ end -}}
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
