{{- define "run.name" -}}
  {{- .Values.run.name | default .Release.Name -}}
{{- end -}}

{{- /* run.validate: fail with a line for each problem; else set in the root context `hosts`, the hosts of the run as
common.slices has them, and `slices`, the groups of hosts of its Ray cluster. Each manifest includes it before it reads the
values. All files of a chart have the same root context, so that only the first one does the work. */ -}}
{{- define "run.validate" -}}
  {{- if not (hasKey . "hosts") -}}
    {{- include "common.ownValues" . -}}
    {{- $kind := .Values.run.kind -}}
    {{- if eq $kind "local" -}}
      {{- include "common.fail" "run.kind local runs on your machine; use launcher submit." -}}
    {{- else if eq $kind "ray-cluster" -}}
      {{- include "common.fail" (print "run.kind ray-cluster creates no Kubernetes object; launcher submit submits the run to the "
          "long-lived Ray cluster run.cluster, which charts/ray-cluster creates.") -}}
    {{- else -}}
      {{- $named := ternary "run.name" "the release's name (run.name is empty)" (not (empty .Values.run.name)) -}}
      {{- include "common.fail" (include "common.rules" (dict "values" .Values "kind" $kind "name" (include "run.name" .)
          "named" $named)) -}}
    {{- end -}}
    {{- include "common.slices" (dict "values" .Values "longLived" false "split" false "into" .) -}}
    {{- $_ := set . "hosts" (first .slices) -}}
    {{- include "common.slices" (dict "values" .Values "longLived" false "split" true "into" .) -}}
    {{- if gt (include "run.config" . | len) 120000 -}}
      {{- include "common.fail" (print "the run config is too large: a Kubernetes object can have at most 256 KiB of annotations; "
          "put long texts into files in the storage, and name files in data by folders and globs.") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* run.config: JSON of the run config: the effective values; under `accelerator` the resolved slice; and in `train`
the path of the weights that follows from `from`, as in launcher/config/weights.py. */ -}}
{{- define "run.config" -}}
  {{- $config := set (omit .Values "common" "global") "accelerator" .hosts.slice.resolved -}}
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

{{- /* run.attempt: the variable with the number of the attempt, which launcher submit sets in an annotation. */ -}}
{{- define "run.attempt" -}}
name: SLIPWAY_ATTEMPT
valueFrom: {fieldRef: {fieldPath: "metadata.annotations['slipway.dev/attempt']"}}
{{- end -}}

{{- define "run.metadata" -}}
{{- $annotations := dict }}
{{- with .hosts.slice }}
{{- if and (eq $.Values.run.kind "job-set") (eq .placement "exclusive") (eq .resolved.kind "tpu") (gt (int64 .resolved.hosts) 1) }}
{{- $_ := set $annotations "alpha.jobset.sigs.k8s.io/exclusive-topology" "cloud.google.com/gke-nodepool" }}
{{- end }}
{{- if and (has "flex-start" .provisionings) $.Values.run.deadlineSeconds }}
{{- $_ := set $annotations "provreq.kueue.x-k8s.io/maxRunDurationSeconds" (int64 $.Values.run.deadlineSeconds | toString) }}
{{- end }}
{{- end }}
{{- $name := include "run.name" . }}
{{- include "common.metadata" (dict "root" . "name" $name "component" "run" "label" "slipway.dev/run" "labels" dict
    "annotations" $annotations) }}
{{- end -}}
