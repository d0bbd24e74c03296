{{- /* common.labels: the labels of every object; `name`, `component`, `chart` and `release` as in Helm. */ -}}
{{- define "common.labels" -}}
app.kubernetes.io/name: {{ .name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
app.kubernetes.io/part-of: slipway
app.kubernetes.io/managed-by: {{ .release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .chart.Name .chart.Version | replace "+" "_" | quote }}
{{- end -}}
