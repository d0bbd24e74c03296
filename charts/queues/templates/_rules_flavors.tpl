{{- define "queues.rules.flavors" -}}
  {{- $wrong := list -}}
  {{- $topologies := include "queues.topologies" . | fromJson -}}
  {{- range $name, $flavor := include "queues.flavors" . | fromJson -}}
    {{- $key := printf "flavors.%s" $name -}}
    {{- $args := dict "key" $key "flavor" $flavor "topologies" $topologies -}}
    {{- /* A versioned name ends in a hyphen and eight digits. */ -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" $key "name" $name "max" (ternary 54 63 $flavor.versioned))) -}}
    {{- if $flavor.resolved.error -}}
      {{- $wrong = append $wrong $flavor.resolved.error -}}
    {{- else -}}
      {{- $wrong = concat $wrong (include "queues.rules.flavorHost" $args | fromJsonArray) (include "queues.rules.flavorSpec" $args | fromJsonArray) -}}
    {{- end -}}
    {{- if and (eq $flavor.provisioning "reservation") (not $flavor.reservation) -}}
      {{- $wrong = append $wrong (printf "%s.provisioning is reservation; %s.reservation must name it." $key $key) -}}
    {{- else if and $flavor.reservation (ne $flavor.provisioning "reservation") -}}
      {{- $wrong = append $wrong (printf "%s.reservation needs %s.provisioning: reservation, which is %s." $key $key $flavor.provisioning) -}}
    {{- else if $flavor.reservation -}}
      {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" (printf "%s.reservation" $key) "name" $flavor.reservation "max" 63)) -}}
    {{- end -}}
    {{- if and $flavor.anyRun (not (has $flavor.provisioning (list "spot" "flex-start"))) -}}
      {{- $wrong = append $wrong (printf "%s.anyRun is for spot and flex-start, which runs have to ask for; %s is open to any run." $key $flavor.provisioning) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- /* What a flavor says of its hosts; of `key` and `flavor`. */ -}}
{{- define "queues.rules.flavorHost" -}}
  {{- $key := .key -}}
  {{- $flavor := .flavor -}}
  {{- $wrong := list -}}
  {{- range $field := list "topology" "machineType" "hosts" -}}
    {{- if and (not $flavor.resource) (get $flavor $field) -}}
      {{- $wrong = append $wrong (printf "%s.%s: a flavor of cpu is counted in cpu and memory, not in slices; remove it." $key $field) -}}
    {{- end -}}
  {{- end -}}
  {{- if and (not $flavor.resource) (or $flavor.hostCpu $flavor.hostMemory) -}}
    {{- $wrong = append $wrong (printf "%s.%s: a flavor of cpu has its quota in clusterQueues.NAME.quota.NAME.cpu and .memory; remove it." $key (ternary "hostCpu" "hostMemory" (not (empty $flavor.hostCpu)))) -}}
  {{- else if and $flavor.hostCpu (not $flavor.hostMemory) -}}
    {{- $wrong = append $wrong (printf "%s.hostCpu needs %s.hostMemory beside it." $key $key) -}}
  {{- else if and $flavor.hostMemory (not $flavor.hostCpu) -}}
    {{- $wrong = append $wrong (printf "%s.hostMemory needs %s.hostCpu beside it." $key $key) -}}
  {{- end -}}
  {{- range $of, $amount := dict "cpu" $flavor.hostCpu "memory" $flavor.hostMemory -}}
    {{- if $amount -}}
      {{- $wrong = append $wrong (include "queues.rules.quantity" (dict "key" (printf "%s.host%s" $key (title $of)) "quantity" $amount "of" $of)) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- /* Labels, taints, tolerations and topology of a flavor; of `key`, `flavor` and `topologies`. */ -}}
{{- define "queues.rules.flavorSpec" -}}
  {{- $key := .key -}}
  {{- $flavor := .flavor -}}
  {{- $wrong := list -}}
  {{- range $field, $of := dict "nodeLabels" "nodeLabels" "taints" "nodeTaints" "tolerations" "tolerations" -}}
    {{- $count := len (get $flavor.spec $of | default list) -}}
    {{- if gt $count 8 -}}
      {{- $wrong = append $wrong (printf "%s.%s: with those of the machines there are %d; Kueue takes 8." $key $field $count) -}}
    {{- end -}}
  {{- end -}}
  {{- range $label, $value := $flavor.nodeLabels -}}
    {{- if not (and (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $label) (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value)) -}}
      {{- $wrong = append $wrong (printf "%s.nodeLabels: %s=%s is no label of a node; one is like cloud.google.com/gke-nodepool=pool-1." $key $label $value) -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $toleration := $flavor.tolerations -}}
    {{- if and $toleration.value (eq ($toleration.operator | default "Equal") "Exists") -}}
      {{- $wrong = append $wrong (printf "%s.tolerations.%s: operator Exists takes no value; remove one of the two." $key $name) -}}
    {{- end -}}
  {{- end -}}
  {{- with $flavor.topologyName -}}
    {{- if not (hasKey $.topologies .) -}}
      {{- $wrong = append $wrong (printf "%s.topologyName: there is no topology %s; topologies has %s." $key . (keys $.topologies | sortAlpha | join ", " | default "none")) -}}
    {{- else if not $flavor.spec.nodeLabels -}}
      {{- $wrong = append $wrong (printf "%s.topologyName needs at least one label in %s.nodeLabels, by which Kueue finds the nodes." $key $key) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
