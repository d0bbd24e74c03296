{{- /* Names in << >> in policies/ and in run-policy.yaml are replaced here. */ -}}

{{- /* queues.policies.setNamespaces: set in the root context `policyNamespaces`, the namespaces to which each policy applies.
The chart renders no policy without one. All users share the namespace default, so that runs there are not restricted. */ -}}
{{- define "queues.policies.setNamespaces" -}}
  {{- $runs := list -}}
  {{- $tokens := list -}}
  {{- $workloads := list -}}
  {{- range ternary .restrictedTeams dict .Values.policies.runs -}}
    {{- if ne .namespace "default" }}{{ $runs = append $runs .namespace | uniq }}{{ end -}}
  {{- end -}}
  {{- range .Values.teams -}}
    {{- if and $.Values.policies.tokens (or .helm .secrets .leads) }}{{ $tokens = append $tokens .namespace }}{{ end -}}
    {{- if or .members .leads }}{{ $workloads = append $workloads .namespace }}{{ end -}}
  {{- end -}}
  {{- $_ := set . "policyNamespaces" (dict "runs" $runs "runs-deletion" $runs "tokens" $tokens "workloads" $workloads) -}}
{{- end -}}

{{- /* queues.policies.filled: a text without names in << >>. Takes `text`, `constants`, and `item`, the CEL of its map. */ -}}
{{- define "queues.policies.filled" -}}
  {{- $text := .text | replace "<<item>>" (.item | default "") -}}
  {{- range $name, $value := ternary .constants dict (contains "<<" $text) -}}
    {{- $text = replace (printf "<<%s>>" $name) $value $text -}}
  {{- end -}}
  {{- $text -}}
{{- end -}}

{{- /* queues.policies.setConstants: set in the dict `into` what replaces each name: CEL, or with .text a text. Takes `root`. */ -}}
{{- define "queues.policies.setConstants" -}}
  {{- $policies := .root.Values.policies -}}
  {{- $table := .root.Files.Get "run-policy.yaml" | fromYaml -}}
  {{- $lists := pick $policies "runtimeClasses" "schedulers" "containers" "labelPrefixes" "annotationPrefixes" "gatewayClasses"
      "csiDrivers" "volumes" -}}
  {{- $chips := list -}}
  {{- range .root.Values.common.accelerators }}{{ with include "common.resource" . }}{{ $chips = append $chips . }}{{ end }}{{ end -}}
  {{- $labels := concat $table.nodeLabels $policies.nodeLabels -}}
  {{- $taints := concat $table.tolerations $policies.tolerations -}}
  {{- range .root.Values.flavors -}}
    {{- $labels = concat $labels (keys .nodeLabels) -}}
    {{- range concat (values .taints) (values .tolerations) }}{{ $taints = append $taints .key }}{{ end -}}
  {{- end -}}
  {{- range $key, $list := merge (dict "chips" $chips "nodeLabels" $labels "tolerations" $taints) $lists -}}
    {{- $sorted := $list | uniq | sortAlpha -}}
    {{- $_ := set $.into $key (toRawJson $sorted) -}}
    {{- $_ := set $.into (printf "%s.text" $key) (join ", " $sorted | default "none") -}}
  {{- end -}}
  {{- $buckets := $policies.buckets -}}
  {{- range .root.Values.teams }}{{ $buckets = concat $buckets .allow.buckets }}{{ end -}}
  {{- $_ := set .into "bucketsListed" (empty $buckets | not | toJson) -}}
  {{- range $key, $bound := $policies.bounds }}{{ $_ := set $.into (printf "bounds.%s" $key) (int64 $bound | toString) }}{{ end -}}
  {{- include "queues.policies.setTeams" . -}}
  {{- /* A type of volumes that the table does not have is a field without a check. */ -}}
  {{- $fields := deepCopy .root.Values.policies.fields -}}
  {{- range .root.Values.policies.volumes -}}
    {{- if not (hasKey $table.shapes.volume.fields .) -}}
      {{- $_ := set $fields "volume" (append (get $fields "volume" | default list) .) -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $part := $table.parts -}}
    {{- $in := merge (dict "table" $table "constants" $.into "fields" $fields "depth" 0) $part -}}
    {{- $unchecked := and (eq $name "container") (has "initContainers" (get $fields "pod" | default list)) -}}
    {{- $_ := set $.into (printf "errors.%s" $name) (ternary `""` (include "queues.policies.errors" $in) $unchecked) -}}
    {{- if has $name (list "template" "container") -}}
      {{- $_ := set $.into (printf "size.%s" $name) (include "queues.policies.size" $in) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* queues.policies.setTeams: set in the dict `into` for each list of texts that a team has, such as teams.queues, the CEL of
that of the request's namespace, as JSON. An expression may have at most 100,000 characters, so that it lists only the teams
that differ from the first. Takes `root`. Renders nothing. */ -}}
{{- define "queues.policies.setTeams" -}}
  {{- $priorities := .root.Values.priorities -}}
  {{- $lists := dict -}}
  {{- range $name, $team := .root.restrictedTeams -}}
    {{- if eq $team.namespace "default" }}{{ continue }}{{ end -}}
    {{- $allowed := $team.priorities | default (keys $priorities | sortAlpha) -}}
    {{- $podPriorities := list -}}
    {{- range $allowed }}{{ if (get $priorities .).pods }}{{ $podPriorities = append $podPriorities . }}{{ end }}{{ end -}}
    {{- $allow := list -}}
    {{- $rights := set (pick $team.allow "autoscaling" "hostNetwork" "privileged") "root" (ne $team.podSecurity "restricted") -}}
    {{- range $right, $has := $rights }}{{ if $has }}{{ $allow = append $allow $right }}{{ end }}{{ end -}}
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
      {{- $_ := set $lists $key (set (get $lists $key | default dict) $team.namespace $list) -}}
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
