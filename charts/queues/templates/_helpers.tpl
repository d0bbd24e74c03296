{{- /* Definitions that several manifests and rules use. */ -}}

{{- /* queues.resolve: add the defaults to the entries of the values, so that each has all its keys, and to flavors what
_flavors.tpl adds; and set in the root context `created`, the entries of each map without create: false. Renders nothing. */ -}}
{{- define "queues.resolve" -}}
  {{- $_ := set . "created" dict -}}
  {{- range $map, $defaults := .defaults.entries -}}
    {{- include "queues.addDefaults" (dict "entries" (get $.Values $map) "defaults" $defaults) -}}
    {{- $created := dict -}}
    {{- range $name, $entry := get $.Values $map }}{{ if $entry.create }}{{ $_ := set $created $name $entry }}{{ end }}{{ end -}}
    {{- $_ := set $.created $map $created -}}
  {{- end -}}
  {{- include "queues.resolveTeams" (dict "root" . "teams" .Values.teams) -}}
  {{- include "queues.resolveFlavors" . -}}
{{- end -}}

{{- /* queues.addDefaults: add `defaults` to each of the `entries`. Renders nothing. */ -}}
{{- define "queues.addDefaults" -}}
  {{- range $name, $entry := .entries -}}
    {{- $_ := set $.entries $name (mergeOverwrite (deepCopy $.defaults) $entry) -}}
  {{- end -}}
{{- end -}}

{{- /* queues.resolveTeams: set the namespace, queue, service account and rights of `teams`. Renders nothing. */ -}}
{{- define "queues.resolveTeams" -}}
  {{- range $name, $team := .teams -}}
    {{- $_ := set $team "namespace" ($team.namespace | default $name) -}}
    {{- $_ := set $team "queue" ($team.queue | default $name) -}}
    {{- $_ := set $team.serviceAccount "name" ($team.serviceAccount.name | default $name) -}}
    {{- $_ := set $team "podSecurity" ($team.podSecurity | default $.root.Values.podSecurity.enforce) -}}
    {{- /* By role: what a member, a lead and a viewer may do besides reading, and the people of the role as RBAC names them. */ -}}
    {{- $rights := dict "member" (dict "run" true) "lead" (dict "run" true) "viewer" (dict "run" false) -}}
    {{- range list "createClusters" "deleteRuns" "portForward" "secrets" "shell" -}}
      {{- $_ := set $rights.member . (get $team .) -}}
      {{- $_ := set $rights.lead . true -}}
      {{- $_ := set $rights.viewer . false -}}
    {{- end -}}
    {{- range $role, $may := $rights -}}
      {{- $subjects := list -}}
      {{- range $person, $kind := get $team (printf "%ss" $role) -}}
        {{- $subject := dict "kind" $kind "name" $person "apiGroup" "rbac.authorization.k8s.io" -}}
        {{- if eq $kind "ServiceAccount" -}}
          {{- $parts := splitList "/" $person -}}
          {{- $namespace := ternary (first $parts) $team.namespace (eq (len $parts) 2) -}}
          {{- $subject = dict "kind" $kind "name" (last $parts) "namespace" $namespace -}}
        {{- end -}}
        {{- $subjects = append $subjects $subject -}}
      {{- end -}}
      {{- $_ := set $may "subjects" $subjects -}}
    {{- end -}}
    {{- $_ := set $team "rights" $rights -}}
    {{- range $right := list "hostNetwork" "privileged" -}}
      {{- if kindIs "invalid" (get $team.allow $right) }}{{ $_ := set $team.allow $right (eq $team.podSecurity "privileged") }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* queues.hardLimits: YAML of the hard limits of a team's namespace: the defaults of all teams and the team's own, without
those that are null. All users share the namespace default, so the defaults do not apply there. Takes `root`, `team`. */ -}}
{{- define "queues.hardLimits" -}}
  {{- $limits := dict -}}
  {{- range $source := list (ternary dict .root.Values.resourceQuota (eq .team.namespace "default")) .team.resourceQuota -}}
    {{- range $resource, $amount := $source -}}
      {{- if kindIs "invalid" $amount }}{{ $_ := unset $limits $resource }}{{ else }}{{ $_ := set $limits $resource
          (include "common.quantity" $amount) }}{{ end -}}
    {{- end -}}
  {{- end -}}
  {{- with $limits }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* queues.limitRange: YAML list of the limits of the team's LimitRange: of all teams, and the team's own. Takes `root`, `team`. */ -}}
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
  {{- $limits := list -}}
  {{- range $type, $fields := $types }}{{ $limits = append $limits (merge (dict "type" $type) $fields) }}{{ end -}}
  {{- with $limits }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* queues.ordered: the flavors of a quota, separated by spaces, sorted by `order`, then by name. Takes the quota. */ -}}
{{- define "queues.ordered" -}}
  {{- $keys := list -}}
  {{- range $name, $quota := . -}}
    {{- $keys = append $keys (printf "%06d %s" (int64 $quota.order) $name) -}}
  {{- end -}}
  {{- $names := list -}}
  {{- range $keys | sortAlpha }}{{ $names = append $names (last (splitList " " .)) }}{{ end -}}
  {{- join " " $names -}}
{{- end -}}

{{- /* queues.makesNamespace: "true" if this release creates the team's namespace: it is not default, kube-* or the namespace
of the release, and it does not exist in the cluster, or this release created it. Takes `root`, `team` and `live`, the
namespace in the cluster, if any. */ -}}
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
  {{- if and (eq (get $owner "meta.helm.sh/release-name") .release.Name) (eq (get $owner "meta.helm.sh/release-namespace")
      .release.Namespace) }}true{{ end -}}
{{- end -}}
