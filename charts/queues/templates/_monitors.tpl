{{- /* queues.scrapedPorts: JSON list of port names, as in charts/run and KubeRay. The metrics of a served model are on
Ray's port. Takes `monitoring` and `what`: runs, clusters or models. */ -}}
{{- define "queues.scrapedPorts" -}}
  {{- if eq .what "models" -}}
    {{- list "metrics" | toJson -}}
  {{- else -}}
    {{- ternary (list "train-metrics" "metrics") (list "train-metrics") .monitoring.ray | toJson -}}
  {{- end -}}
{{- end -}}

{{- /* queues.scrapes: the endpoints of a monitor of either kind. Takes `monitoring` and `what`. */ -}}
{{- define "queues.scrapes" -}}
{{- range include "queues.scrapedPorts" . | fromJsonArray }}
- port: {{ . }}
  interval: {{ int64 $.monitoring.intervalSeconds }}s
{{- end }}
{{- end -}}

{{- define "queues.rules.monitoring" -}}
  {{- $wrong := list -}}
  {{- $monitoring := .Values.monitoring -}}
  {{- range $monitoring.fromNamespaces -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" "monitoring.fromNamespaces" "name" . "max" 63)) -}}
  {{- end -}}
  {{- $wanted := or $monitoring.podMonitoring $monitoring.podMonitor -}}
  {{- if and $monitoring.labels (not $monitoring.podMonitor) -}}
    {{- $wrong = append $wrong "monitoring.labels applies only to PodMonitors; set monitoring.podMonitor: true, or remove the labels." -}}
  {{- end -}}
  {{- if and $monitoring.ray (not (or $wanted $monitoring.fromNamespaces)) -}}
    {{- $wrong = append $wrong "monitoring.ray has no effect, because nothing is scraped; set monitoring.podMonitoring or monitoring.podMonitor." -}}
  {{- end -}}
  {{- $wrong = concat $wrong (include "queues.rules.labels" (dict "key" "monitoring.labels" "labels" $monitoring.labels "reserved" "^(app\\.kubernetes\\.io/.*|helm\\.sh/chart|slipway\\.dev/.*)$") | fromJsonArray) -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
