{{- define "run.name" -}}
  {{- .Values.run.name | default .Release.Name -}}
{{- end -}}

{{- /* run.validate: fail with a line for each problem. Each manifest includes it before it reads the values. */ -}}
{{- define "run.validate" -}}
  {{- include "common.ownValues" (dict "values" .Values "others" (include "run.others" .) "empty" (include "run.emptyValues" .)) -}}
  {{- $kind := .Values.run.kind -}}
  {{- $wrong := list -}}
  {{- if eq $kind "local" -}}
    {{- $wrong = list "run.kind local runs on your machine; use launcher submit." -}}
  {{- else if eq $kind "ray-cluster" -}}
    {{- $wrong = list (print "run.kind ray-cluster creates no Kubernetes object; launcher submit submits the run to the long-lived "
        "Ray cluster run.cluster, which charts/ray-cluster creates.") -}}
  {{- else -}}
    {{- $named := ternary "run.name" "the release's name (run.name is empty)" (not (empty .Values.run.name)) -}}
    {{- $wrong = include "common.rules" (dict "values" .Values "kind" $kind "name" (include "run.name" .)
        "named" $named) | fromJsonArray -}}
    {{- if not $wrong -}}
      {{- if gt (include "run.config" . | len) 120000 -}}
        {{- $wrong = list (print "train, data: the run config is too large: a Kubernetes object can have at most 256 KiB of "
            "annotations; name files by folders and globs.") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if $wrong -}}
    {{- fail (printf "\n%s\n" (join "\n" $wrong)) -}}
  {{- end -}}
{{- end -}}

{{- /* run.slice: JSON of the hosts of the run: its slice, as common.slices returns it. */ -}}
{{- define "run.slice" -}}
  {{- include "common.slices" (dict "values" .Values "longLived" false "split" false) | fromJsonArray | first | toJson -}}
{{- end -}}

{{- /* run.config: JSON of the run config: the effective values; under `accelerator` the resolved slice; and in `train`
the path of the weights that follows from `from`, as in launcher/config/weights.py. */ -}}
{{- define "run.config" -}}
  {{- $slice := (include "run.slice" . | fromJson).slice -}}
  {{- $config := set (omit .Values "common" "global") "accelerator" $slice.resolved -}}
  {{- with .Values.from -}}
    {{- $items := printf "%s/items" (regexReplaceAll "(/items)?/*$" . "") -}}
    {{- if not (contains "/" .) -}}
      {{- $run := splitList "@" . -}}
      {{- $step := "last" -}}
      {{- if gt (len $run) 1 }}{{ $step = last $run }}{{ end -}}
      {{- $items = printf "%s/%s/checkpoints/%s/items" (trimSuffix "/" $.Values.storage.mountPath) (first $run) $step -}}
    {{- end -}}
    {{- $config = set $config "train" (set (deepCopy $.Values.train) "load_parameters_path" $items) -}}
  {{- end -}}
  {{- $config | toJson -}}
{{- end -}}

{{- define "run.podLabels" -}}
  {{- $labels := dict "slipway.dev/run" (include "run.name" .) -}}
  {{- with .Values.team.name }}{{ $_ := set $labels "slipway.dev/team" . }}{{ end -}}
  {{- $labels | toJson -}}
{{- end -}}

{{- define "run.metadata" -}}
name: {{ include "run.name" . | quote }}
namespace: {{ include "common.namespace" (dict "values" .Values "release" .Release) | quote }}
labels:
  {{- include "common.labels" (dict "chart" .Chart "release" .Release "name" (include "run.name" .) "component" "run") | nindent 2 }}
  slipway.dev/run: {{ include "run.name" . | quote }}
  {{- range $key, $value := include "common.objectLabels" .Values | fromJson }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
{{- $annotations := deepCopy .Values.commonAnnotations }}
{{- with (include "run.slice" . | fromJson).slice }}
{{- if and (eq $.Values.run.kind "job-set") (eq .placement "exclusive") (eq .resolved.kind "tpu") (gt (int64 .resolved.hosts) 1) }}
{{- $_ := set $annotations "alpha.jobset.sigs.k8s.io/exclusive-topology" "cloud.google.com/gke-nodepool" }}
{{- end }}
{{- if and (has "flex-start" (include "common.provisionings" . | fromJsonArray)) $.Values.run.deadlineSeconds }}
{{- $_ := set $annotations "provreq.kueue.x-k8s.io/maxRunDurationSeconds" (int64 $.Values.run.deadlineSeconds | toString) }}
{{- end }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- range $key, $value := . }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
{{- end }}
{{- end -}}
