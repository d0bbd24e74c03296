{{- /* common.labels: the labels of every object. Takes `root`, Helm's context, `name` and `component`. */ -}}
{{- define "common.labels" -}}
app.kubernetes.io/name: {{ .name | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
app.kubernetes.io/part-of: slipway
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- /* common.namespace: the namespace of the team, or else of the release. Takes Helm's context. */ -}}
{{- define "common.namespace" -}}
  {{- .Values.team.namespace | default .Values.team.name | default .Release.Namespace -}}
{{- end -}}

{{- /* common.queue: the LocalQueue, or "" if Kueue does not manage the object. Takes the values. */ -}}
{{- define "common.queue" -}}
  {{- .queue.name | default .team.name -}}
{{- end -}}

{{- /* common.metadata: the metadata of a run, a Ray cluster or a model: with the labels that Kueue reads, and the team. Takes
what common.labels takes, and of the object `labels` and `annotations` (dicts), and `label`, the label with its name. */ -}}
{{- define "common.metadata" -}}
{{- $values := .root.Values -}}
metadata:
  name: {{ .name | quote }}
  namespace: {{ include "common.namespace" .root | quote }}
  labels:
    {{- include "common.labels" . | nindent 4 }}
    {{- with .label }}
    {{ . }}: {{ $.name | quote }}
    {{- end }}
    {{- $labels := deepCopy $values.commonLabels }}
    {{- with $values.team.name }}{{ $_ := set $labels "slipway.dev/team" . }}{{ end }}
    {{- with include "common.queue" $values }}{{ $_ := set $labels "kueue.x-k8s.io/queue-name" . }}{{ end }}
    {{- with $values.queue.priority }}{{ $_ := set $labels "kueue.x-k8s.io/priority-class" . }}{{ end }}
    {{- range $key, $value := mergeOverwrite $labels .labels }}
    {{ $key }}: {{ $value | quote }}
    {{- end }}
  {{- with mergeOverwrite (deepCopy $values.commonAnnotations) .annotations }}
  annotations:
    {{- range $key, $value := . }}
    {{ $key }}: {{ $value | quote }}
    {{- end }}
  {{- end }}
{{- end -}}
