{{- /*
queues.valid is "true", or fails with all that is wrong across keys, a sentence a line. Every manifest is inside of it,
so that it comes before anything that the mistake would break; `helm lint`, which goes on after a fail, gets nothing.
Helm gives all of a chart's files the same dot, where the first of them notes that the rules hold.
*/ -}}
{{- define "queues.valid" -}}
  {{- if hasKey . "queuesValid" -}}
    true
  {{- else -}}
    {{- include "queues.validate" . -}}
  {{- end -}}
{{- end -}}

{{- define "queues.validate" -}}
  {{- $wrong := concat
    (include "queues.rules.flavors" . | fromJsonArray)
    (include "queues.rules.topologies" . | fromJsonArray)
    (include "queues.rules.priorities" . | fromJsonArray)
    (include "queues.rules.cohorts" . | fromJsonArray)
    (include "queues.rules.checks" . | fromJsonArray)
    (include "queues.rules.clusterQueues" . | fromJsonArray)
    (include "queues.rules.teams" . | fromJsonArray)
    (include "queues.rules.network" . | fromJsonArray)
    (include "queues.rules.monitoring" . | fromJsonArray) -}}
  {{- if and (not $wrong) (.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta2/ResourceFlavor") -}}
    {{- $wrong = include "queues.rules.live" . | fromJsonArray -}}
  {{- end -}}
  {{- if $wrong -}}
    {{- fail (printf "\n%s\n" (join "\n" $wrong)) -}}
  {{- else -}}
    {{- $_ := set . "queuesValid" true -}}
    true
  {{- end -}}
{{- end -}}

{{- /* A sentence where `name` is no name for an object, or longer than `max`; of `key`, `name`, `max`. */ -}}
{{- define "queues.rules.name" -}}
  {{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .name) -}}
    {{- printf "%s: %q is no name in Kubernetes; use small letters, digits and hyphens, no hyphen first or last." .key .name -}}
  {{- else if gt (len .name) (int .max) -}}
    {{- printf "%s: %q has %d characters; this name may have %d." .key .name (len .name) (int .max) -}}
  {{- end -}}
{{- end -}}

{{- /* A sentence where `quantity` is not one; of `key`, `quantity` and `of` (cpu or memory). */ -}}
{{- define "queues.rules.quantity" -}}
  {{- $cpu := eq .of "cpu" -}}
  {{- if hasPrefix "-" .quantity -}}
    {{- printf "%s is %s; a quota is never negative." .key .quantity -}}
  {{- else if not (regexMatch (ternary "^[0-9]+m?$" "^[0-9]+(k|M|G|T|Ki|Mi|Gi|Ti)?$" $cpu) .quantity) -}}
    {{- printf "%s: %q is no amount of %s; write it like %s." .key .quantity .of (ternary "64 or 500m" "256Gi" $cpu) -}}
  {{- end -}}
{{- end -}}

{{- /* An amount of cpu or memory as a number that compares: thousandths of cores, bytes. */ -}}
{{- define "queues.number" -}}
  {{- $factors := dict "m" 1 "" 1000 "k" 1000000 "M" 1000000000 "G" 1000000000000 "T" 1000000000000000 "Ki" 1024000 "Mi" 1048576000 "Gi" 1073741824000 "Ti" 1099511627776000 -}}
  {{- mul (regexFind "^[0-9]+" . | int64) (get $factors (regexFind "[A-Za-z]*$" .)) -}}
{{- end -}}

{{- define "queues.rules.topologies" -}}
  {{- $wrong := list -}}
  {{- range $name, $topology := include "queues.topologies" . | fromJson -}}
    {{- $key := printf "topologies.%s" $name -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" $key "name" $name "max" 63)) -}}
    {{- $levels := $topology.levels -}}
    {{- if not $levels -}}
      {{- $wrong = append $wrong (printf "%s.levels is empty; list node labels from the widest down, such as cloud.google.com/gke-nodepool and kubernetes.io/hostname." $key) -}}
    {{- else if gt (len $levels) 16 -}}
      {{- $wrong = append $wrong (printf "%s.levels has %d levels; Kueue takes 16." $key (len $levels)) -}}
    {{- else if ne (len $levels) (len (uniq $levels)) -}}
      {{- $wrong = append $wrong (printf "%s.levels names a label twice; keep one." $key) -}}
    {{- else if and (has "kubernetes.io/hostname" $levels) (ne (last $levels) "kubernetes.io/hostname") -}}
      {{- $wrong = append $wrong (printf "%s.levels: kubernetes.io/hostname is the narrowest level; put it last." $key) -}}
    {{- end -}}
    {{- range $levels -}}
      {{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" .) -}}
        {{- $wrong = append $wrong (printf "%s.levels: %q is no label of a node; one is like kubernetes.io/hostname." $key .) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- define "queues.rules.priorities" -}}
  {{- $wrong := list -}}
  {{- $defaults := list -}}
  {{- range $name, $priority := include "queues.priorities" . | fromJson -}}
    {{- $key := printf "priorities.%s" $name -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" $key "name" $name "max" 63)) -}}
    {{- if and $priority.globalDefault (not $priority.pods) -}}
      {{- $wrong = append $wrong (printf "%s.globalDefault is a matter of PriorityClasses; set %s.pods: true, or leave it out." $key $key) -}}
    {{- end -}}
    {{- if $priority.globalDefault }}{{ $defaults = append $defaults $name }}{{ end -}}
    {{- if and $priority.pods (gt (int64 $priority.value) 1000000000) -}}
      {{- $wrong = append $wrong (printf "%s.value is %d; a PriorityClass may have at most 1000000000." $key (int64 $priority.value)) -}}
    {{- end -}}
    {{- if and $priority.pods (hasPrefix "system-" $name) -}}
      {{- $wrong = append $wrong (printf "%s: the names of PriorityClasses with system- are Kubernetes' own; choose another." $key) -}}
    {{- end -}}
  {{- end -}}
  {{- if gt (len $defaults) 1 -}}
    {{- $wrong = append $wrong (printf "priorities: globalDefault is set for %s; a cluster has one default." (join " and " $defaults)) -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- define "queues.rules.checks" -}}
  {{- $wrong := list (include "queues.rules.name" (dict "key" "flexStart.name" "name" .Values.flexStart.name "max" 63)) -}}
  {{- if hasKey .Values.admissionChecks .Values.flexStart.name -}}
    {{- $wrong = append $wrong (printf "admissionChecks.%s is the name of the AdmissionCheck of flex-start, too; give flexStart.name another." .Values.flexStart.name) -}}
  {{- end -}}
  {{- if gt (int64 .Values.flexStart.retrySeconds) (int64 .Values.flexStart.retryMaxSeconds) -}}
    {{- $wrong = append $wrong (printf "flexStart.retrySeconds is %d; it must be at most flexStart.retryMaxSeconds, %d." (int64 .Values.flexStart.retrySeconds) (int64 .Values.flexStart.retryMaxSeconds)) -}}
  {{- end -}}
  {{- range $name, $check := include "queues.admissionChecks" . | fromJson -}}
    {{- $key := printf "admissionChecks.%s" $name -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" $key "name" $name "max" 63)) -}}
    {{- if and $check.create (not $check.controllerName) -}}
      {{- $wrong = append $wrong (printf "%s.controllerName is empty; it names the controller that does the check." $key) -}}
    {{- end -}}
    {{- if and $check.parameters (lt (len $check.parameters) 3) -}}
      {{- $wrong = append $wrong (printf "%s.parameters needs apiGroup, kind and name." $key) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
