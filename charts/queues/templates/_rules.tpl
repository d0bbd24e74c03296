{{- /*
queues.valid returns "true", or fails with one sentence per line for each problem between keys. Every manifest is inside
`if queues.valid`, so that the check runs before an invalid value breaks a template. `helm lint` continues after a fail;
the manifests are then empty. All files of a chart have the same root context, in which the first file stores the result.
*/ -}}
{{- define "queues.valid" -}}
  {{- if hasKey . "queuesValid" -}}
    true
  {{- else -}}
    {{- include "queues.validate" . -}}
  {{- end -}}
{{- end -}}

{{- /* queues.emptyValues: JSON of the values that are empty by default, and so if they are null. */ -}}
{{- define "queues.emptyValues" -}}
{"flavors": {}, "topologies": {}, "clusterQueues": {}, "cohorts": {}, "teams": {}, "limitRange": {}, "admissionChecks": {},
"policies": {"buckets": [], "nodeLabels": [], "tolerations": [], "runtimeClasses": [], "schedulers": [], "containers": [], "gatewayClasses": [], "labelPrefixes": [], "annotationPrefixes": [], "fields": {}},
"network": {"proxyCidrs": [], "fromNamespaces": [], "modelsFromNamespaces": [], "hostCidrs": [], "dnsCidrs": [], "egress": {}},
"monitoring": {"labels": {}, "fromNamespaces": []}, "commonLabels": {}, "commonAnnotations": {}}
{{- end -}}

{{- define "queues.validate" -}}
  {{- $_ := merge .Values (include "queues.emptyValues" . | fromJson) -}}
  {{- include "common.dropNulls" (dict "values" .Values "keys" (include "queues.maps" . | fromJsonArray)) -}}
  {{- $wrong := concat
    (include "queues.rules.flavors" . | fromJsonArray)
    (include "queues.rules.topologies" . | fromJsonArray)
    (include "queues.rules.priorities" . | fromJsonArray)
    (include "queues.rules.cohorts" . | fromJsonArray)
    (include "queues.rules.checks" . | fromJsonArray)
    (include "queues.rules.clusterQueues" . | fromJsonArray)
    (include "queues.rules.teams" . | fromJsonArray)
    (include "queues.rules.policies" . | fromJsonArray)
    (include "queues.rules.network" . | fromJsonArray)
    (include "queues.rules.monitoring" . | fromJsonArray)
    (include "queues.rules.common" . | fromJsonArray) -}}
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

{{- /* queues.maps: JSON list of the maps in which null removes an entry. Those of a
team (resourceQuota, limitRange) keep null, which removes a limit of all teams. */ -}}
{{- define "queues.maps" -}}
  {{- list
    "flavors" "flavors.*.nodeLabels" "flavors.*.taints" "flavors.*.tolerations" "topologies"
    "clusterQueues" "clusterQueues.*.quota" "clusterQueues.*.admissionChecks" "clusterQueues.*.namespaceSelector"
    "cohorts" "cohorts.*.quota" "priorities" "teams" "teams.*.labels" "teams.*.annotations" "teams.*.members" "teams.*.leads" "teams.*.viewers" "teams.*.serviceAccount.annotations"
    "resourceQuota" "limitRange" "admissionChecks" "network.operatorLabels" "network.egress" "monitoring.labels" "commonLabels" "commonAnnotations" | toJson -}}
{{- end -}}

{{- /* A sentence if `name` is not a valid object name or is longer than `max`. Takes `key`, `name` and `max`. */ -}}
{{- define "queues.rules.name" -}}
  {{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .name) -}}
    {{- printf "%s: %q is not a valid Kubernetes name; use lowercase letters, digits and hyphens, with no hyphen at either end." .key .name -}}
  {{- else if gt (len .name) (int .max) -}}
    {{- printf "%s: %q has %d characters; the name can have at most %d." .key .name (len .name) (int .max) -}}
  {{- end -}}
{{- end -}}

{{- /* A sentence if `quantity` is not valid. Takes `key`, `quantity` and `example`. */ -}}
{{- define "queues.rules.quantity" -}}
  {{- $quantity := toString .quantity -}}
  {{- if hasPrefix "-" $quantity -}}
    {{- printf "%s is %s; it cannot be negative." .key $quantity -}}
  {{- else if not (regexMatch (include "common.valueRules" . | fromJson).patterns.quantity $quantity) -}}
    {{- printf "%s: %q is not a valid amount; write it like %s." .key $quantity .example -}}
  {{- end -}}
{{- end -}}

{{- define "queues.rules.topologies" -}}
  {{- $wrong := list -}}
  {{- range $name, $topology := include "queues.topologies" . | fromJson -}}
    {{- $key := printf "topologies.%s" $name -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" $key "name" $name "max" 63)) -}}
    {{- $levels := $topology.levels -}}
    {{- if not $levels -}}
      {{- $wrong = append $wrong (printf "%s.levels is empty; list node labels from the widest level down, such as cloud.google.com/gke-nodepool and kubernetes.io/hostname." $key) -}}
    {{- else if gt (len $levels) 16 -}}
      {{- $wrong = append $wrong (printf "%s.levels has %d levels; Kueue accepts at most 16." $key (len $levels)) -}}
    {{- else if ne (len $levels) (len (uniq $levels)) -}}
      {{- $wrong = append $wrong (printf "%s.levels contains a duplicate label; remove it." $key) -}}
    {{- else if and (has "kubernetes.io/hostname" $levels) (ne (last $levels) "kubernetes.io/hostname") -}}
      {{- $wrong = append $wrong (printf "%s.levels: kubernetes.io/hostname is the narrowest level; put it last." $key) -}}
    {{- end -}}
    {{- range $levels -}}
      {{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" .) -}}
        {{- $wrong = append $wrong (printf "%s.levels: %q is not a valid node label; write it like kubernetes.io/hostname." $key .) -}}
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
      {{- $wrong = append $wrong (printf "%s.globalDefault applies only to PriorityClasses; set %s.pods: true, or remove globalDefault." $key $key) -}}
    {{- end -}}
    {{- if $priority.globalDefault }}{{ $defaults = append $defaults $name }}{{ end -}}
    {{- if and $priority.pods (gt (int64 $priority.value) 1000000000) -}}
      {{- $wrong = append $wrong (printf "%s.value is %d; the value of a PriorityClass can be at most 1000000000." $key (int64 $priority.value)) -}}
    {{- end -}}
    {{- if and $priority.pods (hasPrefix "system-" $name) -}}
      {{- $wrong = append $wrong (printf "%s: Kubernetes reserves the names of PriorityClasses that begin with system-; choose another name." $key) -}}
    {{- end -}}
  {{- end -}}
  {{- if gt (len $defaults) 1 -}}
    {{- $wrong = append $wrong (printf "priorities: globalDefault is set for %s; a cluster can have only one default." (join " and " $defaults)) -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- define "queues.rules.checks" -}}
  {{- $wrong := list (include "queues.rules.name" (dict "key" "flexStart.name" "name" .Values.flexStart.name "max" 63)) -}}
  {{- if hasKey .Values.admissionChecks .Values.flexStart.name -}}
    {{- $wrong = append $wrong (printf "admissionChecks.%s is also the name of the AdmissionCheck for flex-start; set flexStart.name to another name." .Values.flexStart.name) -}}
  {{- end -}}
  {{- if gt (int64 .Values.flexStart.retrySeconds) (int64 .Values.flexStart.retryMaxSeconds) -}}
    {{- $wrong = append $wrong (printf "flexStart.retrySeconds is %d; it must be at most flexStart.retryMaxSeconds, which is %d." (int64 .Values.flexStart.retrySeconds) (int64 .Values.flexStart.retryMaxSeconds)) -}}
  {{- end -}}
  {{- range $name, $check := include "queues.admissionChecks" . | fromJson -}}
    {{- $key := printf "admissionChecks.%s" $name -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" $key "name" $name "max" 63)) -}}
    {{- if and $check.create (not $check.controllerName) -}}
      {{- $wrong = append $wrong (printf "%s.controllerName is empty; set it to the controller that does the check." $key) -}}
    {{- end -}}
    {{- if and $check.parameters (lt (len $check.parameters) 3) -}}
      {{- $wrong = append $wrong (printf "%s.parameters requires apiGroup, kind and name." $key) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
