{{- /* These templates keep what runs still use of earlier values of the release. `helm template` and Argo CD look up nothing. */ -}}

{{- /* queues.keepEarlier: set in the root context, which all files of a chart share, `removedTeams`, the teams that these
values no longer have, by namespace, of those in which pods or admitted runs remain; `restrictedTeams`, the teams of the
values and these, whose runs get the same restrictions; and `liveQueues`, the ClusterQueues of the cluster by name. */ -}}
{{- define "queues.keepEarlier" -}}
  {{- $current := dict "default" true -}}
  {{- range .Values.teams }}{{ $_ := set $current .namespace true }}{{ end -}}
  {{- $found := dict -}}
  {{- range (lookup "v1" "ResourceQuota" "" "").items -}}
    {{- $team := include "queues.teamOf" (dict "release" $.Release "live" .) -}}
    {{- if and $team (not (hasKey $current .metadata.namespace)) }}{{ $_ := set $found .metadata.namespace $team }}{{ end -}}
  {{- end -}}
  {{- range $namespace := keys $found -}}
    {{- $used := false -}}
    {{- range (lookup "v1" "Pod" $namespace "").items -}}
      {{- if not (has (dig "status" "phase" "" .) (list "Succeeded" "Failed")) }}{{ $used = true }}{{ end -}}
    {{- end -}}
    {{- if and (not $used) ($.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta2/Workload") -}}
      {{- range (lookup "kueue.x-k8s.io/v1beta2" "Workload" $namespace "").items -}}
        {{- $ended := false -}}
        {{- range dig "status" "conditions" list . -}}
          {{- if and (eq .type "Finished") (eq .status "True") }}{{ $ended = true }}{{ end -}}
        {{- end -}}
        {{- if and (dig "status" "admission" dict .) (not $ended) }}{{ $used = true }}{{ end -}}
      {{- end -}}
    {{- end -}}
    {{- if not $used }}{{ $_ := unset $found $namespace }}{{ end -}}
  {{- end -}}
  {{- $_ := set . "removedTeams" $found -}}
  {{- /* A removed team has the default keys; if its name is that of a team in another namespace, its key is its namespace. */ -}}
  {{- $removed := dict -}}
  {{- range $namespace, $team := $found -}}
    {{- $_ := set $removed (ternary $namespace $team (hasKey $.Values.teams $team)) (dict "namespace" $namespace) -}}
  {{- end -}}
  {{- include "queues.addDefaults" (dict "entries" $removed "defaults" .defaults.entries.teams) -}}
  {{- include "queues.resolveTeams" (dict "root" . "teams" $removed) -}}
  {{- $_ := set . "restrictedTeams" (merge (dict) .Values.teams $removed) -}}
  {{- $_ := set . "liveQueues" dict -}}
  {{- if .Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta2/ClusterQueue" -}}
    {{- range (lookup "kueue.x-k8s.io/v1beta2" "ClusterQueue" "" "").items }}{{ $_ := set $.liveQueues .metadata.name . }}{{ end -}}
  {{- end -}}
{{- end -}}

{{- /* queues.teamOf: the team of the object `live` of the cluster, if this `release` created it; else "". */ -}}
{{- define "queues.teamOf" -}}
  {{- if include "queues.ours" . }}{{ dig "metadata" "labels" "slipway.dev/team" "" .live }}{{ end -}}
{{- end -}}

{{- /* queues.addUsedFlavors: add to the resource groups of the ClusterQueue `name`, whose entry is `queue`, the flavors that
it no longer has but whose quota its runs hold. Their quota is 0, so no run is admitted to them, and Kueue still counts those
that have them. A ClusterQueue counts only what a run holds of its own flavors. Takes `live`, the ClusterQueue of the
cluster. */ -}}
{{- define "queues.addUsedFlavors" -}}
  {{- $groups := .queue.groups -}}
  {{- $live := .live -}}
  {{- $used := dict -}}
  {{- range dig "status" "flavorsReservation" list $live -}}
    {{- $flavor := .name -}}
    {{- range .resources }}{{ if ne (toString .total) "0" }}{{ $_ := set $used $flavor true }}{{ end }}{{ end -}}
  {{- end -}}
  {{- range $groups }}{{ range .flavors }}{{ $_ := unset $used .name }}{{ end }}{{ end -}}
  {{- range $old := dig "spec" "resourceGroups" list $live -}}
    {{- range $flavor := $old.flavors -}}
      {{- if not (hasKey $used $flavor.name) }}{{ continue }}{{ end -}}
      {{- $into := dict -}}
      {{- $free := true -}}
      {{- range $group := $groups -}}
        {{- if eq (sortAlpha $group.coveredResources | toJson) (sortAlpha $old.coveredResources | toJson) }}{{ $into = $group }}{{ end -}}
        {{- range $old.coveredResources }}{{ if has . $group.coveredResources }}{{ $free = false }}{{ end }}{{ end -}}
      {{- end -}}
      {{- if $free -}}
        {{- $into = dict "coveredResources" $old.coveredResources "flavors" list -}}
        {{- $groups = append $groups $into -}}
      {{- end -}}
      {{- /* If other groups cover a part of its resources, it cannot be in the queue. */ -}}
      {{- if not $into }}{{ continue }}{{ end -}}
      {{- $resources := list -}}
      {{- range $into.coveredResources -}}
        {{- $quota := dict "name" . "nominalQuota" "0" -}}
        {{- if $.queue.cohort }}{{ $_ := set $quota "borrowingLimit" "0" }}{{ end -}}
        {{- $resources = append $resources $quota -}}
      {{- end -}}
      {{- $_ := set $into "flavors" (append $into.flavors (dict "name" $flavor.name "resources" $resources)) -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set .queue "groups" $groups -}}
{{- end -}}

{{- /* queues.setGroups: set `groups` of each ClusterQueue and cohort, and in the root context `retiredFlavors`: the specs of
the ResourceFlavors, by name, that this release created for earlier values and that its ClusterQueues keep. Renders nothing. */ -}}
{{- define "queues.setGroups" -}}
  {{- range .Values.cohorts }}{{ include "queues.resourceGroups" (dict "of" . "flavors" $.Values.flavors) }}{{ end -}}
  {{- $rendered := dict -}}
  {{- range .Values.flavors }}{{ $_ := set $rendered .object true }}{{ end -}}
  {{- $retired := dict -}}
  {{- range $name, $queue := .created.clusterQueues -}}
    {{- include "queues.resourceGroups" (dict "of" $queue "flavors" $.Values.flavors) -}}
    {{- include "queues.addUsedFlavors" (dict "queue" $queue "live" (get $.liveQueues $name | default dict)) -}}
    {{- range $queue.groups }}{{ range .flavors -}}
      {{- if not (hasKey $rendered .name) -}}
        {{- $live := lookup "kueue.x-k8s.io/v1beta2" "ResourceFlavor" "" .name -}}
        {{- if and $live (include "queues.ours" (dict "release" $.Release "live" $live)) -}}
          {{- $_ := set $retired .name ($live.spec | default dict) -}}
        {{- end -}}
      {{- end -}}
    {{- end }}{{ end -}}
  {{- end -}}
  {{- $_ := set . "retiredFlavors" $retired -}}
{{- end -}}
