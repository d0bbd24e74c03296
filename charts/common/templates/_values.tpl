{{- /* What several manifests take from the values of charts/run and charts/ray-cluster. */ -}}

{{- /* The namespace of what belongs to a team: its own, else the release's; of `values` and `release`. */ -}}
{{- define "common.namespace" -}}
  {{- .values.team.namespace | default .values.team.name | default .release.Namespace -}}
{{- end -}}

{{- /* The LocalQueue, "" where Kueue is not asked; of the values. */ -}}
{{- define "common.queue" -}}
  {{- .queue.name | default .team.name -}}
{{- end -}}

{{- /* Labels of a run's or a cluster's own object that Kueue reads, and that find the team's objects; of the values. */ -}}
{{- define "common.objectLabels" -}}
  {{- $labels := dict -}}
  {{- with .team.name }}{{ $_ := set $labels "slipway.dev/team" . }}{{ end -}}
  {{- with include "common.queue" . }}{{ $_ := set $labels "kueue.x-k8s.io/queue-name" . }}{{ end -}}
  {{- with .queue.priority }}{{ $_ := set $labels "kueue.x-k8s.io/priority-class" . }}{{ end -}}
  {{- $labels | toJson -}}
{{- end -}}

{{- /*
common.slices: JSON list of the groups of hosts, each with `group` (its name), `key` (where its values stand), `slice`
(its slice's values and, under "resolved", what common.slice makes of them), cpu and memory of a host.

Kueue places a pod set as one, so with its topology-aware scheduling every slice of a Ray cluster is a group of its
own. `values`, and `standing`: with the groups of cluster.groups; `split`: into one group per slice where that is so.
*/ -}}
{{- define "common.slices" -}}
  {{- $values := .values -}}
  {{- $groups := list (dict "group" "slice" "key" "slice" "slice" .values.slice "cpu" .values.worker.cpu "memory" .values.worker.memory) -}}
  {{- if .standing -}}
    {{- range $name, $group := .values.cluster.groups -}}
      {{- $slice := dict "topology" "" "machineType" "" "count" 1 "hosts" 0 "provisioning" "on-demand" "reservation" "" "placement" $values.slice.placement -}}
      {{- $slice = mergeOverwrite $slice (omit $group "cpu" "memory") -}}
      {{- $groups = append $groups (dict "group" $name "key" (printf "cluster.groups.%s" $name) "slice" $slice "cpu" ($group.cpu | default $values.worker.cpu) "memory" ($group.memory | default $values.worker.memory)) -}}
    {{- end -}}
  {{- end -}}
  {{- $split := list -}}
  {{- range $groups -}}
    {{- $resolved := include "common.slice" (dict "slice" .slice "accelerators" $values.common.accelerators "key" .key) | fromJson -}}
    {{- $group := set . "slice" (set (deepCopy .slice) "resolved" $resolved) -}}
    {{- if and $.split (eq .slice.placement "topology") (gt (int64 .slice.count) 1) -}}
      {{- range $index := until (min 99 (int64 .slice.count) | int) -}}
        {{- $one := set (deepCopy $group.slice) "count" 1 -}}
        {{- $split = append $split (set (set (deepCopy $group) "group" (printf "%s-%d" $group.group $index)) "slice" $one) -}}
      {{- end -}}
    {{- else -}}
      {{- $split = append $split $group -}}
    {{- end -}}
  {{- end -}}
  {{- $split | toJson -}}
{{- end -}}
