{{- /* queues.validate: fail with the lines of queues.rules.*, a sentence for each problem between keys; or else set in the
root context what the manifests need. Each manifest includes it first, before an invalid value breaks its template. All files
of a chart have the same root context, so that only the first one does the work. `helm lint` continues after a fail: without
entries, the manifests are then empty. */ -}}
{{- define "queues.validate" -}}
  {{- if not (hasKey . "valid") -}}
    {{- $_ := set . "defaults" (.Files.Get "defaults.yaml" | fromYaml) -}}
    {{- $_ := merge .Values .defaults.values -}}
    {{- include "common.dropNulls" (dict "values" .Values "keys" .defaults.maps) -}}
    {{- include "queues.resolve" . -}}
    {{- $problems := "" -}}
    {{- range list "flavors" "topologies" "priorities" "cohorts" "checks" "clusterQueues" "teams" "policies" "network" "monitoring"
        "record" "common" -}}
      {{- $problems = printf "%s%s" $problems (include (printf "queues.rules.%s" .) $) -}}
    {{- end -}}
    {{- if and (not $problems) (.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta2/ResourceFlavor") -}}
      {{- range list "namespaces" "fixed" "crds" }}{{ $problems = print $problems (include (printf "queues.rules.%s" .) $) }}{{ end -}}
    {{- end -}}
    {{- if $problems -}}
      {{- include "common.fail" $problems -}}
      {{- range $map, $_ := .created -}}
        {{- $_ := set $.Values $map dict -}}
        {{- $_ := set $.created $map dict -}}
      {{- end -}}
    {{- end -}}
    {{- include "queues.keepEarlier" . -}}
    {{- include "queues.setGroups" . -}}
    {{- include "queues.policies.setNamespaces" . -}}
    {{- $_ := set . "valid" true -}}
  {{- end -}}
{{- end -}}

{{- /* A line if `name` is not a valid object name or is longer than `max`. Takes `key`, `name` and `max`. */ -}}
{{- define "queues.rules.name" -}}
  {{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .name) -}}
    {{- printf (print "%s: %q is not a valid Kubernetes name; use lowercase letters, digits and hyphens, with no hyphen at "
        "either end.\n") .key .name -}}
  {{- else if gt (len .name) (int .max) -}}
    {{- printf "%s: %q has %d characters; the name can have at most %d.\n" .key .name (len .name) (int .max) -}}
  {{- end -}}
{{- end -}}

{{- /* A line for each of the `names` that is not valid. Takes `key`, `names` and `max`. */ -}}
{{- define "queues.rules.names" -}}
  {{- range .names }}{{ include "queues.rules.name" (dict "key" $.key "name" . "max" $.max) }}{{ end -}}
{{- end -}}

{{- /* A line if `name` is not an entry of the `map` of the values. Takes `root` and `key`, too; and `optional`: "" is valid. */ -}}
{{- define "queues.rules.known" -}}
  {{- $entries := get .root.Values .map -}}
  {{- if not (or (hasKey $entries .name) (and .optional (empty .name))) -}}
    {{- $what := get (dict "admissionChecks" "admission check" "clusterQueues" "ClusterQueue" "cohorts" "cohort" "flavors" "flavor"
        "priorities" "priority" "topologies" "topology") .map -}}
    {{- $all := keys $entries | sortAlpha | join ", " | default "no entries" -}}
    {{- printf "%s: unknown %s %q (available in %s: %s).\n" .key $what .name .map $all -}}
  {{- end -}}
{{- end -}}

{{- /* A line if `quantity` is not valid. Takes `key`, `quantity` and `example`. */ -}}
{{- define "queues.rules.quantity" -}}
  {{- $quantity := toString .quantity -}}
  {{- if hasPrefix "-" $quantity -}}
    {{- printf "%s is %s; it cannot be negative.\n" .key $quantity -}}
  {{- else if not (regexMatch (include "common.pattern.quantity" .) $quantity) -}}
    {{- printf "%s: %q is not a valid amount; write it like %s.\n" .key $quantity .example -}}
  {{- else if and (regexMatch (include "common.pattern.bytes" .) $quantity)
      (not (regexMatch (include "common.pattern.zero" .) $quantity)) (regexMatch (print
      "(\\.(hostM|m)emory(Borrowing|Lending)?|: (.*storage\\.k8s\\.io/)?((requests|limits)\\.)?(memory|storage|"
      "ephemeral-storage))$") .key) -}}
    {{- printf (print "%s: %q is less than 1 MiB; without a unit it is in bytes, and m is a thousandth. Write it like 256Gi.\n")
        .key $quantity -}}
  {{- end -}}
{{- end -}}

{{- define "queues.rules.topologies" -}}
  {{- range $name, $topology := .Values.topologies -}}
    {{- $key := printf "topologies.%s" $name -}}
    {{- include "queues.rules.name" (dict "key" $key "name" $name "max" 63) -}}
    {{- $levels := $topology.levels | default list -}}
    {{- include "common.sentence" (list
        (list (not $levels) (printf (print "%s.levels is empty; list node labels from the widest level down, such as "
            "cloud.google.com/gke-nodepool and kubernetes.io/hostname.") $key))
        (list (gt (len $levels) 16) (printf "%s.levels has %d levels; Kueue accepts at most 16." $key (len $levels)))
        (list (ne (len $levels) (len (uniq $levels))) (printf "%s.levels contains a duplicate label; remove it." $key))
        (list (has "kubernetes.io/hostname" (initial $levels))
            (printf "%s.levels: kubernetes.io/hostname is the narrowest level; put it last." $key))) -}}
    {{- range $levels -}}
      {{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" .) -}}
        {{- printf "%s.levels: %q is not a valid node label; write it like kubernetes.io/hostname.\n" $key . -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- define "queues.rules.priorities" -}}
  {{- $defaults := list -}}
  {{- range $name, $priority := .Values.priorities -}}
    {{- $key := printf "priorities.%s" $name -}}
    {{- include "queues.rules.name" (dict "key" $key "name" $name "max" 63) -}}
    {{- if $priority.globalDefault }}{{ $defaults = append $defaults $name }}{{ end -}}
    {{- include "common.sentences" (list
        (list (and $priority.globalDefault (not $priority.pods))
            (printf "%s.globalDefault applies only to PriorityClasses; set %s.pods: true, or remove globalDefault." $key $key))
        (list (and $priority.pods (gt (int64 $priority.value) 1000000000))
            (printf "%s.value is %d; the value of a PriorityClass can be at most 1000000000." $key (int64 $priority.value)))
        (list (and $priority.pods (hasPrefix "system-" $name))
            (printf "%s: Kubernetes reserves the names of PriorityClasses that begin with system-; choose another name." $key))) -}}
  {{- end -}}
  {{- if gt (len $defaults) 1 -}}
    {{- printf "priorities: globalDefault is set for %s; a cluster can have only one default.\n" (join " and " $defaults) -}}
  {{- end -}}
{{- end -}}

{{- define "queues.rules.checks" -}}
  {{- $flex := .Values.flexStart -}}
  {{- include "queues.rules.name" (dict "key" "flexStart.name" "name" $flex.name "max" 63) -}}
  {{- include "common.sentences" (list
      (list (hasKey .Values.admissionChecks $flex.name)
          (printf "admissionChecks.%s is also the name of the AdmissionCheck for flex-start; set flexStart.name to another name."
          $flex.name))
      (list (gt (int64 $flex.retrySeconds) (int64 $flex.retryMaxSeconds))
          (printf "flexStart.retrySeconds is %d; it must be at most flexStart.retryMaxSeconds, which is %d." (int64 $flex.retrySeconds)
              (int64 $flex.retryMaxSeconds)))) -}}
  {{- range $name, $check := .Values.admissionChecks -}}
    {{- $key := printf "admissionChecks.%s" $name -}}
    {{- include "queues.rules.name" (dict "key" $key "name" $name "max" 63) -}}
    {{- include "common.sentences" (list
        (list (and $check.create (not $check.controllerName))
            (printf "%s.controllerName is empty; set it to the controller that does the check." $key))
        (list (and $check.parameters (lt (len $check.parameters) 3))
            (printf "%s.parameters requires apiGroup, kind and name." $key))) -}}
  {{- end -}}
{{- end -}}
