{{- define "queues.rules.flavors" -}}
  {{- $wrong := list -}}
  {{- $topologies := include "queues.topologies" . | fromJson -}}
  {{- range $name, $flavor := include "queues.flavors" . | fromJson -}}
    {{- $key := printf "flavors.%s" $name -}}
    {{- $args := dict "key" $key "flavor" $flavor "topologies" $topologies -}}
    {{- /* A versioned name ends in a hyphen and eight hexadecimal digits. */ -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" $key "name" $name "max" (ternary 54 63 $flavor.versioned))) -}}
    {{- if $flavor.resolved.error -}}
      {{- $wrong = append $wrong $flavor.resolved.error -}}
    {{- else -}}
      {{- $wrong = concat $wrong (include "queues.rules.flavorHost" $args | fromJsonArray) (include "queues.rules.flavorSpec" $args | fromJsonArray) -}}
    {{- end -}}
    {{- if and (eq $flavor.provisioning "reservation") (not $flavor.reservation) -}}
      {{- $wrong = append $wrong (printf "%s.provisioning is reservation; %s.reservation must name it." $key $key) -}}
    {{- else if and $flavor.reservation (ne $flavor.provisioning "reservation") -}}
      {{- $wrong = append $wrong (printf "%s.reservation requires %s.provisioning: reservation; it is %s." $key $key $flavor.provisioning) -}}
    {{- else if contains "/" $flavor.reservation -}}
      {{- $wrong = append $wrong (printf "%s.reservation: %q is a path; write only the reservation's name, and its project in %s.nodeLabels (cloud.google.com/reservation-project: PROJECT)." $key $flavor.reservation $key) -}}
    {{- else if $flavor.reservation -}}
      {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" (printf "%s.reservation" $key) "name" $flavor.reservation "max" 63)) -}}
    {{- end -}}
    {{- if and $flavor.anyRun (not (has $flavor.provisioning (list "spot" "flex-start"))) -}}
      {{- $wrong = append $wrong (printf "%s.anyRun applies only to spot and flex-start, which runs must request; any run can use %s." $key $flavor.provisioning) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- /* Problems of the hosts of a flavor. Takes `key` and `flavor`. */ -}}
{{- define "queues.rules.flavorHost" -}}
  {{- $key := .key -}}
  {{- $flavor := .flavor -}}
  {{- $wrong := list -}}
  {{- range $field := list "topology" "machineType" "hosts" -}}
    {{- if and (not $flavor.resource) (get $flavor $field) -}}
      {{- $wrong = append $wrong (printf "%s.%s: a cpu flavor is counted in cpu and memory, not in slices; remove this key." $key $field) -}}
    {{- end -}}
  {{- end -}}
  {{- if and (not $flavor.resource) (or $flavor.hostCpu $flavor.hostMemory) -}}
    {{- $wrong = append $wrong (printf "%s.%s: the quota of a cpu flavor is in clusterQueues.NAME.quota.NAME.cpu and .memory; remove this key." $key (ternary "hostCpu" "hostMemory" (not (empty $flavor.hostCpu)))) -}}
  {{- else if and $flavor.hostCpu (not $flavor.hostMemory) -}}
    {{- $wrong = append $wrong (printf "%s.hostCpu requires %s.hostMemory." $key $key) -}}
  {{- else if and $flavor.hostMemory (not $flavor.hostCpu) -}}
    {{- $wrong = append $wrong (printf "%s.hostMemory requires %s.hostCpu." $key $key) -}}
  {{- end -}}
  {{- range $of, $amount := dict "cpu" $flavor.hostCpu "memory" $flavor.hostMemory -}}
    {{- if $amount -}}
      {{- $wrong = append $wrong (include "queues.rules.quantity" (dict "key" (printf "%s.host%s" $key (title $of)) "quantity" $amount "example" (ternary "64 or 500m" "256Gi" (eq $of "cpu")))) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- /* Problems of labels, taints, tolerations and topology of a flavor. Takes `key`, `flavor` and `topologies`. */ -}}
{{- define "queues.rules.flavorSpec" -}}
  {{- $key := .key -}}
  {{- $flavor := .flavor -}}
  {{- $wrong := list -}}
  {{- range $field, $of := dict "nodeLabels" "nodeLabels" "taints" "nodeTaints" "tolerations" "tolerations" -}}
    {{- $count := len (get $flavor.spec $of | default list) -}}
    {{- if gt $count 8 -}}
      {{- $wrong = append $wrong (printf "%s.%s: the flavor has %d, with those that follow from its machines; Kueue accepts at most 8." $key $field $count) -}}
    {{- end -}}
  {{- end -}}
  {{- range $label, $value := $flavor.nodeLabels -}}
    {{- if not (and (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $label) (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value)) -}}
      {{- $wrong = append $wrong (printf "%s.nodeLabels: %s=%s is not a valid node label; write it like cloud.google.com/gke-nodepool=pool-1." $key $label $value) -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $toleration := $flavor.tolerations -}}
    {{- if and $toleration.value (eq ($toleration.operator | default "Equal") "Exists") -}}
      {{- $wrong = append $wrong (printf "%s.tolerations.%s: operator Exists takes no value; remove one of them." $key $name) -}}
    {{- end -}}
  {{- end -}}
  {{- with $flavor.topologyName -}}
    {{- if not (hasKey $.topologies .) -}}
      {{- $wrong = append $wrong (printf "%s.topologyName: unknown topology %q (available in topologies: %s)." $key . (keys $.topologies | sortAlpha | join ", " | default "no entries")) -}}
    {{- else if not $flavor.spec.nodeLabels -}}
      {{- $wrong = append $wrong (printf "%s.topologyName requires at least one label in %s.nodeLabels; Kueue finds the nodes by these labels." $key $key) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
