{{- /* queues.policies.variables: YAML of the variables of the policy for runs. Takes `root`, `teams` and `constants`. */ -}}
{{- define "queues.policies.variables" -}}
{{- $table := .root.Files.Get "run-policy.yaml" | fromYaml -}}
{{- /* A type of volumes that the table does not have is a field without a check. */ -}}
{{- $fields := deepCopy .root.Values.policies.fields -}}
{{- range .root.Values.policies.volumes -}}
  {{- if not (hasKey $table.shapes.volume.fields .) }}{{ $_ := set $fields "volume" (append (get $fields "volume" | default list)
      .) }}{{ end -}}
{{- end -}}
{{- $arguments := dict "table" $table "constants" .constants "fields" $fields "depth" 0 -}}
# The team of the namespace, and what its runs may use.
{{- range $key := list "name" "queues" "priorities" "podPriorities" "accounts" "allow" "tokenClusters" "buckets" "claims" "csiDrivers"
    "capabilities" }}
{{ include "queues.policies.table" (dict "teams" $.teams "key" $key) }}
{{- end }}
- name: team
  expression: variables.name[0]
- name: ask
  expression: >-
    " Or ask your platform team (teams." + variables.team + " in the values of charts/queues)."
- name: objectName
  expression: 'has(object.metadata.name) ? object.metadata.name : ""'
- name: old
  expression: 'request.operation == "UPDATE" ? oldObject : dyn({"metadata": {}, "spec": {}})'
- name: labels
  expression: 'has(object.metadata.labels) ? object.metadata.labels : dyn({})'
- name: oldLabels
  expression: 'has(variables.old.metadata.labels) ? variables.old.metadata.labels : dyn({})'
- name: annotations
  expression: 'has(object.metadata.annotations) ? object.metadata.annotations : dyn({})'
- name: oldAnnotations
  expression: 'has(variables.old.metadata.annotations) ? variables.old.metadata.annotations : dyn({})'
- name: owners
  expression: 'has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : dyn([])'
- name: finalizers
  expression: 'has(object.metadata.finalizers) ? object.metadata.finalizers : dyn([])'
- name: oldFinalizers
  expression: 'has(variables.old.metadata.finalizers) ? variables.old.metadata.finalizers : dyn([])'
- name: oldOwners
  expression: 'has(variables.old.metadata.ownerReferences) ? variables.old.metadata.ownerReferences : dyn([])'
# The spec of the Ray cluster, its path, and the one before the change.
- name: isCluster
  expression: object.kind == "RayCluster"
- name: rayKey
  expression: '{"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}[?object.kind].orValue("")'
- name: rayAt
  expression: 'variables.isCluster ? "spec" : "spec." + variables.rayKey'
- name: ray
  expression: >-
    variables.isCluster ? object.spec : (variables.rayKey in object.spec ? object.spec[variables.rayKey] : dyn({}))
- name: oldRay
  expression: >-
    variables.isCluster ? variables.old.spec : (variables.rayKey in variables.old.spec ? variables.old.spec[variables.rayKey] : dyn({}))
- name: autoscaling
  expression: has(variables.ray.enableInTreeAutoscaling) && variables.ray.enableInTreeAutoscaling
# Kueue suspends a RayService by its cluster.
- name: suspended
  expression: >-
    object.kind == "RayService" ? (has(variables.ray.suspend) && variables.ray.suspend) : (has(object.spec.suspend) && object.spec.suspend)
- name: wasSuspended
  expression: >-
    object.kind == "RayService" ? (has(variables.oldRay.suspend) && variables.oldRay.suspend)
    : (has(variables.old.spec.suspend) && variables.old.spec.suspend)
- name: suspendGiven
  expression: 'object.kind == "RayService" ? has(variables.ray.suspend) : has(object.spec.suspend)'
# Whether an update changes nothing in the spec, or only suspends the run.
- name: sameRay
  expression: >-
    object.kind == "RayService" && variables.ray.all(key, key == "suspend" || (key in variables.oldRay && variables.ray[key] ==
    variables.oldRay[key]))
    && variables.oldRay.all(key, key == "suspend" || key in variables.ray)
- name: sameSpec
  expression: >-
    request.operation == "UPDATE"
    && object.spec.all(key, key == "suspend" || (key == variables.rayKey && variables.sameRay) || (key in oldObject.spec && object.spec[key]
    == oldObject.spec[key]))
    && oldObject.spec.all(key, key == "suspend" || key in object.spec)
# The pod templates: `of`; their path, `at`; and whether they are a head, a host of a Ray cluster, or a host of a JobSet.
- name: job
  expression: >-
    object.kind == "JobSet" && has(object.spec.replicatedJobs) && size(object.spec.replicatedJobs) > 0 ?
    object.spec.replicatedJobs[0].template.spec : dyn({})
- name: oldGroups
  expression: 'has(variables.oldRay.workerGroupSpecs) ? variables.oldRay.workerGroupSpecs : dyn([])'
- name: pods
  expression: >-
    (has(variables.ray.headGroupSpec) ? dyn([{"at": dyn(variables.rayAt + ".headGroupSpec.template"), "role": dyn("head"), "of":
    variables.ray.headGroupSpec.template,
    "old": has(variables.oldRay.headGroupSpec) ? variables.oldRay.headGroupSpec.template : dyn({})}]) : dyn([]))
    + (has(variables.ray.workerGroupSpecs) ? variables.ray.workerGroupSpecs.transformList(i, group, {"at": dyn(variables.rayAt +
    ".workerGroupSpecs[" + string(i) + "].template"), "role": dyn("host"), "of": group.template,
    "old": i < size(variables.oldGroups) ? variables.oldGroups[i].template : dyn({})}) : dyn([]))
    + (has(variables.job.template) ? dyn([{"at": dyn("spec.replicatedJobs[0].template.spec.template"), "role": dyn("job"), "of":
    variables.job.template, "old": dyn({})}]) : dyn([]))
- name: metadataErrors
  expression: {{ include "queues.policies.errors" (merge (dict "shape" "object" "of" "object.metadata" "at" "\"metadata\"") $arguments) |
      toRawJson }}
{{- range $kind := list "RayJob" "RayService" "JobSet" }}
- name: errorsOf{{ $kind }}
  expression: {{ printf "object.kind != %q ? \"\" : %s" $kind (include "queues.policies.errors"
      (merge (dict "shape" $kind "of" "object.spec" "at" "\"spec\"") $arguments)) | toRawJson }}
{{- end }}
- name: errorsOfRay
  expression: {{ printf "object.kind == \"JobSet\" ? \"\" : %s" (include "queues.policies.errors"
      (merge (dict "shape" "ray" "of" "variables.ray" "at" "variables.rayAt") $arguments)) | toRawJson }}
- name: errorsOfPods
  expression: {{ printf "variables.pods.filter(pod, pod.of != pod.old).map(pod, %s).join(\"\")" (include "queues.policies.errors"
      (merge (dict "shape" "template" "of" "pod.of" "at" "pod.at") $arguments)) | toRawJson }}
{{- /* An expression of their own: with that of the pods, it would be too long. */}}
{{- $init := dict "shape" "container" "of" "v0" "at" "pod.at + \".spec.initContainers[\" + string(i0) + \"]\"" "depth" 1 }}
{{- $ofInit := include "queues.policies.errors" (merge $init $arguments) }}
{{- if has "initContainers" (get $fields "pod" | default list) }}{{ $ofInit = toJson "" }}{{ end }}
- name: errorsOfInitContainers
  expression: {{ printf (print "variables.pods.filter(pod, pod.of != pod.old && pod.of.?spec.?initContainers.orValue([]).size() <= "
      "8).map(pod, pod.of.?spec.?initContainers.orValue([]).transformList(i0, v0, " "%s).join(\"\")).join(\"\")") $ofInit | toRawJson }}
# Kueue, KubeRay and JobSet copy the pod templates into objects of their own.
{{- $size := include "queues.policies.size" (merge (dict "shape" "template" "of" "pod.of") $arguments) }}
{{- $initSize := include "queues.policies.size" (merge (dict "shape" "container" "of" "v0" "depth" 1) $arguments) }}
- name: templateSize
  expression: {{ printf (print "variables.pods.map(pod, %s + (pod.of.?spec.?initContainers.orValue([]).size() > 8 ? 0 : "
      "pod.of.?spec.?initContainers.orValue([]).map(v0, %s).sum())).sum()") $size $initSize | toRawJson }}
- name: errors
  expression: >-
    variables.metadataErrors + (variables.sameSpec ? "" : variables.errorsOfRayJob + variables.errorsOfRayService
    + variables.errorsOfJobSet + variables.errorsOfRay + variables.errorsOfPods + variables.errorsOfInitContainers)
{{- end -}}
