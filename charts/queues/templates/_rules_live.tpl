{{- /*
What a cluster would refuse to change, or should: `helm upgrade` says so in a sentence and before it changes anything.
Offline (helm template) nothing is looked up, so nothing is compared.
*/ -}}

{{- /* JSON list of the objects with such fields: where its values stand, what it is, the fields' new values, a way out. */ -}}
{{- define "queues.fixed" -}}
  {{- $kueue := "kueue.x-k8s.io/v1beta2" -}}
  {{- $fixed := list -}}
  {{- range $name, $flavor := include "queues.flavors" . | fromJson -}}
    {{- if $flavor.create -}}
      {{- $fields := dict -}}
      {{- range list "nodeLabels" "nodeTaints" "tolerations" "topologyName" }}{{ $_ := set $fields (printf "spec.%s" .) (get $flavor.spec .) }}{{ end -}}
      {{- $way := printf "Runs that were admitted there hold the machines of before, and with a topology Kueue refuses the change. Give the flavor a new key, or set flavors.%s.versioned: true." $name -}}
      {{- $fixed = append $fixed (dict "key" (printf "flavors.%s" $name) "apiVersion" $kueue "kind" "ResourceFlavor" "namespace" "" "name" $flavor.object "fields" $fields "way" $way) -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $topology := include "queues.topologies" . | fromJson -}}
    {{- if $topology.create -}}
      {{- $levels := list -}}
      {{- range $topology.levels }}{{ $levels = append $levels (dict "nodeLabel" .) }}{{ end -}}
      {{- $fixed = append $fixed (dict "key" (printf "topologies.%s" $name) "apiVersion" $kueue "kind" "Topology" "namespace" "" "name" $name "fields" (dict "spec.levels" $levels) "way" "Kueue refuses that. Give the topology a new key.") -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $check := include "queues.admissionChecks" . | fromJson -}}
    {{- if $check.create -}}
      {{- $fixed = append $fixed (dict "key" (printf "admissionChecks.%s" $name) "apiVersion" $kueue "kind" "AdmissionCheck" "namespace" "" "name" $name "fields" (dict "spec.controllerName" $check.controllerName) "way" "Kueue refuses that. Give the check a new key.") -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $priority := include "queues.priorities" . | fromJson -}}
    {{- if and $priority.create $priority.pods -}}
      {{- $fixed = append $fixed (dict "key" (printf "priorities.%s" $name) "apiVersion" "scheduling.k8s.io/v1" "kind" "PriorityClass" "namespace" "" "name" $name "fields" (dict "value" (int64 $priority.value)) "way" "Kubernetes refuses that. Give the priority a new key.") -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $team := include "queues.teams" . | fromJson -}}
    {{- $way := printf "Kueue refuses that. Set teams.%s.queue to a new name, or delete the LocalQueue first when no run waits in it." $name -}}
    {{- $fixed = append $fixed (dict "key" (printf "teams.%s" $name) "apiVersion" $kueue "kind" "LocalQueue" "namespace" $team.namespace "name" $team.queue "fields" (dict "spec.clusterQueue" $team.clusterQueue) "way" $way) -}}
  {{- end -}}
  {{- $fixed | toJson -}}
{{- end -}}

{{- /* The sentences for one of them; of `fixed` and `live`, the object in the cluster, empty where there is none. */ -}}
{{- define "queues.rules.change" -}}
  {{- $wrong := list -}}
  {{- if .live -}}
    {{- range $path, $new := .fixed.fields -}}
      {{- $old := $.live -}}
      {{- range splitList "." $path }}{{ $old = get ($old | default dict) . }}{{ end -}}
      {{- if ne ($old | default "" | toJson) ($new | default "" | toJson) -}}
        {{- $wrong = append $wrong (printf "%s: %s of the %s %s would change from %s to %s. %s" $.fixed.key (last (splitList "." $path)) $.fixed.kind $.fixed.name ($old | default "none" | toJson) ($new | default "none" | toJson) $.fixed.way) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- define "queues.rules.live" -}}
  {{- $wrong := list -}}
  {{- range include "queues.fixed" . | fromJsonArray -}}
    {{- $live := lookup .apiVersion .kind .namespace .name -}}
    {{- $wrong = concat $wrong (include "queues.rules.change" (dict "fixed" . "live" $live) | fromJsonArray) -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}
