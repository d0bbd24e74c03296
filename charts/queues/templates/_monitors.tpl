{{- /* The rules of monitoring, apart from its alerts. */ -}}
{{- define "queues.rules.monitoring" -}}
  {{- $monitoring := .Values.monitoring -}}
  {{- include "queues.rules.names" (dict "key" "monitoring.fromNamespaces" "names" $monitoring.fromNamespaces "max" 63) -}}
  {{- $wanted := or $monitoring.podMonitoring $monitoring.podMonitor -}}
  {{- if and $monitoring.labels (not (or $monitoring.podMonitor (eq $monitoring.alerts.kind "PrometheusRule"))) -}}
    {{- println (print "monitoring.labels applies only to PodMonitors and PrometheusRules; set monitoring.podMonitor: true or "
        "monitoring.alerts.kind: PrometheusRule, or remove the labels.") -}}
  {{- end -}}
  {{- if and $monitoring.ray (not (or $wanted $monitoring.fromNamespaces)) -}}
    {{- println "monitoring.ray has no effect, because nothing is scraped; set monitoring.podMonitoring or monitoring.podMonitor." -}}
  {{- end -}}
  {{- include "queues.rules.labels" (dict "key" "monitoring.labels" "labels" $monitoring.labels
      "reserved" "^(app\\.kubernetes\\.io/.*|helm\\.sh/chart|slipway\\.dev/.*)$") -}}
{{- end -}}
