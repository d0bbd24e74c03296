{{- /* queues.alerts.groups: YAML list of the groups of rules: those of alerts.yaml with the values of monitoring.alerts, and
the recording rules of the teams. */ -}}
{{- define "queues.alerts.groups" -}}
  {{- $alerts := .Values.monitoring.alerts -}}
  {{- $policies := 0 -}}
  {{- range .policyNamespaces }}{{ if . }}{{ $policies = add1 $policies }}{{ end }}{{ end -}}
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
        {{- $made := $rule | toJson | replace "$(controller)" $controller | replace "$(lease)" (get $leases $controller) | fromJson -}}
        {{- if and $made.alert $alerts.runbookUrl -}}
          {{- $_ := set $made.annotations "runbook_url" (printf "%s#%s" $alerts.runbookUrl (lower $made.alert)) -}}
        {{- end -}}
        {{- $rules = append $rules $made -}}
      {{- end -}}
    {{- end -}}
    {{- if $rules }}{{ $groups = append $groups (set $group "rules" $rules) }}{{ end -}}
  {{- end -}}
  {{- include "queues.alerts.setTeams" (dict "root" . "group" (last $groups)) -}}
  {{- toYaml $groups -}}
{{- end -}}

{{- /* queues.alerts.setTeams: add the recording rules of each team to the `group`: its chips, and from them its chip-hours.
Kueue's label `namespace` is called exported_namespace if the scraper adds its own. Renders nothing. Takes `root` and
`group`. */ -}}
{{- define "queues.alerts.setTeams" -}}
  {{- $resources := list -}}
  {{- range .root.Values.flavors }}{{ with .resource }}{{ $resources = append $resources . }}{{ end }}{{ end -}}
  {{- $chips := join "|" ($resources | default (list "google.com/tpu" "nvidia.com/gpu") | uniq | sortAlpha) -}}
  {{- $rules := .group.rules -}}
  {{- range $name, $team := .root.Values.teams -}}
    {{- $usage := list -}}
    {{- range $label := list "namespace" "exported_namespace" -}}
      {{- $usage = append $usage (printf "kueue_local_queue_resource_usage{%s=%q, resource=~%q}" $label $team.namespace $chips) -}}
    {{- end -}}
    {{- $rules = append $rules (dict "record" "team_flavor:slipway_chips:sum" "labels" (dict "team" $name)
        "expr" (printf "sum by (flavor) (max by (name, flavor, resource) (%s))" (join " or " $usage))) -}}
  {{- end -}}
  {{- /* The rules of the group run every minute: the sum over a time is the chip-hours in it. */ -}}
  {{- $hours := dict "record" "team_flavor:slipway_chip_hours:sum" "expr" "team_flavor:slipway_chips:sum / 60" -}}
  {{- $_ := set .group "rules" (append $rules $hours) -}}
{{- end -}}

{{- define "queues.rules.alerts" -}}
  {{- $monitoring := .Values.monitoring -}}
  {{- $known := list -}}
  {{- range (.Files.Get "alerts.yaml" | fromYaml).groups }}{{ range .rules }}{{ $known = append $known .alert }}{{ end }}{{ end -}}
  {{- range $monitoring.alerts.disabled -}}
    {{- if not (has . $known) -}}
      {{- printf "monitoring.alerts.disabled: there is no alert %q; the alerts are %s.\n" .
          ($known | compact | uniq | sortAlpha | join ", ") -}}
    {{- end -}}
  {{- end -}}
  {{- include "queues.rules.labels" (dict "key" "monitoring.dashboards.labels" "labels" $monitoring.dashboards.labels
      "reserved" "^(app\\.kubernetes\\.io/.*|helm\\.sh/chart|slipway\\.dev/.*)$") -}}
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
