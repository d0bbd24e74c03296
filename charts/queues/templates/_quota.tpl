{{- /*
queues.resourceGroups: JSON of Kueue's resource groups. Takes `quota`, and `flavors` as queues.flavors returns them.

One group must cover each resource of a pod. A resource and a flavor are in one group only, and every flavor of a group
has quota for every resource of the group. The result is one of:
- A group for google.com/tpu, a group for nvidia.com/gpu, each with the flavors of these chips, and a group for cpu,
  memory and other resources with the cpu flavors. The pod of a host takes its chips from one of the first two, and the cpu and memory that
  it requests from the last, which the heads also use. Kueue adds the node labels of both flavors to the pod, so a cpu
  flavor has none.
- One group for all resources, if the flavors with chips have hostCpu and hostMemory. The pod of a host takes all
  resources from one flavor, as topology-aware scheduling requires. A cpu flavor has 0 chips, and a flavor with chips
  has a taint that keeps heads away.
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
    {{- $others := list -}}
    {{- range $cpu }}{{ $others = concat $others (keys ((get $.quota .).resources | default dict)) }}{{ end -}}
    {{- with $cpu }}{{ $groups = append $groups (dict "covered" (concat (list "cpu" "memory") ($others | uniq | sortAlpha)) "names" .) }}{{ end -}}
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

{{- /* queues.resourceQuota: JSON of one flavor's quota of one resource. A limit that is not set is unlimited. */ -}}
{{- define "queues.resourceQuota" -}}
  {{- $made := dict "name" .resource "nominalQuota" "0" -}}
  {{- $keys := dict "nominalQuota" "slices" "borrowingLimit" "borrowing" "lendingLimit" "lending" -}}
  {{- if and (not .flavor.resource) (has .resource (list "cpu" "memory")) -}}
    {{- $keys = dict "nominalQuota" .resource "borrowingLimit" (printf "%sBorrowing" .resource) "lendingLimit" (printf "%sLending" .resource) -}}
  {{- end -}}
  {{- if and (not .flavor.resource) (hasKey (.quota.resources | default dict) .resource) -}}
    {{- $_ := set $made "nominalQuota" (include "common.quantity" (get .quota.resources .resource)) -}}
  {{- end -}}
  {{- range $field, $key := $keys -}}
    {{- if hasKey $.quota $key -}}
      {{- $given := get $.quota $key -}}
      {{- if not $.flavor.resource -}}
        {{- $_ := set $made $field (include "common.quantity" $given) -}}
      {{- else if eq $.resource $.flavor.resource -}}
        {{- $_ := set $made $field (mul (int64 $given) (int64 $.flavor.resolved.chips) | include "common.quantity") -}}
      {{- else if has $.resource (list "cpu" "memory") -}}
        {{- $per := ternary $.flavor.hostCpu $.flavor.hostMemory (eq $.resource "cpu") | include "common.quantity" -}}
        {{- $hosts := mul (int64 $given) (int64 $.flavor.resolved.hosts) -}}
        {{- $_ := set $made $field (printf "%d%s" (mul $hosts (regexFind "[1-9][0-9]*" $per | int64)) (regexFind "[A-Za-z]*$" $per) | include "common.quantity") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $made | toJson -}}
{{- end -}}
