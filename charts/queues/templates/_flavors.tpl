{{- /*
queues.flavors: JSON of the flavors, each with all its keys and
  resolved  what common.slice says of it; has `error` where it is no slice
  resource  google.com/tpu, nvidia.com/gpu, or "" for cpu
  spec      of the ResourceFlavor
  object    the name of the ResourceFlavor

Nodes of spot and flex-start carry a taint, and so do these flavors: Kueue places only runs there that tolerate it,
which charts/run does for a run that asks for such machines. With anyRun the flavor gives every run the toleration.
*/ -}}
{{- define "queues.flavors" -}}
  {{- $defaults := dict "create" true "accelerator" "" "topology" "" "machineType" "" "hosts" 0 "provisioning" "on-demand" "reservation" "" "nodeLabels" (dict) "taints" (dict) "tolerations" (dict) "topologyName" "" "hostCpu" "" "hostMemory" "" "anyRun" false "versioned" false -}}
  {{- $flavors := include "queues.entries" (dict "entries" .Values.flavors "defaults" $defaults) | fromJson -}}
  {{- range $name, $flavor := $flavors -}}
    {{- /* A flavor of cpu is no slice: its topology is for the rules to refuse. */ -}}
    {{- $cpu := eq (dig $flavor.accelerator "kind" "" $.Values.common.accelerators) "cpu" -}}
    {{- $slice := ternary (pick $flavor "accelerator") $flavor $cpu -}}
    {{- $resolved := include "common.slice" (dict "slice" $slice "accelerators" $.Values.common.accelerators "key" (printf "flavors.%s" $name)) | fromJson -}}
    {{- $_ := set $flavor "resolved" $resolved -}}
    {{- $spec := dict -}}
    {{- if not $resolved.error -}}
      {{- $_ := set $flavor "resource" (include "common.resource" $resolved) -}}
      {{- $spec = include "queues.flavorSpec" $flavor | fromJson -}}
    {{- end -}}
    {{- $_ := set $flavor "spec" $spec -}}
    {{- $_ := set $flavor "object" (ternary (printf "%s-%s" $name ($spec | toJson | sha256sum | trunc 8)) $name $flavor.versioned) -}}
  {{- end -}}
  {{- $flavors | toJson -}}
{{- end -}}

{{- define "queues.flavorSpec" -}}
  {{- $labels := include "common.nodeLabels" (dict "accelerator" .resolved "machineType" .machineType "provisioning" .provisioning "reservation" .reservation) | fromJson -}}
  {{- $labels = mergeOverwrite $labels .nodeLabels -}}
  {{- $taints := list -}}
  {{- $tolerations := list -}}
  {{- /* Quota for the hosts' own cpu and memory would fit a Ray head too, which must not land beside the chips. */ -}}
  {{- if and .resource .hostCpu -}}
    {{- $taints = append $taints (dict "key" .resource "value" "present" "effect" "NoSchedule") -}}
  {{- end -}}
  {{- $key := get (dict "spot" "cloud.google.com/gke-spot" "flex-start" "cloud.google.com/gke-queued") .provisioning -}}
  {{- if and $key .anyRun -}}
    {{- $tolerations = append $tolerations (dict "key" $key "operator" "Equal" "value" "true" "effect" "NoSchedule") -}}
  {{- else if $key -}}
    {{- $taints = append $taints (dict "key" $key "value" "true" "effect" "NoSchedule") -}}
  {{- end -}}
  {{- range $name, $taint := .taints }}{{ $taints = append $taints $taint }}{{ end -}}
  {{- range $name, $toleration := .tolerations }}{{ $tolerations = append $tolerations $toleration }}{{ end -}}
  {{- $spec := dict -}}
  {{- with $labels }}{{ $_ := set $spec "nodeLabels" . }}{{ end -}}
  {{- with $taints }}{{ $_ := set $spec "nodeTaints" . }}{{ end -}}
  {{- with $tolerations }}{{ $_ := set $spec "tolerations" . }}{{ end -}}
  {{- with .topologyName }}{{ $_ := set $spec "topologyName" . }}{{ end -}}
  {{- $spec | toJson -}}
{{- end -}}
