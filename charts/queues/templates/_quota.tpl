{{- /*
queues.resourceGroups: JSON of Kueue's resource groups; of `quota` and `flavors` (as queues.flavors gives them).

Each resource of a pod has to be covered by one group, a resource and a flavor stand in one group only, and every
flavor of a group has quota for every resource of it. So there is
- a group for google.com/tpu, one for nvidia.com/gpu, each with the flavors of such chips, and one for cpu and memory
  with the cpu flavors. A host's pod takes its chips from the first, and what cpu and memory it asks for from the
  last, where the heads have theirs. Kueue gives the pod the labels of both flavors, so a cpu flavor has none.
- or, where chips' flavors have hostCpu and hostMemory, one group for all: a host's pod takes all it asks for from one
  flavor, which topology-aware scheduling demands. A cpu flavor has 0 chips, and a chips' flavor a taint against heads.
*/ -}}
{{- define "queues.resourceGroups" -}}
  {{- $chips := dict -}}
  {{- $resources := list -}}
  {{- $cpu := list -}}
  {{- $whole := false -}}
  {{- $names := include "queues.ordered" .quota | fromJsonArray -}}
  {{- range $name := $names -}}
    {{- $flavor := get $.flavors $name -}}
    {{- if $flavor.resource -}}
      {{- $_ := set $chips $flavor.resource (append (get $chips $flavor.resource | default list) $name) -}}
      {{- $resources = append $resources $flavor.resource | uniq | sortAlpha -}}
      {{- if $flavor.hostCpu }}{{ $whole = true }}{{ end -}}
    {{- else -}}
      {{- $cpu = append $cpu $name -}}
    {{- end -}}
  {{- end -}}
  {{- $groups := list -}}
  {{- if $whole -}}
    {{- $groups = append $groups (dict "covered" (concat $resources (list "cpu" "memory")) "names" $names) -}}
  {{- else -}}
    {{- range $resources }}{{ $groups = append $groups (dict "covered" (list .) "names" (get $chips .)) }}{{ end -}}
    {{- with $cpu }}{{ $groups = append $groups (dict "covered" (list "cpu" "memory") "names" .) }}{{ end -}}
  {{- end -}}
  {{- $made := list -}}
  {{- range $group := $groups -}}
    {{- $flavors := list -}}
    {{- range $name := $group.names -}}
      {{- $quotas := list -}}
      {{- range $resource := $group.covered -}}
        {{- $quotas = append $quotas (include "queues.resourceQuota" (dict "resource" $resource "quota" (get $.quota $name) "flavor" (get $.flavors $name)) | fromJson) -}}
      {{- end -}}
      {{- $flavors = append $flavors (dict "name" (get $.flavors $name).object "resources" $quotas) -}}
    {{- end -}}
    {{- $made = append $made (dict "coveredResources" $group.covered "flavors" $flavors) -}}
  {{- end -}}
  {{- $made | toJson -}}
{{- end -}}

{{- /* One flavor's quota of one resource; limits that are not given are left out, which leaves them open. */ -}}
{{- define "queues.resourceQuota" -}}
  {{- $made := dict "name" .resource "nominalQuota" 0 -}}
  {{- $keys := dict "nominalQuota" "slices" "borrowingLimit" "borrowing" "lendingLimit" "lending" -}}
  {{- if and (not .flavor.resource) (has .resource (list "cpu" "memory")) -}}
    {{- $keys = dict "nominalQuota" .resource "borrowingLimit" (printf "%sBorrowing" .resource) "lendingLimit" (printf "%sLending" .resource) -}}
  {{- end -}}
  {{- range $field, $key := $keys -}}
    {{- if hasKey $.quota $key -}}
      {{- $given := get $.quota $key -}}
      {{- if not $.flavor.resource -}}
        {{- $_ := set $made $field $given -}}
      {{- else if eq $.resource $.flavor.resource -}}
        {{- $_ := set $made $field (mul (int64 $given) (int64 $.flavor.resolved.chips)) -}}
      {{- else if has $.resource (list "cpu" "memory") -}}
        {{- $per := ternary $.flavor.hostCpu $.flavor.hostMemory (eq $.resource "cpu") -}}
        {{- $hosts := mul (int64 $given) (int64 $.flavor.resolved.hosts) -}}
        {{- $_ := set $made $field (printf "%d%s" (mul $hosts (regexFind "^[0-9]+" $per | int64)) (regexFind "[A-Za-z]*$" $per)) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $made | toJson -}}
{{- end -}}
