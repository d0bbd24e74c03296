{{- /* Definitions that several manifests and rules use. They add the defaults to the entries of the maps. */ -}}

{{- /* queues.entries: JSON of a map of entries, each with all its keys. Takes `entries` and `defaults`. */ -}}
{{- define "queues.entries" -}}
  {{- $all := dict -}}
  {{- $defaults := .defaults -}}
  {{- range $name, $entry := .entries -}}
    {{- $_ := set $all $name (mergeOverwrite (deepCopy $defaults) (deepCopy $entry)) -}}
  {{- end -}}
  {{- $all | toJson -}}
{{- end -}}

{{- define "queues.clusterQueues" -}}
  {{- $preemption := dict "withinClusterQueue" "" "reclaimWithinCohort" "" "borrowWithinCohort" "" "maxPriorityThreshold" "" -}}
  {{- $fungibility := dict "whenCanBorrow" "" "whenCanPreempt" "" -}}
  {{- $defaults := dict "create" true "quota" (dict) "chipsAlone" false "cohort" "" "queueingStrategy" "BestEffortFIFO" "preemption" $preemption "flavorFungibility" $fungibility "admissionChecks" (dict) "namespaceSelector" (dict) "admissionFairSharing" false "stopPolicy" "None" -}}
  {{- include "queues.entries" (dict "entries" .Values.clusterQueues "defaults" $defaults) -}}
{{- end -}}

{{- define "queues.cohorts" -}}
  {{- include "queues.entries" (dict "entries" .Values.cohorts "defaults" (dict "create" true "parent" "" "quota" (dict))) -}}
{{- end -}}

{{- define "queues.priorities" -}}
  {{- include "queues.entries" (dict "entries" .Values.priorities "defaults" (dict "create" true "value" 0 "description" "" "pods" false "globalDefault" false)) -}}
{{- end -}}

{{- define "queues.topologies" -}}
  {{- include "queues.entries" (dict "entries" .Values.topologies "defaults" (dict "create" true "levels" (list))) -}}
{{- end -}}

{{- define "queues.admissionChecks" -}}
  {{- include "queues.entries" (dict "entries" .Values.admissionChecks "defaults" (dict "create" true "controllerName" "" "parameters" (dict))) -}}
{{- end -}}

{{- /* queues.teams: JSON of the teams, with the defaults of namespace, queue and service account. */ -}}
{{- define "queues.teams" -}}
  {{- include "queues.teamsOf" (dict "root" . "entries" .Values.teams) -}}
{{- end -}}

{{- /* queues.teamsOf: the same of any `entries`. */ -}}
{{- define "queues.teamsOf" -}}
  {{- $account := dict "name" "" "create" true "annotations" (dict) "imagePullSecrets" (list) -}}
  {{- $defaults := dict "namespace" "" "createNamespace" true "labels" (dict) "annotations" (dict) "clusterQueue" "" "queue" "" "members" (dict) "leads" (dict) "viewers" (dict) "serviceAccount" $account "clusters" (list) "createClusters" false "k8sTokenAuth" false "helm" false "deleteRuns" true "portForward" false "secrets" false "shell" false "resourceQuota" (dict) "limitRange" (dict) "networkPolicy" true "podSecurity" "" "stopPolicy" "None" "priorities" (list) "allow" (dict "hostNetwork" nil "privileged" nil "autoscaling" false "queues" (list) "serviceAccounts" (list) "buckets" (list) "claims" (list) "csiDrivers" (list) "capabilities" (list)) -}}
  {{- $teams := include "queues.entries" (dict "entries" .entries "defaults" $defaults) | fromJson -}}
  {{- range $name, $team := $teams -}}
    {{- $_ := set $team "namespace" ($team.namespace | default $name) -}}
    {{- $_ := set $team "queue" ($team.queue | default $name) -}}
    {{- $_ := set $team.serviceAccount "name" ($team.serviceAccount.name | default $name) -}}
    {{- $_ := set $team "podSecurity" ($team.podSecurity | default $.root.Values.podSecurity.enforce) -}}
    {{- range $one := list "hostNetwork" "privileged" -}}
      {{- if kindIs "invalid" (get $team.allow $one) }}{{ $_ := set $team.allow $one (eq $team.podSecurity "privileged") }}{{ end -}}
    {{- end -}}
  {{- end -}}
  {{- $teams | toJson -}}
{{- end -}}

{{- /*
queues.hardLimits: JSON of the hard limits of a team's namespace: the defaults of all teams and the team's own, without
those that are null. All users share the namespace default, so the defaults do not apply there. Takes `root`, `team`.
*/ -}}
{{- define "queues.hardLimits" -}}
  {{- $limits := dict -}}
  {{- range $source := list (ternary dict .root.Values.resourceQuota (eq .team.namespace "default")) .team.resourceQuota -}}
    {{- range $resource, $amount := $source -}}
      {{- if kindIs "invalid" $amount }}{{ $_ := unset $limits $resource }}{{ else }}{{ $_ := set $limits $resource (include "common.quantity" $amount) }}{{ end -}}
    {{- end -}}
  {{- end -}}
  {{- $limits | toJson -}}
{{- end -}}

{{- /* queues.limitRange: JSON of the team's LimitRange by type: of all teams, and the team's own. Takes `root`, `team`. */ -}}
{{- define "queues.limitRange" -}}
  {{- $types := dict -}}
  {{- range $source := list (ternary dict .root.Values.limitRange (eq .team.namespace "default")) .team.limitRange -}}
    {{- range $type, $fields := $source -}}
      {{- $made := dict -}}
      {{- range $field, $amounts := $fields -}}
        {{- range $resource, $amount := $amounts -}}
          {{- $_ := set $made $field (merge (dict $resource (include "common.quantity" $amount)) (get $made $field | default dict)) -}}
        {{- end -}}
      {{- end -}}
      {{- if $made }}{{ $_ := set $types $type $made }}{{ else }}{{ $_ := unset $types $type }}{{ end -}}
    {{- end -}}
  {{- end -}}
  {{- $types | toJson -}}
{{- end -}}

{{- /* queues.ordered: JSON list of the flavors of a quota, sorted by `order`, then by name. Takes the quota. */ -}}
{{- define "queues.ordered" -}}
  {{- $keys := list -}}
  {{- range $name, $quota := . -}}
    {{- $keys = append $keys (printf "%06d %s" (int64 $quota.order) $name) -}}
  {{- end -}}
  {{- $names := list -}}
  {{- range $keys | sortAlpha }}{{ $names = append $names (last (splitList " " .)) }}{{ end -}}
  {{- $names | toJson -}}
{{- end -}}

{{- /* queues.labels: the labels of an object. Takes `root`, `name` and, for the objects of a team, `team`. */ -}}
{{- define "queues.labels" -}}
{{- with .root.Values.commonLabels }}
{{- toYaml . }}
{{ end }}
{{- include "common.labels" (dict "chart" .root.Chart "release" .root.Release "name" .name "component" "queues") }}
{{- with .team }}
slipway.dev/team: {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* queues.metadata: labels and annotations of an object. Takes what queues.labels takes, `labels` and `annotations`. */ -}}
{{- define "queues.metadata" -}}
labels:
  {{- merge (dict) (.labels | default dict) (include "queues.labels" . | fromYaml) | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /*
queues.makesNamespace: "true" if this release creates the team's namespace: it is not default, kube-* or the namespace
of the release, and it does not exist in the cluster, or this release created it. Takes `root`, `team` and `live`, the
namespace in the cluster, if any.
*/ -}}
{{- define "queues.makesNamespace" -}}
  {{- $release := .root.Release -}}
  {{- $name := .team.namespace -}}
  {{- if and .team.createNamespace (not (regexMatch "^(default|kube-.*)$" $name)) (ne $name $release.Namespace) -}}
    {{- if or (not .live) (include "queues.ours" (dict "release" $release "live" .live)) }}true{{ end -}}
  {{- end -}}
{{- end -}}

{{- /* queues.ours: "true" if Helm created the object `live` of the cluster for this `release`. */ -}}
{{- define "queues.ours" -}}
  {{- $owner := dig "metadata" "annotations" dict .live -}}
  {{- if and (eq (get $owner "meta.helm.sh/release-name") .release.Name) (eq (get $owner "meta.helm.sh/release-namespace") .release.Namespace) }}true{{ end -}}
{{- end -}}
