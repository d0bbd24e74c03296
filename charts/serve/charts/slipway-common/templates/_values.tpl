{{- /* Definitions that several manifests of charts/run and charts/ray-cluster use. */ -}}

{{- /* common.slices: set `slices` in `into` to the groups of hosts. Each has `group` (its name), `key` (the key of its
values), `slice` (the values of its slice and, under "resolved", the result of common.slice; under "labelSets" the labels of
the nodes that it can use, one set for each of its alternatives, which differ in their provisioning; and under "provisionings"
how its machines can be provisioned), and the cpu and memory of a host. Renders nothing.

Takes `values`; `longLived`: include the groups of cluster.groups; `split`: make one group per slice if slice.placement is
topology. Kueue places a pod set as a unit, so with topology-aware scheduling every slice of a Ray cluster must be a group of
its own. */ -}}
{{- define "common.slices" -}}
  {{- $values := .values -}}
  {{- $groups := list (dict "group" "slice" "key" "slice" "slice" .values.slice "cpu" .values.worker.cpu "memory" .values.worker.memory) -}}
  {{- if .longLived -}}
    {{- range $name, $group := .values.cluster.groups -}}
      {{- $slice := dict "topology" "" "machineType" "" "count" 1 "hosts" 0
          "provisioning" "on-demand" "reservation" "" "placement" $values.slice.placement -}}
      {{- $slice = mergeOverwrite $slice (omit $group "cpu" "memory") -}}
      {{- $groups = append $groups (dict "group" $name "key" (printf "cluster.groups.%s" $name) "slice" $slice
          "cpu" ($group.cpu | default $values.worker.cpu) "memory" ($group.memory | default $values.worker.memory)) -}}
    {{- end -}}
  {{- end -}}
  {{- $split := list -}}
  {{- range $groups -}}
    {{- $group := set . "slice" (deepCopy .slice) -}}
    {{- include "common.slice" (dict "slice" .slice "accelerators" $values.common.accelerators "key" .key "into" .slice) -}}
    {{- $sets := list -}}
    {{- $provisionings := list -}}
    {{- range .slice.any | default (list dict) -}}
      {{- $provisioning := .provisioning | default $group.slice.provisioning -}}
      {{- $labels := dict -}}
      {{- include "common.nodeLabels" (dict "accelerator" $group.slice.resolved "machineType" $group.slice.machineType
          "provisioning" $provisioning "reservation" (.reservation | default $group.slice.reservation) "into" $labels) -}}
      {{- $sets = append $sets $labels -}}
      {{- $provisionings = append $provisionings $provisioning -}}
    {{- end -}}
    {{- $_ := set (set .slice "labelSets" $sets) "provisionings" (uniq $provisionings) -}}
    {{- if and $.split (eq .slice.placement "topology") (gt (int64 .slice.count) 1) -}}
      {{- range $index := until (min 99 (int64 .slice.count) | int) -}}
        {{- $one := set (deepCopy $group.slice) "count" 1 -}}
        {{- $split = append $split (set (set (deepCopy $group) "group" (printf "%s-%d" $group.group $index)) "slice" $one) -}}
      {{- end -}}
    {{- else -}}
      {{- $split = append $split $group -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set .into "slices" $split -}}
{{- end -}}

{{- /* common.dropNulls: remove the entries that are null from the maps of entries: an overlay removes an entry of another
file with null, and Helm keeps such a null if the chart has no default for it. Renders nothing. Takes `values` and `keys`, the
dotted keys of the maps, in which `*` is any entry. values.schema.json accepts null in the same maps. */ -}}
{{- define "common.dropNulls" -}}
  {{- range $key := .keys -}}
    {{- $maps := list $.values -}}
    {{- range $part := splitList "." $key -}}
      {{- $below := list -}}
      {{- range $maps -}}
        {{- range $name, $entry := . -}}
          {{- if and (has $part (list "*" $name)) (kindIs "map" $entry) }}{{ $below = append $below $entry }}{{ end -}}
        {{- end -}}
      {{- end -}}
      {{- $maps = $below -}}
    {{- end -}}
    {{- range $map := $maps -}}
      {{- range $name, $entry := $map -}}
        {{- if kindIs "invalid" $entry }}{{ $_ := unset $map $name }}{{ end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* common.ownValues: leave in the values of charts/run, charts/ray-cluster or charts/serve only what the chart has, and
set its empty values: Helm removes the default of a key that is null, and null means empty. Takes Helm's root context. The
generated keys.yaml of the chart has `others`, the dotted keys of other charts; `empty`; and `maps`, from which null removes an
entry. Renders nothing. */ -}}
{{- define "common.ownValues" -}}
  {{- $keys := .Files.Get "keys.yaml" | fromYaml -}}
  {{- range $key := $keys.others -}}
    {{- $section := $.Values -}}
    {{- range initial (splitList "." $key) }}{{ $section = get $section . }}{{ end -}}
    {{- $_ := unset $section (splitList "." $key | last) -}}
  {{- end -}}
  {{- $_ := merge .Values $keys.empty -}}
  {{- include "common.dropNulls" (dict "values" .Values "keys" $keys.maps) -}}
{{- end -}}

{{- /* common.fail: fail with the lines of `problems`, if there are any. Takes the text. */ -}}
{{- define "common.fail" -}}
  {{- with splitList "\n" . | compact | uniq }}{{ fail (printf "\n%s\n" (join "\n" .)) }}{{ end -}}
{{- end -}}

{{- /* common.sentences: a line for each row that applies; common.sentence: a line for the first one, if there is one. They take
the rows, each a list of a condition and a sentence. */ -}}
{{- define "common.sentences" -}}
  {{- range . }}{{ if first . }}{{ println (last .) }}{{ end }}{{ end -}}
{{- end -}}

{{- define "common.sentence" -}}
  {{- range . }}{{ if first . }}{{ println (last .) }}{{ break }}{{ end }}{{ end -}}
{{- end -}}
