{{- /*
The data of the admission policy for runs, and the CEL that follows from the table run-policy.yaml.

The errors of an object are one string, with a line for each. A list would need flatten, which an API server of
Kubernetes 1.34 does not accept.
*/ -}}

{{- /*
queues.policies.teams: JSON of what runs may use, by namespace; without the namespace default, which all users share. All
entries of a team are lists of texts. Those of `like` are CEL, the value of most teams, in which `team` is the name.
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
    {{- range $one := list "autoscaling" "hostNetwork" "privileged" -}}
      {{- if get $team.allow $one }}{{ $allow = append $allow $one }}{{ end -}}
    {{- end -}}
    {{- if ne $team.podSecurity "restricted" }}{{ $allow = append $allow "root" }}{{ end -}}
    {{- $entry := dict "name" (list $name) "queues" (concat (list $team.queue) $team.allow.queues) "priorities" $allowed -}}
    {{- $_ := set $entry "podPriorities" $podPriorities -}}
    {{- $_ := set $entry "accounts" (concat (list "" "default" $team.serviceAccount.name) $team.allow.serviceAccounts | uniq) -}}
    {{- $_ := set $entry "allow" $allow -}}
    {{- $_ := set $entry "tokenClusters" (ternary $team.clusters list $team.k8sTokenAuth) -}}
    {{- $_ := set $entry "buckets" (concat $.Values.policies.buckets $team.allow.buckets | uniq) -}}
    {{- $_ := set $entry "claims" $team.allow.claims -}}
    {{- $_ := set $entry "capabilities" $team.allow.capabilities -}}
    {{- if ne $team.namespace "default" }}{{ $_ := set $found $team.namespace $entry }}{{ end -}}
  {{- end -}}
  {{- $found | toJson -}}
{{- end -}}

{{- /*
queues.policies.table: YAML of one variable: an entry of the teams, by namespace. An expression may have at most 100,000
characters, so that it lists only the teams that differ from the first. Takes `teams` and `key`.
*/ -}}
{{- define "queues.policies.table" -}}
  {{- $first := dict -}}
  {{- $others := dict -}}
  {{- range $namespace, $team := .teams -}}
    {{- $value := get $team $.key -}}
    {{- if not $first }}{{ $first = dict "value" $value }}{{ end -}}
    {{- if ne (toJson $value) (toJson $first.value) }}{{ $_ := set $others $namespace $value }}{{ end -}}
  {{- end -}}
- name: {{ .key }}
  expression: {{ printf "dyn(%s)[?request.namespace].orValue(dyn(%s))" (toRawJson $others) (toRawJson $first.value) | toRawJson }}
{{- end -}}

{{- /* queues.policies.chips: JSON list of the extended resources that the table of accelerators has. */ -}}
{{- define "queues.policies.chips" -}}
  {{- $chips := list -}}
  {{- range $name, $row := .Values.common.accelerators -}}
    {{- with include "common.resource" $row }}{{ $chips = append $chips . }}{{ end -}}
  {{- end -}}
  {{- $chips | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- /* queues.policies.constants: JSON of what replaces a name in << >> in the table: CEL, or with .text a text. */ -}}
{{- define "queues.policies.constants" -}}
  {{- $policies := .Values.policies -}}
  {{- $chips := include "queues.policies.chips" . | fromJsonArray -}}
  {{- /* The keys of the labels that charts render for a slice, and of the flavors. */ -}}
  {{- $labels := list "cloud.google.com/gke-tpu-accelerator" "cloud.google.com/gke-tpu-topology" "cloud.google.com/gke-accelerator" "node.kubernetes.io/instance-type" "cloud.google.com/gke-spot" "cloud.google.com/reservation-name" "cloud.google.com/gke-flex-start" -}}
  {{- $taints := list "cloud.google.com/gke-spot" "cloud.google.com/gke-queued" -}}
  {{- range $name, $flavor := include "queues.flavors" . | fromJson -}}
    {{- $labels = concat $labels (keys $flavor.nodeLabels) -}}
    {{- range $key, $taint := $flavor.taints }}{{ $taints = append $taints $taint.key }}{{ end -}}
    {{- range $key, $toleration := $flavor.tolerations }}{{ $taints = append $taints $toleration.key }}{{ end -}}
  {{- end -}}
  {{- $listed := not (empty $policies.buckets) -}}
  {{- range $name, $team := include "queues.teams" . | fromJson -}}
    {{- if $team.allow.buckets }}{{ $listed = true }}{{ end -}}
  {{- end -}}
  {{- $lists := dict "nodeLabels" (concat $labels $policies.nodeLabels) "tolerations" (concat $taints $policies.tolerations) "chips" $chips -}}
  {{- range $key := list "runtimeClasses" "labelPrefixes" "annotationPrefixes" "gatewayClasses" "csiDrivers" "volumes" -}}
    {{- $_ := set $lists $key (get $policies $key) -}}
  {{- end -}}
  {{- $constants := dict "bucketsListed" (toJson $listed) -}}
  {{- range $key, $list := $lists -}}
    {{- $sorted := $list | uniq | sortAlpha -}}
    {{- $_ := set $constants $key (toRawJson $sorted) -}}
    {{- $_ := set $constants (printf "%s.text" $key) (join ", " $sorted | default "none") -}}
  {{- end -}}
  {{- range $key, $bound := $policies.bounds }}{{ $_ := set $constants (printf "bounds.%s" $key) (int64 $bound | toString) }}{{ end -}}
  {{- $constants | toJson -}}
{{- end -}}

{{- /* queues.policies.filled: a text of the table without names in << >>. Takes `text`, `constants`, and `item`, the CEL of
the map that has the field. */ -}}
{{- define "queues.policies.filled" -}}
  {{- $text := .text | replace "<<item>>" .item -}}
  {{- range $name, $value := .constants }}{{ $text = replace (printf "<<%s>>" $name) $value $text }}{{ end -}}
  {{- $text -}}
{{- end -}}

{{- /*
queues.policies.errors: CEL of the errors of a map, a text with a line for each: "" if there is none. Takes `table`,
`constants`, `fields` (the values policies.fields); `shape`; `at`, the CEL of the path; `of`, the CEL of the map; and
`depth`, the number of lists that it is in.
*/ -}}
{{- define "queues.policies.errors" -}}
  {{- $in := . -}}
  {{- $shape := get .table.shapes .shape -}}
  {{- $more := get .fields .shape | default list -}}
  {{- $known := concat (keys $shape.fields) $more | uniq | sortAlpha | toRawJson -}}
  {{- $unknown := printf "%s must be absent: " "" -}}
  {{- $key := printf " Values of charts/queues that allow it: policies.fields.%s.\n" .shape -}}
  {{- $reason := .table.refusal | toRawJson -}}
  {{- with $shape.refused }}{{ $reason = printf "%s[?key].orValue(%s)" (toRawJson .) $reason }}{{ end -}}
  {{- $errors := list (printf "%s.filter(key, !(key in %s)).map(key, %s + \".\" + key + %s + %s + %s).join(\"\")" .of $known .at ($unknown | toRawJson) $reason ($key | toRawJson)) -}}
  {{- range $name, $field := $shape.fields -}}
    {{- if not (has $name $more) -}}
    {{- $self := printf "%s.%s" $in.of $name -}}
    {{- $path := printf "%s + \".%s\"" $in.at $name -}}
    {{- $message := "" -}}
    {{- with $field.message -}}
      {{- $message = include "queues.policies.filled" (dict "text" . "constants" $in.constants "item" "") -}}
    {{- end -}}
    {{- $message = printf " %s.%s\n" $message (empty $field.key | ternary "" (printf " Values of charts/queues that allow it: %s." $field.key)) | toRawJson -}}
    {{- if $field.required -}}
      {{- $errors = append $errors (printf "has(%s) ? \"\" : %s + \" is missing.\\n\"" $self $path) -}}
    {{- end -}}
    {{- $check := "" -}}
    {{- with $field.check -}}
      {{- $check = include "queues.policies.filled" (dict "text" . "constants" $in.constants "item" $in.of) -}}
      {{- $check = regexReplaceAll "\\bself\\b" $check $self -}}
    {{- end -}}
    {{- if $field.entries -}}
      {{- $check = regexReplaceAll "\\bvalue\\b" $check (printf "%s[name]" $self) -}}
      {{- $errors = append $errors (printf "!has(%s) ? \"\" : size(%s) > 64 ? %s + \" must have at most 64 keys.\\n\" : %s.filter(name, !(%s)).map(name, %s + \"[\" + name + \"]\" + %s).join(\"\")" $self $self $path $self $check $path $message) -}}
    {{- else if $check -}}
      {{- $errors = append $errors (printf "!has(%s) || (%s) ? \"\" : %s + %s" $self $check $path $message) -}}
    {{- end -}}
    {{- with $field.shape -}}
      {{- $below := merge (dict "shape" . "of" $self "at" $path) (omit $in "shape" "of" "at") -}}
      {{- $errors = append $errors (printf "!has(%s) ? \"\" : %s" $self (include "queues.policies.errors" $below)) -}}
    {{- end -}}
    {{- with $field.items -}}
      {{- $index := printf "i%d" (int $in.depth) -}}
      {{- $item := printf "v%d" (int $in.depth) -}}
      {{- $below := merge (dict "shape" . "of" $item "at" (printf "%s + \"[\" + string(%s) + \"]\"" $path $index) "depth" (add 1 (int $in.depth))) (omit $in "shape" "of" "at" "depth") -}}
      {{- $tooMany := printf " must have at most %d items.\n" (int $field.most) | toRawJson -}}
      {{- $errors = append $errors (printf "!has(%s) ? \"\" : size(%s) > %d ? %s + %s : %s.transformList(%s, %s, %s).join(\"\")" $self $self (int $field.most) $path $tooMany $self $index $item (include "queues.policies.errors" $below)) -}}
    {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- printf "[%s].join(\"\")" (join ", " $errors) -}}
{{- end -}}

{{- /* queues.policies.variables: YAML of the variables of the policy for runs. Takes `root` and `teams`. */ -}}
{{- define "queues.policies.variables" -}}
{{- $table := .root.Files.Get "run-policy.yaml" | fromYaml -}}
{{- /* A type of volumes that the table does not have is a field without a check. */ -}}
{{- $fields := deepCopy .root.Values.policies.fields -}}
{{- range .root.Values.policies.volumes -}}
  {{- if not (hasKey $table.shapes.volume.fields .) }}{{ $_ := set $fields "volume" (append (get $fields "volume" | default list) .) }}{{ end -}}
{{- end -}}
{{- $arguments := dict "table" $table "constants" (include "queues.policies.constants" .root | fromJson) "fields" $fields "depth" 0 -}}
# The team of the namespace, and what its runs may use.
{{- range $key := list "name" "queues" "priorities" "podPriorities" "accounts" "allow" "tokenClusters" "buckets" "claims" "capabilities" }}
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
    object.kind == "RayService" && variables.ray.all(key, key == "suspend" || (key in variables.oldRay && variables.ray[key] == variables.oldRay[key]))
    && variables.oldRay.all(key, key == "suspend" || key in variables.ray)
- name: sameSpec
  expression: >-
    request.operation == "UPDATE"
    && object.spec.all(key, key == "suspend" || (key == variables.rayKey && variables.sameRay) || (key in oldObject.spec && object.spec[key] == oldObject.spec[key]))
    && oldObject.spec.all(key, key == "suspend" || key in object.spec)
# The pod templates: `of`; their path, `at`; and whether they are a head, a host of a Ray cluster, or a host of a JobSet.
- name: job
  expression: >-
    object.kind == "JobSet" && has(object.spec.replicatedJobs) && size(object.spec.replicatedJobs) > 0 ? object.spec.replicatedJobs[0].template.spec : dyn({})
- name: oldGroups
  expression: 'has(variables.oldRay.workerGroupSpecs) ? variables.oldRay.workerGroupSpecs : dyn([])'
- name: pods
  expression: >-
    (has(variables.ray.headGroupSpec) ? dyn([{"at": dyn(variables.rayAt + ".headGroupSpec.template"), "role": dyn("head"), "of": variables.ray.headGroupSpec.template,
    "old": has(variables.oldRay.headGroupSpec) ? variables.oldRay.headGroupSpec.template : dyn({})}]) : dyn([]))
    + (has(variables.ray.workerGroupSpecs) ? variables.ray.workerGroupSpecs.transformList(i, group, {"at": dyn(variables.rayAt + ".workerGroupSpecs[" + string(i) + "].template"), "role": dyn("host"), "of": group.template,
    "old": i < size(variables.oldGroups) ? variables.oldGroups[i].template : dyn({})}) : dyn([]))
    + (has(variables.job.template) ? dyn([{"at": dyn("spec.replicatedJobs[0].template.spec.template"), "role": dyn("job"), "of": variables.job.template, "old": dyn({})}]) : dyn([]))
- name: metadataErrors
  expression: {{ include "queues.policies.errors" (merge (dict "shape" "object" "of" "object.metadata" "at" "\"metadata\"") $arguments) | toRawJson }}
{{- range $kind := list "RayJob" "RayService" "JobSet" }}
- name: errorsOf{{ $kind }}
  expression: {{ printf "object.kind != %q ? \"\" : %s" $kind (include "queues.policies.errors" (merge (dict "shape" $kind "of" "object.spec" "at" "\"spec\"") $arguments)) | toRawJson }}
{{- end }}
- name: errorsOfRay
  expression: {{ printf "object.kind == \"JobSet\" ? \"\" : %s" (include "queues.policies.errors" (merge (dict "shape" "ray" "of" "variables.ray" "at" "variables.rayAt") $arguments)) | toRawJson }}
- name: errorsOfPods
  expression: {{ printf "variables.pods.filter(pod, pod.of != pod.old).map(pod, %s).join(\"\")" (include "queues.policies.errors" (merge (dict "shape" "template" "of" "pod.of" "at" "pod.at") $arguments)) | toRawJson }}
- name: errors
  expression: >-
    variables.metadataErrors + (variables.sameSpec ? "" : variables.errorsOfRayJob + variables.errorsOfRayService
    + variables.errorsOfJobSet + variables.errorsOfRay + variables.errorsOfPods)
{{- end -}}
