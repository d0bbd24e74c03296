{{- /* Fields that the cluster does not allow to change, or should not allow to change: `helm upgrade` fails with a sentence
before it changes anything. Without a cluster (helm template), lookups return nothing, so nothing is compared. */ -}}

{{- /* A sentence for each object with such a field that would change. */ -}}
{{- define "queues.rules.fixed" -}}
  {{- $kueue := "kueue.x-k8s.io/v1beta2" -}}
  {{- range $name, $flavor := .created.flavors -}}
    {{- $fields := dict -}}
    {{- range list "nodeLabels" "nodeTaints" "tolerations" "topologyName" -}}
      {{- $_ := set $fields (printf "spec.%s" .) (get $flavor.spec .) -}}
    {{- end -}}
    {{- $way := printf (print "Admitted runs hold the previous machines, and Kueue rejects the change if the flavor has a "
        "topology. Use a new key for the flavor, or set flavors.%s.versioned: true.") $name -}}
    {{- include "queues.rules.change" (dict "root" $ "key" (printf "flavors.%s" $name) "apiVersion" $kueue "kind" "ResourceFlavor"
        "name" $flavor.object "fields" $fields "way" $way) -}}
  {{- end -}}
  {{- range $name, $topology := .created.topologies -}}
    {{- $levels := list -}}
    {{- range $topology.levels }}{{ $levels = append $levels (dict "nodeLabel" .) }}{{ end -}}
    {{- include "queues.rules.change" (dict "root" $ "key" (printf "topologies.%s" $name) "apiVersion" $kueue "kind" "Topology"
        "name" $name "fields" (dict "spec.levels" $levels) "way" "Kueue rejects this change. Use a new key for the topology.") -}}
  {{- end -}}
  {{- range $name, $check := .created.admissionChecks -}}
    {{- include "queues.rules.change" (dict "root" $ "key" (printf "admissionChecks.%s" $name) "apiVersion" $kueue
        "kind" "AdmissionCheck" "name" $name "fields" (dict "spec.controllerName" $check.controllerName)
        "way" "Kueue rejects this change. Use a new key for the check.") -}}
  {{- end -}}
  {{- range $name, $priority := .created.priorities -}}
    {{- if not $priority.pods }}{{ continue }}{{ end -}}
    {{- include "queues.rules.change" (dict "root" $ "key" (printf "priorities.%s" $name) "apiVersion" "scheduling.k8s.io/v1"
        "kind" "PriorityClass" "name" $name "fields" (dict "value" (int64 $priority.value))
        "way" "Kubernetes rejects this change. Use a new key for the priority.") -}}
  {{- end -}}
  {{- range $name, $team := .Values.teams -}}
    {{- $way := printf (print "Kueue rejects this change. Set teams.%s.queue to a new name, or delete the LocalQueue first when no "
        "run waits in it.") $name -}}
    {{- include "queues.rules.change" (dict "root" $ "key" (printf "teams.%s" $name) "apiVersion" $kueue "kind" "LocalQueue"
        "namespace" $team.namespace "name" $team.queue "fields" (dict "spec.clusterQueue" $team.clusterQueue) "way" $way) -}}
  {{- end -}}
{{- end -}}

{{- /* The sentences for one object. Takes `root`, `key` in the values, apiVersion, kind, namespace and name, the new `fields`
by path, and the `way` to make the change. */ -}}
{{- define "queues.rules.change" -}}
  {{- $live := lookup .apiVersion .kind (.namespace | default "") .name -}}
  {{- if $live -}}
    {{- $owner := dig "metadata" "annotations" dict $live -}}
    {{- $other := and (get $owner "meta.helm.sh/release-name") (not (include "queues.ours" (dict "release" .root.Release "live" $live))) -}}
    {{- range $path, $new := .fields -}}
      {{- $old := $live -}}
      {{- range splitList "." $path }}{{ $old = get ($old | default dict) . }}{{ end -}}
      {{- $changes := ne ($old | default "" | toJson) ($new | default "" | toJson) -}}
      {{- if and $changes $other -}}
        {{- $way := ternary (printf "Set %s.queue to another name." $.key)
            (printf "Use another key, or set %s.create: false to use it as it is." $.key) (eq $.kind "LocalQueue") -}}
        {{- printf "%s: the %s %s belongs to the release %s in the namespace %s, and would change. %s\n" $.key $.kind $.name
            (get $owner "meta.helm.sh/release-name") (get $owner "meta.helm.sh/release-namespace") $way -}}
      {{- else if $changes -}}
        {{- printf "%s: %s of the %s %s would change from %s to %s. %s\n" $.key (last (splitList "." $path)) $.kind $.name
            ($old | default "none" | toJson) ($new | default "none" | toJson) $.way -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* A sentence for each namespace that belongs to a team of another release. Two releases would grant the members of two
teams rights there, and their policies would refuse each other's runs. */ -}}
{{- define "queues.rules.namespaces" -}}
  {{- $owners := dict -}}
  {{- range (lookup "kueue.x-k8s.io/v1beta2" "LocalQueue" "" "").items -}}
    {{- $team := dig "labels" "slipway.dev/team" "" .metadata -}}
    {{- $release := dig "annotations" "meta.helm.sh/release-name" "" .metadata -}}
    {{- if and $team $release (not (include "queues.ours" (dict "release" $.Release "live" .))) -}}
      {{- $of := printf "the team %s of the release %s in the namespace %s" $team $release
          (dig "annotations" "meta.helm.sh/release-namespace" "" .metadata) -}}
      {{- $_ := set $owners .metadata.namespace $of -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $team := .Values.teams -}}
    {{- $live := lookup "v1" "Namespace" "" $team.namespace -}}
    {{- $label := dig "metadata" "labels" "slipway.dev/team" $name $live -}}
    {{- if hasKey $owners $team.namespace -}}
      {{- printf "teams.%s.namespace: the namespace %s belongs to %s; choose another namespace.\n" $name $team.namespace
          (get $owners $team.namespace) -}}
    {{- else if and (ne $label $name) (not (include "queues.ours" (dict "release" $.Release "live" $live))) -}}
      {{- printf (print "teams.%s.namespace: the namespace %s has the label slipway.dev/team=%s, so it belongs to another "
          "team; choose another namespace. If there is no such team any more, remove the label: kubectl label "
          "namespace %s slipway.dev/team-\n") $name $team.namespace $label $team.namespace -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
