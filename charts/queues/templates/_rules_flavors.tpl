{{- define "queues.rules.flavors" -}}
  {{- $topologies := .Values.topologies -}}
  {{- range $name, $flavor := .Values.flavors -}}
    {{- $key := printf "flavors.%s" $name -}}
    {{- $args := dict "key" $key "flavor" $flavor "topologies" $topologies "accelerators" $.Values.common.accelerators -}}
    {{- /* A versioned name ends in a hyphen and eight hexadecimal digits. */ -}}
    {{- include "queues.rules.name" (dict "key" $key "name" $name "max" (ternary 54 63 $flavor.versioned)) -}}
    {{- if $flavor.resolved.error -}}
      {{- println $flavor.resolved.error -}}
    {{- else -}}
      {{- include "queues.rules.flavorHost" $args -}}
      {{- include "queues.rules.flavorSpec" $args -}}
    {{- end -}}
    {{- include "common.rules.reservation" (dict "key" $key "of" $flavor "labels" (printf "%s.nodeLabels" $key)) -}}
    {{- if and $flavor.anyRun (not (has $flavor.provisioning (list "spot" "flex-start"))) -}}
      {{- printf "%s.anyRun applies only to spot and flex-start, which runs must request; any run can use %s.\n" $key
          $flavor.provisioning -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* Problems of the hosts of a flavor. Takes `key`, `flavor` and `accelerators`. */ -}}
{{- define "queues.rules.flavorHost" -}}
  {{- $key := .key -}}
  {{- $flavor := .flavor -}}
  {{- range $field := list "topology" "machineType" "hosts" -}}
    {{- if and (not $flavor.resource) (get $flavor $field) -}}
      {{- printf "%s.%s: a cpu flavor is counted in cpu and memory, not in slices; remove this key.\n" $key $field -}}
    {{- end -}}
  {{- end -}}
  {{- if and (not $flavor.resource) (or $flavor.hostCpu $flavor.hostMemory) -}}
    {{- printf "%s.%s: the quota of a cpu flavor is in clusterQueues.NAME.quota.NAME.cpu and .memory; remove this key.\n" $key
        (ternary "hostCpu" "hostMemory" (not (empty $flavor.hostCpu))) -}}
  {{- else if and $flavor.hostCpu (not $flavor.hostMemory) -}}
    {{- printf "%s.hostCpu requires %s.hostMemory.\n" $key $key -}}
  {{- else if and $flavor.hostMemory (not $flavor.hostCpu) -}}
    {{- printf "%s.hostMemory requires %s.hostCpu.\n" $key $key -}}
  {{- end -}}
  {{- $machine := $flavor.resolved.machineType -}}
  {{- $row := get .accelerators $flavor.accelerator -}}
  {{- range $of, $amount := dict "cpu" $flavor.hostCpu "memory" $flavor.hostMemory -}}
    {{- if $amount -}}
      {{- $field := printf "%s.host%s" $key (title $of) -}}
      {{- $bad := include "queues.rules.quantity" (dict "key" $field "quantity" $amount "example"
          (ternary "64 or 500m" "256Gi" (eq $of "cpu"))) -}}
      {{- $bad -}}
      {{- $has := dig (ternary "hostCpus" "hostMemoryGiB" (eq $of "cpu")) $machine "" $row -}}
      {{- $whole := ternary (printf "%v" $has) (printf "%vGi" $has) (eq $of "cpu") -}}
      {{- if and (not $bad) $has (gt (include "common.quantity.number" $amount | float64) (include "common.quantity.number" $whole
          | float64)) -}}
        {{- printf "%s: %v is more than the %s of a %s, and pods get less; lower it.\n" $field $amount (ternary (printf "%s vCPUs"
            $whole) $whole (eq $of "cpu")) $machine -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* Problems of labels, taints, tolerations and topology of a flavor. Takes `key`, `flavor` and `topologies`. */ -}}
{{- define "queues.rules.flavorSpec" -}}
  {{- $key := .key -}}
  {{- $flavor := .flavor -}}
  {{- range $field, $of := dict "nodeLabels" "nodeLabels" "taints" "nodeTaints" "tolerations" "tolerations" -}}
    {{- $count := len (get $flavor.spec $of | default list) -}}
    {{- if gt $count 8 -}}
      {{- printf "%s.%s: the flavor has %d, with those that follow from its machines; Kueue accepts at most 8.\n" $key $field $count -}}
    {{- end -}}
  {{- end -}}
  {{- range $label, $value := $flavor.nodeLabels -}}
    {{- if not (and (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $label)
        (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value)) -}}
      {{- printf "%s.nodeLabels: %s=%s is not a valid node label; write it like cloud.google.com/gke-nodepool=pool-1.\n" $key $label
          $value -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $toleration := $flavor.tolerations -}}
    {{- if and $toleration.value (eq ($toleration.operator | default "Equal") "Exists") -}}
      {{- printf "%s.tolerations.%s: operator Exists takes no value; remove one of them.\n" $key $name -}}
    {{- end -}}
  {{- end -}}
  {{- with $flavor.topologyName -}}
    {{- include "queues.rules.known" (dict "key" (printf "%s.topologyName" $key) "what" "topology" "name" . "map" "topologies"
        "entries" $.topologies) -}}
    {{- if and (hasKey $.topologies .) (not $flavor.spec.nodeLabels) -}}
      {{- printf "%s.topologyName requires at least one label in %s.nodeLabels; Kueue finds the nodes by these labels.\n" $key $key -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
