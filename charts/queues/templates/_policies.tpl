{{- /* Data for the admission policies of the teams' namespaces. */ -}}

{{- /*
queues.policies.teams: JSON of what runs may use, by namespace; without the namespace default, which all users share. All
entries of a team are lists of names: name, queues, priorities ([]: not checked), podPriorities, accounts ("": none
set), allow (hostNetwork, autoscaling), tokenClusters.
*/ -}}
{{- define "queues.policies.teams" -}}
  {{- $priorities := include "queues.priorities" . | fromJson -}}
  {{- $found := dict -}}
  {{- range $name, $team := include "queues.restrictedTeams" . | fromJson -}}
    {{- $allowed := $team.priorities | default (keys $priorities | sortAlpha) -}}
    {{- $podPriorities := list -}}
    {{- range $allowed -}}
      {{- if (get $priorities .).pods }}{{ $podPriorities = append $podPriorities . }}{{ end -}}
    {{- end -}}
    {{- $allow := list -}}
    {{- if $team.allow.autoscaling }}{{ $allow = append $allow "autoscaling" }}{{ end -}}
    {{- if $team.allow.hostNetwork }}{{ $allow = append $allow "hostNetwork" }}{{ end -}}
    {{- $entry := dict "name" (list $name) "queues" (concat (list $team.queue) $team.allow.queues) "priorities" $allowed -}}
    {{- $_ := set $entry "podPriorities" $podPriorities -}}
    {{- $_ := set $entry "accounts" (concat (list "" "default" $team.serviceAccount.name) $team.allow.serviceAccounts | uniq) -}}
    {{- $_ := set $entry "allow" $allow -}}
    {{- $_ := set $entry "tokenClusters" (ternary $team.clusters list $team.k8sTokenAuth) -}}
    {{- if ne $team.namespace "default" }}{{ $_ := set $found $team.namespace $entry }}{{ end -}}
  {{- end -}}
  {{- $found | toJson -}}
{{- end -}}

{{- /* queues.policies.variables: YAML of the variables of the policy for runs. Takes the JSON of queues.policies.teams. */ -}}
{{- define "queues.policies.variables" -}}
# The team of the namespace. Every entry is a list, because the values of a map in CEL have one type.
- name: team
  expression: >-
    {{ . }}[request.namespace]
- name: ask
  expression: >-
    " Or ask your platform team (teams." + variables.team.name[0] + " in the values of charts/queues)."
- name: old
  expression: 'request.operation == "UPDATE" ? oldObject : dyn({"metadata": {}, "spec": {}})'
- name: labels
  expression: 'has(object.metadata.labels) ? object.metadata.labels : dyn({})'
- name: oldLabels
  expression: 'has(variables.old.metadata.labels) ? variables.old.metadata.labels : dyn({})'
- name: owners
  expression: 'has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : dyn([])'
- name: oldOwners
  expression: 'has(variables.old.metadata.ownerReferences) ? variables.old.metadata.ownerReferences : dyn([])'
# Whether an update changes nothing in the spec, or only stops or resumes the run.
- name: sameSpec
  expression: >-
    request.operation == "UPDATE"
    && object.spec.all(key, key == "suspend" || (key in oldObject.spec && object.spec[key] == oldObject.spec[key]))
    && oldObject.spec.all(key, key == "suspend" || key in object.spec)
# The spec of the Ray cluster, and what of it consists of pods.
- name: isCluster
  expression: object.kind == "RayCluster"
- name: ray
  expression: >-
    variables.isCluster ? object.spec
    : (has(object.spec.rayClusterSpec) ? object.spec.rayClusterSpec
    : (has(object.spec.rayClusterConfig) ? object.spec.rayClusterConfig : dyn({})))
- name: workers
  expression: 'has(variables.ray.workerGroupSpecs) ? variables.ray.workerGroupSpecs : dyn([])'
- name: heads
  expression: 'has(variables.ray.headGroupSpec) ? dyn([variables.ray.headGroupSpec]) : dyn([])'
- name: jobs
  expression: 'has(object.spec.replicatedJobs) ? object.spec.replicatedJobs : dyn([])'
- name: submitters
  expression: 'has(object.spec.submitterPodTemplate) ? dyn([object.spec.submitterPodTemplate]) : dyn([])'
- name: pods
  expression: >-
    (variables.heads.map(group, group.template) + variables.workers.map(group, group.template)
    + variables.jobs.map(job, job.template.spec.template) + variables.submitters).map(template, template.spec)
{{- end -}}
