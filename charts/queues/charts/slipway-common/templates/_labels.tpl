{{- /* common.labels: the labels of every object. Takes `name`, `component`, and Helm's `chart` and `release`. */ -}}
{{- define "common.labels" -}}
app.kubernetes.io/name: {{ .name | quote }}
app.kubernetes.io/instance: {{ .release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
app.kubernetes.io/part-of: slipway
app.kubernetes.io/managed-by: {{ .release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .chart.Name .chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- /*
common.requestTopology: set in `annotations` those that ask Kueue to keep the pods of a slice on one node pool, if
slice.placement is topology. Takes `slice`; `sliced`: the pod set holds several slices, each on its own node pool. Renders
nothing.
*/ -}}
{{- define "common.requestTopology" -}}
  {{- if and (eq .slice.placement "topology") (ne .slice.resolved.kind "cpu") -}}
    {{- $level := "cloud.google.com/gke-nodepool" -}}
    {{- if .sliced -}}
      {{- $_ := set .annotations "kueue.x-k8s.io/podset-slice-required-topology" $level -}}
      {{- $_ := set .annotations "kueue.x-k8s.io/podset-slice-size" (.slice.resolved.hosts | int64 | toString) -}}
    {{- else -}}
      {{- $_ := set .annotations "kueue.x-k8s.io/podset-required-topology" $level -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
