{{- define "queues.rules.flavors" -}}
  {{- range $name, $flavor := .Values.flavors -}}
    {{- $key := printf "flavors.%s" $name -}}
    {{- /* A versioned name ends in a hyphen and eight hexadecimal digits. */ -}}
    {{- include "queues.rules.name" (dict "key" $key "name" $name "max" (ternary 54 63 $flavor.versioned)) -}}
    {{- include "common.rules.reservation" (dict "key" $key "of" $flavor "labels" (printf "%s.nodeLabels" $key)) -}}
    {{- if and $flavor.anyRun (not (has $flavor.provisioning (list "spot" "flex-start"))) -}}
      {{- printf "%s.anyRun applies only to spot and flex-start, which runs must request; any run can use %s.\n" $key
          $flavor.provisioning -}}
    {{- end -}}
    {{- with $flavor.resolved.error }}{{ println . }}{{ continue }}{{ end -}}
    {{- $cpu := not $flavor.resource -}}
    {{- range $field, $value := pick $flavor "topology" "machineType" "hosts" -}}
      {{- if and $cpu $value -}}
        {{- printf "%s.%s: a cpu flavor is counted in cpu and memory, not in slices; remove this key.\n" $key $field -}}
      {{- end -}}
    {{- end -}}
    {{- include "common.sentence" (list
        (list (and $cpu (or $flavor.hostCpu $flavor.hostMemory))
            (printf "%s.%s: the quota of a cpu flavor is in clusterQueues.NAME.quota.NAME.cpu and .memory; remove this key." $key
            (ternary "hostCpu" "hostMemory" (not (empty $flavor.hostCpu)))))
        (list (and $flavor.hostCpu (not $flavor.hostMemory)) (printf "%s.hostCpu requires %s.hostMemory." $key $key))
        (list (and $flavor.hostMemory (not $flavor.hostCpu)) (printf "%s.hostMemory requires %s.hostCpu." $key $key))) -}}
    {{- $machine := $flavor.resolved.machineType -}}
    {{- $row := get $.Values.common.accelerators $flavor.accelerator -}}
    {{- range $of := list
        (dict "field" "hostCpu" "of" "hostCpus" "format" "%v" "what" "%s vCPUs" "example" "64 or 500m")
        (dict "field" "hostMemory" "of" "hostMemoryGiB" "format" "%vGi" "what" "%s" "example" "256Gi") -}}
      {{- with get $flavor $of.field -}}
        {{- $field := printf "%s.%s" $key $of.field -}}
        {{- $bad := include "queues.rules.quantity" (dict "key" $field "quantity" . "example" $of.example) -}}
        {{- $bad -}}
        {{- $has := dig $of.of $machine "" $row -}}
        {{- $whole := printf $of.format $has -}}
        {{- if and (not $bad) $has (include "common.quantity.exceeds" (list . $whole)) -}}
          {{- printf "%s: %v is more than the %s of a %s, and pods get less; lower it.\n" $field . (printf $of.what $whole) $machine -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
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
      {{- include "queues.rules.known" (dict "root" $ "key" (printf "%s.topologyName" $key) "name" . "map" "topologies") -}}
      {{- if and (hasKey $.Values.topologies .) (not $flavor.spec.nodeLabels) -}}
        {{- printf "%s.topologyName requires at least one label in %s.nodeLabels; Kueue finds the nodes by these labels.\n" $key $key -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
