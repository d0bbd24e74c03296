{{- define "queues.rules.clusterQueues" -}}
  {{- $wrong := list -}}
  {{- $flavors := include "queues.flavors" . | fromJson -}}
  {{- $cohorts := include "queues.cohorts" . | fromJson -}}
  {{- $values := dict "0" true -}}
  {{- range include "queues.priorities" . | fromJson }}{{ $_ := set $values (int64 .value | toString) true }}{{ end -}}
  {{- range $name, $queue := include "queues.clusterQueues" . | fromJson -}}
    {{- $key := printf "clusterQueues.%s" $name -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" $key "name" $name "max" 63)) -}}
    {{- if $queue.create -}}
      {{- if not $queue.quota -}}
        {{- $wrong = append $wrong (printf "%s.quota is empty; add a flavor and its slices, such as {v6e-4x4: {slices: 4}}." $key) -}}
      {{- end -}}
      {{- $wrong = concat $wrong (include "queues.rules.quota" (dict "key" (printf "%s.quota" $key) "quota" $queue.quota "flavors" $flavors "parent" $queue.cohort "parentKey" (printf "%s.cohort" $key) "queue" true "chipsAlone" $queue.chipsAlone) | fromJsonArray) -}}
      {{- if and $queue.cohort (not (hasKey $cohorts $queue.cohort)) -}}
        {{- $wrong = append $wrong (printf "%s.cohort: unknown cohort %q (available in cohorts: %s)." $key $queue.cohort (keys $cohorts | sortAlpha | join ", " | default "no entries")) -}}
      {{- end -}}
      {{- if and (hasKey $queue "fairWeight") (not $queue.cohort) -}}
        {{- $wrong = append $wrong (printf "%s.fairWeight is the queue's share of a cohort; it requires %s.cohort." $key $key) -}}
      {{- end -}}
      {{- $wrong = concat $wrong (include "queues.rules.preemption" (dict "key" (printf "%s.preemption" $key) "preemption" $queue.preemption "cohort" $queue.cohort "priorities" $.Values.priorities "distinct" (len $values)) | fromJsonArray) -}}
      {{- range $check, $on := $queue.admissionChecks -}}
        {{- if not (hasKey $.Values.admissionChecks $check) -}}
          {{- $wrong = append $wrong (printf "%s.admissionChecks: unknown admission check %q (available in admissionChecks: %s)." $key $check (keys $.Values.admissionChecks | sortAlpha | join ", " | default "no entries")) -}}
        {{- end -}}
        {{- range $on -}}
          {{- if not (hasKey $queue.quota .) -}}
            {{- $wrong = append $wrong (printf "%s.admissionChecks.%s: the quota has no flavor %q (it has: %s)." $key $check . (keys $queue.quota | sortAlpha | join ", " | default "no entries")) -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- /* Preemption policies that are invalid or without effect. `distinct` counts the different priorities, and 0. */ -}}
{{- define "queues.rules.preemption" -}}
  {{- $wrong := list -}}
  {{- $given := .preemption -}}
  {{- range $field := list "withinClusterQueue" "reclaimWithinCohort" "borrowWithinCohort" -}}
    {{- if and (eq (get $given $field) "LowerPriority") (lt $.distinct 2) -}}
      {{- $wrong = append $wrong (printf "%s.%s is LowerPriority, but all runs have the same priority; add an entry whose value is not 0 to priorities." $.key $field) -}}
    {{- end -}}
  {{- end -}}
  {{- if eq $given.borrowWithinCohort "LowerPriority" -}}
    {{- if not .cohort -}}
      {{- $wrong = append $wrong (printf "%s.borrowWithinCohort requires %s, the cohort to borrow from." .key (.key | replace ".preemption" ".cohort")) -}}
    {{- else if has $given.reclaimWithinCohort (list "" "Never") -}}
      {{- $wrong = append $wrong (printf "%s.borrowWithinCohort is LowerPriority; this requires LowerPriority or Any in %s.reclaimWithinCohort." .key .key) -}}
    {{- end -}}
  {{- end -}}
  {{- with $given.maxPriorityThreshold -}}
    {{- if not (hasKey $.priorities .) -}}
      {{- $wrong = append $wrong (printf "%s.maxPriorityThreshold: unknown priority %q (available in priorities: %s)." $.key . (keys $.priorities | sortAlpha | join ", " | default "no entries")) -}}
    {{- else if ne $given.borrowWithinCohort "LowerPriority" -}}
      {{- $wrong = append $wrong (printf "%s.maxPriorityThreshold limits which runs borrowing preempts; it requires %s.borrowWithinCohort: LowerPriority." $.key $.key) -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- define "queues.rules.cohorts" -}}
  {{- $wrong := list -}}
  {{- $flavors := include "queues.flavors" . | fromJson -}}
  {{- $cohorts := include "queues.cohorts" . | fromJson -}}
  {{- range $name, $cohort := $cohorts -}}
    {{- $key := printf "cohorts.%s" $name -}}
    {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" $key "name" $name "max" 63)) -}}
    {{- $wrong = concat $wrong (include "queues.rules.quota" (dict "key" (printf "%s.quota" $key) "quota" $cohort.quota "flavors" $flavors "parent" $cohort.parent "parentKey" (printf "%s.parent" $key) "queue" false) | fromJsonArray) -}}
    {{- if and $cohort.parent (not (hasKey $cohorts $cohort.parent)) -}}
      {{- $wrong = append $wrong (printf "%s.parent: unknown cohort %q (available in cohorts: %s)." $key $cohort.parent (keys $cohorts | sortAlpha | join ", ")) -}}
    {{- end -}}
    {{- if and (hasKey $cohort "fairWeight") (not $cohort.parent) -}}
      {{- $wrong = append $wrong (printf "%s.fairWeight is the cohort's share of its parent; it requires %s.parent." $key $key) -}}
    {{- end -}}
    {{- $path := list $name -}}
    {{- $at := $cohort.parent -}}
    {{- range $cohorts -}}
      {{- if and $at (not (has $at $path)) (hasKey $cohorts $at) -}}
        {{- $path = append $path $at -}}
        {{- $at = (get $cohorts $at).parent -}}
      {{- end -}}
    {{- end -}}
    {{- /* Report each cycle once, for its first cohort in alphabetical order. */ -}}
    {{- if and (eq $at $name) (eq $name (first (sortAlpha $path))) -}}
      {{- $wrong = append $wrong (printf "%s.parent: the parents of the cohorts form a cycle (%s); remove one parent." $key (append $path $name | join ", ")) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
