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
  {{- range $label, $value := $monitoring.labels -}}
    {{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $label) -}}
      {{- $wrong = append $wrong (printf "monitoring.labels: %q is not a valid label key; use letters, digits, hyphens, dots and underscores, such as example.com/pool." $label) -}}
    {{- else if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value) -}}
      {{- $wrong = append $wrong (printf "monitoring.labels.%s: %q is not a valid label value; use at most 63 letters, digits, hyphens, dots and underscores." $label $value) -}}
    {{- else if regexMatch "^(app\\.kubernetes\\.io/.*|helm\\.sh/chart|slipway\\.dev/.*)$" $label -}}
      {{- $wrong = append $wrong (printf "monitoring.labels.%s is set by Slipway; remove it." $label) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
