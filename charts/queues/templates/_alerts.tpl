{{- /* queues.alerts.groups: YAML list of the groups of rules: those of alerts.yaml, and the recording rules of the teams. */ -}}
{{- define "queues.alerts.groups" -}}
  {{- $alerts := .Values.monitoring.alerts -}}
  {{- $policies := values .policyNamespaces | compact | len -}}
  {{- $text := .Files.Get "alerts.yaml" | replace "$(policies)" (toString $policies) -}}
  {{- range $key, $value := $alerts }}{{ $text = replace (printf "$(%s)" $key) (toString $value) $text }}{{ end -}}
  {{- $leases := dict "kueue" ".*[.]kueue[.]x-k8s[.]io" "jobset" ".*[.]jobset[.]x-k8s[.]io" "kuberay" "ray-operator-leader" -}}
  {{- $groups := list -}}
  {{- range $group := (fromYaml $text).groups -}}
    {{- $rules := list -}}
    {{- range $rule := $group.rules -}}
      {{- $left := or (has $rule.alert $alerts.disabled) (and (not $policies) (eq "SlipwayPolicyMissing" (toString $rule.alert))) -}}
      {{- $each := ternary $alerts.controllers (list "") (contains "$(controller)" (toJson $rule)) -}}
      {{- range $controller := ternary list $each $left -}}
        {{- $made := $rule -}}
        {{- if $controller -}}
          {{- $made = $rule | toYaml | replace "$(controller)" $controller | replace "$(lease)" (get $leases $controller) | fromYaml -}}
        {{- end -}}
        {{- if and $made.alert $alerts.runbookUrl -}}
          {{- $_ := set $made.annotations "runbook_url" (printf "%s#%s" $alerts.runbookUrl (lower $made.alert)) -}}
        {{- end -}}
        {{- $rules = append $rules $made -}}
      {{- end -}}
    {{- end -}}
    {{- if $rules }}{{ $groups = append $groups (set $group "rules" $rules) }}{{ end -}}
  {{- end -}}
  {{- /* Last, the recording rules of each team: its chips, and from them its chip-hours. Kueue's label `namespace` is called
  exported_namespace if the scraper adds its own. */ -}}
  {{- $resources := list -}}
  {{- range .Values.flavors }}{{ with .resource }}{{ $resources = append $resources . }}{{ end }}{{ end -}}
  {{- $chips := join "|" ($resources | default (list "google.com/tpu" "nvidia.com/gpu") | uniq | sortAlpha) -}}
  {{- $rules := (last $groups).rules -}}
  {{- range $name, $team := .Values.teams -}}
    {{- $usage := list -}}
    {{- range $label := list "namespace" "exported_namespace" -}}
      {{- $usage = append $usage (printf "kueue_local_queue_resource_usage{%s=%q, resource=~%q}" $label $team.namespace $chips) -}}
    {{- end -}}
    {{- $rules = append $rules (dict "record" "team_flavor:slipway_chips:sum" "labels" (dict "team" $name)
        "expr" (printf "sum by (flavor) (max by (name, flavor, resource) (%s))" (join " or " $usage))) -}}
  {{- end -}}
  {{- /* The rules of the group run every minute: the sum over a time is the chip-hours in it. */ -}}
  {{- $hours := dict "record" "team_flavor:slipway_chip_hours:sum" "expr" "team_flavor:slipway_chips:sum / 60" -}}
  {{- $_ := set (last $groups) "rules" (append $rules $hours) -}}
  {{- toYaml $groups -}}
{{- end -}}

{{- define "queues.rules.monitoring" -}}
  {{- $monitoring := .Values.monitoring -}}
  {{- $known := list -}}
  {{- range (.Files.Get "alerts.yaml" | fromYaml).groups }}{{ range .rules }}{{ $known = append $known .alert }}{{ end }}{{ end -}}
  {{- range $monitoring.alerts.disabled -}}
    {{- if not (has . $known) -}}
      {{- $all := $known | compact | uniq | sortAlpha | join ", " -}}
      {{- printf "monitoring.alerts.disabled: there is no alert %q; the alerts are %s.\n" . $all -}}
    {{- end -}}
  {{- end -}}
  {{- $scraped := or $monitoring.podMonitoring $monitoring.podMonitor $monitoring.fromNamespaces -}}
  {{- include "common.sentences" (list
      (list (and $monitoring.labels (not $monitoring.podMonitor) (ne $monitoring.alerts.kind "PrometheusRule"))
          (print "monitoring.labels applies only to PodMonitors and PrometheusRules; set monitoring.podMonitor: true or "
          "monitoring.alerts.kind: PrometheusRule, or remove the labels."))
      (list (and $monitoring.ray (not $scraped))
          "monitoring.ray has no effect, because nothing is scraped; set monitoring.podMonitoring or monitoring.podMonitor.")) -}}
  {{- include "queues.rules.names" (dict "key" "monitoring.fromNamespaces" "names" $monitoring.fromNamespaces "max" 63) -}}
  {{- $reserved := "^(app\\.kubernetes\\.io/.*|helm\\.sh/chart|slipway\\.dev/.*)$" -}}
  {{- range $key, $labels := dict "labels" $monitoring.labels "dashboards.labels" $monitoring.dashboards.labels -}}
    {{- include "queues.rules.labels" (dict "key" (printf "monitoring.%s" $key) "labels" $labels "reserved" $reserved) -}}
  {{- end -}}
{{- end -}}

{{- /* queues.rules.crds: a sentence for each kind of the monitoring that the cluster does not serve. */ -}}
{{- define "queues.rules.crds" -}}
  {{- $monitoring := .Values.monitoring -}}
  {{- $operator := list "monitoring.coreos.com/v1" "the Prometheus Operator" -}}
  {{- $managed := list "monitoring.googleapis.com/v1" "GKE's managed Prometheus" -}}
  {{- range list
      (list $monitoring.podMonitor "podMonitor is true" "PodMonitor" $operator)
      (list $monitoring.podMonitoring "podMonitoring is true" "PodMonitoring" $managed)
      (list (eq $monitoring.alerts.kind "PrometheusRule") "alerts.kind is PrometheusRule" "PrometheusRule" $operator)
      (list (eq $monitoring.alerts.kind "ClusterRules") "alerts.kind is ClusterRules" "ClusterRules" $managed) -}}
    {{- $kind := index . 2 -}}
    {{- $api := index . 3 0 -}}
    {{- if and (index . 0) (not ($.Capabilities.APIVersions.Has (printf "%s/%s" $api $kind))) -}}
      {{- printf "monitoring.%s, but the cluster does not serve the kind %s of %s; install %s first, or change the key.\n" (index . 1)
          $kind $api (index . 3 1) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
