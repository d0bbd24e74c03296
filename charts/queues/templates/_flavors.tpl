{{- /* queues.resolveFlavors: add to the flavors of the values
  resolved  the result of common.slice; has `error` if the slice is not valid
  resource  google.com/tpu, nvidia.com/gpu, or "" for cpu
  spec      the spec of the ResourceFlavor
  object    the name of the ResourceFlavor

Spot and flex-start nodes have a taint, and so do these flavors: Kueue places only runs on them that tolerate the taint.
charts/run adds the toleration to a run that requests such machines. With anyRun, the flavor adds it to every run. */ -}}
{{- define "queues.resolveFlavors" -}}
  {{- range $name, $flavor := .Values.flavors -}}
    {{- /* A cpu flavor is not a slice: the rules reject its topology. */ -}}
    {{- $cpu := eq (dig $flavor.accelerator "kind" "" $.Values.common.accelerators) "cpu" -}}
    {{- $slice := ternary (pick $flavor "accelerator") $flavor $cpu -}}
    {{- include "common.slice" (dict "slice" $slice "accelerators" $.Values.common.accelerators
        "key" (printf "flavors.%s" $name) "into" $flavor) -}}
    {{- $spec := dict -}}
    {{- if not $flavor.resolved.error -}}
      {{- $resource := include "common.resource" $flavor.resolved -}}
      {{- $_ := set $flavor "resource" $resource -}}
      {{- $labels := dict -}}
      {{- include "common.nodeLabels" (dict "accelerator" $flavor.resolved "machineType" $flavor.machineType "into" $labels
          "provisioning" $flavor.provisioning "reservation" $flavor.reservation) -}}
      {{- $taints := list -}}
      {{- $tolerations := list -}}
      {{- /* A Ray head would fit into the quota of the hosts' cpu and memory. The taint keeps heads off these nodes. */ -}}
      {{- if and $resource $flavor.hostCpu -}}
        {{- $taints = append $taints (dict "key" $resource "value" "present" "effect" "NoSchedule") -}}
      {{- end -}}
      {{- $key := get (dict "spot" "cloud.google.com/gke-spot" "flex-start" "cloud.google.com/gke-queued") $flavor.provisioning -}}
      {{- if and $key $flavor.anyRun -}}
        {{- $tolerations = append $tolerations (dict "key" $key "operator" "Equal" "value" "true" "effect" "NoSchedule") -}}
      {{- else if $key -}}
        {{- $taints = append $taints (dict "key" $key "value" "true" "effect" "NoSchedule") -}}
      {{- end -}}
      {{- range $_, $taint := $flavor.taints }}{{ $taints = append $taints $taint }}{{ end -}}
      {{- range $_, $toleration := $flavor.tolerations }}{{ $tolerations = append $tolerations $toleration }}{{ end -}}
      {{- range $field, $value := dict "nodeLabels" (mergeOverwrite $labels $flavor.nodeLabels) "nodeTaints" $taints
          "tolerations" $tolerations "topologyName" $flavor.topologyName -}}
        {{- if $value }}{{ $_ := set $spec $field $value }}{{ end -}}
      {{- end -}}
    {{- end -}}
    {{- $_ := set $flavor "spec" $spec -}}
    {{- $_ := set $flavor "object" (ternary (printf "%s-%s" $name ($spec | toJson | sha256sum | trunc 8)) $name $flavor.versioned) -}}
  {{- end -}}
{{- end -}}
