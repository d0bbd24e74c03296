{{- /* common.labels: the labels of every object. Takes `name`, `component`, and Helm's `chart` and `release`. */ -}}
{{- define "common.labels" -}}
app.kubernetes.io/name: {{ .name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
app.kubernetes.io/part-of: slipway
app.kubernetes.io/managed-by: {{ .release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .chart.Name .chart.Version | replace "+" "_" | quote }}
{{- end -}}
