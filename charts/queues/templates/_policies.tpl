{{- /* Names in << >> in policies/ and in run-policy.yaml are replaced here. */ -}}

{{- /* queues.policies.setNamespaces: set in the root context `policyNamespaces`, the namespaces to which each policy applies.
The chart renders no policy without one. All users share the namespace default, so that runs there are not restricted. Renders
nothing. */ -}}
{{- define "queues.policies.setNamespaces" -}}
  {{- $runs := list -}}
  {{- $tokens := list -}}
  {{- $workloads := list -}}
  {{- range .restrictedTeams -}}
    {{- if and $.Values.policies.runs (ne .namespace "default") }}{{ $runs = append $runs .namespace | uniq }}{{ end -}}
  {{- end -}}
  {{- range .Values.teams -}}
    {{- if and $.Values.policies.tokens (or .helm .secrets .leads) }}{{ $tokens = append $tokens .namespace }}{{ end -}}
    {{- if or .members .leads }}{{ $workloads = append $workloads .namespace }}{{ end -}}
  {{- end -}}
  {{- $_ := set . "policyNamespaces" (dict "runs" $runs "runs-deletion" $runs "tokens" $tokens "workloads" $workloads) -}}
{{- end -}}

{{- /* queues.policies.filled: a text without names in << >>. Takes `text`, `constants`, and `item`, the CEL of the map that has
the field. */ -}}
{{- define "queues.policies.filled" -}}
  {{- $text := .text | replace "<<item>>" (.item | default "") -}}
  {{- range $name, $value := .constants }}{{ $text = replace (printf "<<%s>>" $name) $value $text }}{{ end -}}
  {{- $text -}}
{{- end -}}

{{- /* queues.policies.setConstants: set in the dict `into` what replaces each name: CEL, or with .text a text. Takes `root`.
Renders nothing. */ -}}
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
  {{- range $name, $team := .root.Values.teams }}{{ if $team.allow.buckets }}{{ $listed = true }}{{ end }}{{ end -}}
  {{- $_ := set .into "bucketsListed" (toJson $listed) -}}
  {{- $lists := pick $policies "runtimeClasses" "schedulers" "containers" "labelPrefixes" "annotationPrefixes" "gatewayClasses"
      "csiDrivers" "volumes" -}}
  {{- $_ := set $lists "nodeLabels" (concat $labels $policies.nodeLabels) -}}
  {{- $_ := set $lists "tolerations" (concat $taints $policies.tolerations) -}}
  {{- range $key, $list := set $lists "chips" $chips -}}
    {{- $sorted := $list | uniq | sortAlpha -}}
    {{- $_ := set $.into $key (toRawJson $sorted) -}}
    {{- $_ := set $.into (printf "%s.text" $key) (join ", " $sorted | default "none") -}}
  {{- end -}}
  {{- range $key, $bound := $policies.bounds }}{{ $_ := set $.into (printf "bounds.%s" $key) (int64 $bound | toString) }}{{ end -}}
  {{- include "queues.policies.setTeams" . -}}
  {{- include "queues.policies.setErrors" . -}}
{{- end -}}

{{- /* queues.policies.setTeams: set in the dict `into` for each list of texts that a team has, such as teams.queues, the CEL of
that of the request's namespace, as JSON. An expression may have at most 100,000 characters, so that it lists only the teams
that differ from the first. Takes `root`. Renders nothing. */ -}}
{{- define "queues.policies.setTeams" -}}
  {{- $priorities := .root.Values.priorities -}}
  {{- $lists := dict -}}
  {{- range $name, $team := .root.restrictedTeams -}}
    {{- $allowed := $team.priorities | default (keys $priorities | sortAlpha) -}}
    {{- $podPriorities := list -}}
    {{- range $allowed }}{{ if (get $priorities .).pods }}{{ $podPriorities = append $podPriorities . }}{{ end }}{{ end -}}
    {{- $allow := list -}}
    {{- range list "autoscaling" "hostNetwork" "privileged" -}}
      {{- if get $team.allow . }}{{ $allow = append $allow . }}{{ end -}}
    {{- end -}}
    {{- if ne $team.podSecurity "restricted" }}{{ $allow = append $allow "root" }}{{ end -}}
    {{- range $key, $list := dict
        "name" (list $name)
        "queues" (concat (list $team.queue) $team.allow.queues)
        "priorities" $allowed
        "podPriorities" $podPriorities
        "accounts" (concat (list "" "default" $team.serviceAccount.name) $team.allow.serviceAccounts | uniq)
        "allow" $allow
        "tokenClusters" (ternary $team.clusters list $team.k8sTokenAuth)
        "buckets" (concat $.root.Values.policies.buckets $team.allow.buckets | uniq)
        "claims" $team.allow.claims
        "csiDrivers" $team.allow.csiDrivers
        "capabilities" $team.allow.capabilities -}}
      {{- if ne $team.namespace "default" -}}
        {{- $_ := set $lists $key (set (get $lists $key | default dict) $team.namespace $list) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $key, $listOf := $lists -}}
    {{- $first := get $listOf (keys $listOf | sortAlpha | first) -}}
    {{- $others := dict -}}
    {{- range $namespace, $list := $listOf -}}
      {{- if ne (toJson $list) (toJson $first) }}{{ $_ := set $others $namespace $list }}{{ end -}}
    {{- end -}}
    {{- $cel := printf "dyn(%s)[?request.namespace].orValue(dyn(%s))" (toRawJson $others) (toRawJson $first) -}}
    {{- $_ := set $.into (printf "teams.%s" $key) (toRawJson $cel) -}}
  {{- end -}}
{{- end -}}
