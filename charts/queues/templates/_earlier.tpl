{{- /*
These templates keep what runs still use of earlier values of the release. They find it by lookups, so `helm template` and
Argo CD keep nothing.
*/ -}}

{{- /*
queues.removedTeams: JSON of the teams that these values no longer have, by namespace. Only namespaces in which pods or
admitted runs remain. All files of a chart have the same root context, which stores the result.
*/ -}}
{{- define "queues.removedTeams" -}}
  {{- if not (hasKey . "queuesRemovedTeams") -}}
    {{- $current := dict "default" true -}}
    {{- range include "queues.teams" . | fromJson }}{{ $_ := set $current .namespace true }}{{ end -}}
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
          {{- range dig "status" "conditions" list . }}{{ if and (eq .type "Finished") (eq .status "True") }}{{ $ended = true }}{{ end }}{{ end -}}
          {{- if and (dig "status" "admission" dict .) (not $ended) }}{{ $used = true }}{{ end -}}
        {{- end -}}
      {{- end -}}
      {{- if not $used }}{{ $_ := unset $found $namespace }}{{ end -}}
    {{- end -}}
    {{- $_ := set . "queuesRemovedTeams" $found -}}
  {{- end -}}
  {{- .queuesRemovedTeams | toJson -}}
{{- end -}}

{{- /* queues.teamOf: the team of the object `live` of the cluster, if this `release` created it; else "". */ -}}
{{- define "queues.teamOf" -}}
  {{- if include "queues.ours" . }}{{ dig "metadata" "labels" "slipway.dev/team" "" .live }}{{ end -}}
{{- end -}}

{{- /*
queues.restrictedTeams: JSON of queues.teams and of the removed teams, whose runs get the same restrictions. A removed
team has the default keys; if its name is that of a team in another namespace, its key is its namespace.
*/ -}}
{{- define "queues.restrictedTeams" -}}
  {{- $teams := include "queues.teams" . | fromJson -}}
  {{- $removed := dict -}}
  {{- range $namespace, $team := include "queues.removedTeams" . | fromJson -}}
    {{- $_ := set $removed (ternary $namespace $team (hasKey $teams $team)) (dict "namespace" $namespace) -}}
  {{- end -}}
  {{- mergeOverwrite $teams (include "queues.teamsOf" (dict "root" . "entries" $removed) | fromJson) | toJson -}}
{{- end -}}

{{- /*
queues.withUsedFlavors: JSON of the resource groups `groups` of the ClusterQueue `name`, with the flavors that it no
longer has but whose quota its runs hold. Their quota is 0, so no run is admitted to them, and Kueue still counts those
that have them. A ClusterQueue counts only what a run holds of its own flavors. Takes `root` and `cohort` (its name, or ""), too.
*/ -}}
{{- define "queues.withUsedFlavors" -}}
  {{- $groups := .groups -}}
  {{- $live := include "queues.liveQueue" . | fromJson -}}
  {{- $used := dict -}}
  {{- range dig "status" "flavorsReservation" list $live -}}
    {{- $flavor := .name -}}
    {{- range .resources }}{{ if ne (toString .total) "0" }}{{ $_ := set $used $flavor true }}{{ end }}{{ end -}}
  {{- end -}}
  {{- range $groups }}{{ range .flavors }}{{ $_ := unset $used .name }}{{ end }}{{ end -}}
  {{- range $old := dig "spec" "resourceGroups" list $live -}}
    {{- range $flavor := $old.flavors -}}
      {{- if hasKey $used $flavor.name -}}
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
        {{- if $into -}}
          {{- $resources := list -}}
          {{- range $into.coveredResources -}}
            {{- $quota := dict "name" . "nominalQuota" "0" -}}
            {{- if $.cohort }}{{ $_ := set $quota "borrowingLimit" "0" }}{{ end -}}
            {{- $resources = append $resources $quota -}}
          {{- end -}}
          {{- $_ := set $into "flavors" (append $into.flavors (dict "name" $flavor.name "resources" $resources)) -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $groups | toJson -}}
{{- end -}}

{{- /*
queues.liveQueue: JSON of the ClusterQueue `name` of the cluster, {} if there is none. Takes `root`, the root context, too,
which stores all of them after one request.
*/ -}}
{{- define "queues.liveQueue" -}}
  {{- if not (hasKey .root "queuesLiveQueues") -}}
    {{- $found := dict -}}
    {{- if .root.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta2/ClusterQueue" -}}
      {{- range (lookup "kueue.x-k8s.io/v1beta2" "ClusterQueue" "" "").items }}{{ $_ := set $found .metadata.name . }}{{ end -}}
    {{- end -}}
    {{- $_ := set .root "queuesLiveQueues" $found -}}
  {{- end -}}
  {{- get .root.queuesLiveQueues .name | default dict | toJson -}}
{{- end -}}

{{- /* queues.groupsOf: JSON of the resource groups of a ClusterQueue. Takes `root`, `name`, `queue` and `flavors`. */ -}}
{{- define "queues.groupsOf" -}}
  {{- $groups := include "queues.resourceGroups" (dict "quota" .queue.quota "flavors" .flavors) | fromJsonArray -}}
  {{- include "queues.withUsedFlavors" (dict "root" .root "groups" $groups "name" .name "cohort" .queue.cohort) -}}
{{- end -}}

{{- /*
queues.retiredFlavors: JSON of the specs of the ResourceFlavors, by name, that this release created for earlier values and
that its ClusterQueues keep. Takes the root context.
*/ -}}
{{- define "queues.retiredFlavors" -}}
  {{- $flavors := include "queues.flavors" . | fromJson -}}
  {{- $rendered := dict -}}
  {{- range $flavors }}{{ $_ := set $rendered .object true }}{{ end -}}
  {{- $retired := dict -}}
  {{- range $name, $queue := include "queues.clusterQueues" . | fromJson -}}
    {{- if $queue.create -}}
      {{- range include "queues.groupsOf" (dict "root" $ "name" $name "queue" $queue "flavors" $flavors) | fromJsonArray -}}
        {{- range .flavors -}}
          {{- if not (hasKey $rendered .name) -}}
            {{- $live := lookup "kueue.x-k8s.io/v1beta2" "ResourceFlavor" "" .name -}}
            {{- if and $live (include "queues.ours" (dict "release" $.Release "live" $live)) }}{{ $_ := set $retired .name ($live.spec | default dict) }}{{ end -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $retired | toJson -}}
{{- end -}}
