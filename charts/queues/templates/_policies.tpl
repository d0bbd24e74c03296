{{- /* The data of the admission policy for runs. */ -}}

{{- /*
queues.policies.setTeams: set in the dict `into` what runs may use, by namespace; without the namespace default, which all users share. All
entries of a team are lists of texts. Those of `like` are CEL, the value of most teams, in which `team` is the name. Takes `root`. Renders
nothing.
*/ -}}
{{- define "queues.policies.setTeams" -}}
  {{- $priorities := .root.Values.priorities -}}
  {{- range $name, $team := .root.restrictedTeams -}}
    {{- $allowed := $team.priorities | default (keys $priorities | sortAlpha) -}}
    {{- $podPriorities := list -}}
    {{- range $allowed -}}
      {{- if (get $priorities .).pods }}{{ $podPriorities = append $podPriorities . }}{{ end -}}
    {{- end -}}
    {{- $allow := list -}}
    {{- range $right := list "autoscaling" "hostNetwork" "privileged" -}}
      {{- if get $team.allow $right }}{{ $allow = append $allow $right }}{{ end -}}
    {{- end -}}
    {{- if ne $team.podSecurity "restricted" }}{{ $allow = append $allow "root" }}{{ end -}}
    {{- $entry := dict "name" (list $name) "queues" (concat (list $team.queue) $team.allow.queues) "priorities" $allowed -}}
    {{- $_ := set $entry "podPriorities" $podPriorities -}}
    {{- $_ := set $entry "accounts" (concat (list "" "default" $team.serviceAccount.name) $team.allow.serviceAccounts | uniq) -}}
    {{- $_ := set $entry "allow" $allow -}}
    {{- $_ := set $entry "tokenClusters" (ternary $team.clusters list $team.k8sTokenAuth) -}}
    {{- $_ := set $entry "buckets" (concat $.root.Values.policies.buckets $team.allow.buckets | uniq) -}}
    {{- $_ := set $entry "claims" $team.allow.claims -}}
    {{- $_ := set $entry "csiDrivers" $team.allow.csiDrivers -}}
    {{- $_ := set $entry "capabilities" $team.allow.capabilities -}}
    {{- if ne $team.namespace "default" }}{{ $_ := set $.into $team.namespace $entry }}{{ end -}}
  {{- end -}}
{{- end -}}

{{- /*
queues.policies.table: YAML of one variable: an entry of the teams, by namespace. An expression may have at most 100,000
characters, so that it lists only the teams that differ from the first. Takes `teams` and `key`.
*/ -}}
{{- define "queues.policies.table" -}}
  {{- $first := dict -}}
  {{- $others := dict -}}
  {{- range $namespace, $team := .teams -}}
    {{- $value := get $team $.key -}}
    {{- if not $first }}{{ $first = dict "value" $value }}{{ end -}}
    {{- if ne (toJson $value) (toJson $first.value) }}{{ $_ := set $others $namespace $value }}{{ end -}}
  {{- end -}}
- name: {{ .key }}
  expression: {{ printf "dyn(%s)[?request.namespace].orValue(dyn(%s))" (toRawJson $others) (toRawJson $first.value) | toRawJson }}
{{- end -}}

{{- /* queues.policies.setConstants: set in the dict `into` what replaces a name in << >> in the table: CEL, or with .text a text.
Takes `root`. Renders nothing. */ -}}
{{- define "queues.policies.setConstants" -}}
  {{- $policies := .root.Values.policies -}}
  {{- $chips := list -}}
  {{- range .root.Values.common.accelerators -}}
    {{- with include "common.resource" . }}{{ $chips = append $chips . }}{{ end -}}
  {{- end -}}
  {{- /* The keys of the labels that charts render for a slice, and of the flavors. */ -}}
  {{- $labels := list "cloud.google.com/gke-tpu-accelerator" "cloud.google.com/gke-tpu-topology" "cloud.google.com/gke-accelerator"
      "node.kubernetes.io/instance-type" "cloud.google.com/gke-spot" "cloud.google.com/reservation-name"
      "cloud.google.com/gke-flex-start" -}}
  {{- $taints := list "cloud.google.com/gke-spot" "cloud.google.com/gke-queued" -}}
  {{- range $name, $flavor := .root.Values.flavors -}}
    {{- $labels = concat $labels (keys $flavor.nodeLabels) -}}
    {{- range $key, $taint := $flavor.taints }}{{ $taints = append $taints $taint.key }}{{ end -}}
    {{- range $key, $toleration := $flavor.tolerations }}{{ $taints = append $taints $toleration.key }}{{ end -}}
  {{- end -}}
  {{- $listed := not (empty $policies.buckets) -}}
  {{- range $name, $team := .root.Values.teams -}}
    {{- if $team.allow.buckets }}{{ $listed = true }}{{ end -}}
  {{- end -}}
  {{- $lists := dict "nodeLabels" (concat $labels $policies.nodeLabels) "tolerations" (concat $taints $policies.tolerations) "chips"
      $chips -}}
  {{- range $key := list "runtimeClasses" "schedulers" "containers" "labelPrefixes" "annotationPrefixes" "gatewayClasses" "csiDrivers"
      "volumes" -}}
    {{- $_ := set $lists $key (get $policies $key) -}}
  {{- end -}}
  {{- $_ := set .into "bucketsListed" (toJson $listed) -}}
  {{- range $key, $list := $lists -}}
    {{- $sorted := $list | uniq | sortAlpha -}}
    {{- $_ := set $.into $key (toRawJson $sorted) -}}
    {{- $_ := set $.into (printf "%s.text" $key) (join ", " $sorted | default "none") -}}
  {{- end -}}
  {{- range $key, $bound := $policies.bounds }}{{ $_ := set $.into (printf "bounds.%s" $key) (int64 $bound | toString) }}{{ end -}}
{{- end -}}
