{{- /* queues.resourceGroups: set `groups` of a ClusterQueue or a cohort to Kueue's resource groups. Renders nothing. Takes
the entry as `of`, and `flavors`.

One group must cover each resource of a pod. A resource and a flavor are in one group only, and every flavor of a group
has quota for every resource of the group. The result is one of:
- A group for google.com/tpu, a group for nvidia.com/gpu, each with the flavors of these chips, and a group for cpu,
  memory and other resources with the cpu flavors. The pod of a host takes its chips from one of the first two, and the cpu and memory that
  it requests from the last, which the heads also use. Kueue adds the node labels of both flavors to the pod, so a cpu
  flavor has none.
- One group for all resources, if the flavors with chips have hostCpu and hostMemory. The pod of a host takes all
  resources from one flavor, as topology-aware scheduling requires. A cpu flavor has 0 chips, and a flavor with chips
  has a taint that keeps heads away. */ -}}
{{- define "queues.resourceGroups" -}}
  {{- $chips := dict -}}
  {{- $cpu := list -}}
  {{- $whole := false -}}
  {{- $names := include "queues.ordered" .of.quota | splitList " " | compact -}}
  {{- range $name := $names -}}
    {{- $flavor := get $.flavors $name -}}
    {{- if $flavor.resource -}}
      {{- $_ := set $chips $flavor.resource (append (get $chips $flavor.resource | default list) $name) -}}
      {{- if $flavor.hostCpu }}{{ $whole = true }}{{ end -}}
    {{- else -}}
      {{- $cpu = append $cpu $name -}}
    {{- end -}}
  {{- end -}}
  {{- $groups := list -}}
  {{- if $whole -}}
    {{- $groups = append $groups (dict "covered" (concat (keys $chips | sortAlpha) (list "cpu" "memory")) "names" $names) -}}
  {{- else -}}
    {{- range $resource, $own := $chips }}{{ $groups = append $groups (dict "covered" (list $resource) "names" $own) }}{{ end -}}
    {{- $others := list -}}
    {{- range $cpu }}{{ $others = concat $others (keys ((get $.of.quota .).resources | default dict)) }}{{ end -}}
    {{- with $cpu }}{{ $groups = append $groups (dict "covered" (concat (list "cpu" "memory") ($others | uniq | sortAlpha))
        "names" .) }}{{ end -}}
  {{- end -}}
  {{- $made := list -}}
  {{- range $group := $groups -}}
    {{- $flavors := list -}}
    {{- range $name := $group.names -}}
      {{- $quotas := list -}}
      {{- range $resource := $group.covered -}}
        {{- $made := dict "name" $resource "nominalQuota" "0" -}}
        {{- include "queues.setQuota" (dict "into" $made "quota" (get $.of.quota $name) "flavor" (get $.flavors $name)) -}}
        {{- $quotas = append $quotas $made -}}
      {{- end -}}
      {{- $flavors = append $flavors (dict "name" (get $.flavors $name).object "resources" $quotas) -}}
    {{- end -}}
    {{- $made = append $made (dict "coveredResources" $group.covered "flavors" $flavors) -}}
  {{- end -}}
  {{- $_ := set .of "groups" $made -}}
{{- end -}}

{{- /* queues.setQuota: set one flavor's quota of the resource `into.name`. A limit that is not set is unlimited. Renders nothing. */ -}}
{{- define "queues.setQuota" -}}
  {{- $resource := .into.name -}}
  {{- $keys := dict "nominalQuota" "slices" "borrowingLimit" "borrowing" "lendingLimit" "lending" -}}
  {{- if and (not .flavor.resource) (has $resource (list "cpu" "memory")) -}}
    {{- $keys = dict "nominalQuota" $resource "borrowingLimit" (printf "%sBorrowing" $resource) "lendingLimit"
        (printf "%sLending" $resource) -}}
  {{- end -}}
  {{- if and (not .flavor.resource) (hasKey (.quota.resources | default dict) $resource) -}}
    {{- $_ := set .into "nominalQuota" (include "common.quantity" (get .quota.resources $resource)) -}}
  {{- end -}}
  {{- range $field, $key := $keys -}}
    {{- if not (hasKey $.quota $key) }}{{ continue }}{{ end -}}
    {{- $given := get $.quota $key -}}
    {{- if not $.flavor.resource -}}
      {{- $_ := set $.into $field (include "common.quantity" $given) -}}
    {{- else if eq $resource $.flavor.resource -}}
      {{- $_ := set $.into $field (mul (int64 $given) (int64 $.flavor.resolved.chips) | include "common.quantity") -}}
    {{- else if has $resource (list "cpu" "memory") -}}
      {{- $per := ternary $.flavor.hostCpu $.flavor.hostMemory (eq $resource "cpu") | include "common.quantity" -}}
      {{- $hosts := mul (int64 $given) (int64 $.flavor.resolved.hosts) -}}
      {{- $_ := set $.into $field (printf "%d%s" (mul $hosts (regexFind "[1-9][0-9]*" $per | int64)) (regexFind "[A-Za-z]*$" $per) |
          include "common.quantity") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
