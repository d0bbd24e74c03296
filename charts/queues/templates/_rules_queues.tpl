{{- define "queues.rules.clusterQueues" -}}
  {{- /* The different priorities, and 0. */ -}}
  {{- $values := dict "0" true -}}
  {{- range .Values.priorities }}{{ $_ := set $values (int64 .value | toString) true }}{{ end -}}
  {{- range $name, $queue := .Values.clusterQueues -}}
    {{- $key := printf "clusterQueues.%s" $name -}}
    {{- include "queues.rules.name" (dict "key" $key "name" $name "max" 63) -}}
    {{- if not $queue.create }}{{ continue }}{{ end -}}
    {{- include "common.sentences" (list
        (list (not $queue.quota)
            (printf "%s.quota is empty; add a flavor and its slices, such as {v6e-4x4: {slices: 4}}." $key))
        (list (and (hasKey $queue "fairWeight") (not $queue.cohort))
            (printf "%s.fairWeight is the queue's share of a cohort; it requires %s.cohort." $key $key))) -}}
    {{- include "queues.rules.quota" (dict "root" $ "key" (printf "%s.quota" $key) "quota" $queue.quota
        "parent" $queue.cohort "parentKey" (printf "%s.cohort" $key) "queue" true "chipsAlone" $queue.chipsAlone) -}}
    {{- include "queues.rules.known"
        (dict "root" $ "key" (printf "%s.cohort" $key) "name" $queue.cohort "map" "cohorts" "optional" true) -}}
    {{- $of := printf "%s.preemption" $key -}}
    {{- $given := $queue.preemption -}}
    {{- range $field, $policy := pick $given "withinClusterQueue" "reclaimWithinCohort" "borrowWithinCohort" -}}
      {{- if and (eq $policy "LowerPriority") (lt (len $values) 2) -}}
        {{- printf (print "%s.%s is LowerPriority, but all runs have the same priority; add an entry whose value is not 0 to "
            "priorities.\n") $of $field -}}
      {{- end -}}
    {{- end -}}
    {{- $borrows := eq $given.borrowWithinCohort "LowerPriority" -}}
    {{- include "common.sentence" (list
        (list (and $borrows (not $queue.cohort))
            (printf "%s.borrowWithinCohort requires %s.cohort, the cohort to borrow from." $of $key))
        (list (and $borrows (has $given.reclaimWithinCohort (list "" "Never")))
            (printf "%s.borrowWithinCohort is LowerPriority; this requires LowerPriority or Any in %s.reclaimWithinCohort." $of $of))) -}}
    {{- with $given.maxPriorityThreshold -}}
      {{- include "queues.rules.known" (dict "root" $ "key" (printf "%s.maxPriorityThreshold" $of) "name" . "map" "priorities") -}}
      {{- if and (hasKey $.Values.priorities .) (not $borrows) -}}
        {{- printf (print "%s.maxPriorityThreshold limits which runs borrowing preempts; it requires %s.borrowWithinCohort: "
            "LowerPriority.\n") $of $of -}}
      {{- end -}}
    {{- end -}}
    {{- range $check, $on := $queue.admissionChecks -}}
      {{- include "queues.rules.known" (dict "root" $ "key" (printf "%s.admissionChecks" $key) "name" $check "map" "admissionChecks") -}}
      {{- range $on -}}
        {{- if not (hasKey $queue.quota .) -}}
          {{- $has := keys $queue.quota | sortAlpha | join ", " | default "no entries" -}}
          {{- printf "%s.admissionChecks.%s: the quota has no flavor %q (it has: %s).\n" $key $check . $has -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- define "queues.rules.cohorts" -}}
  {{- $cohorts := .Values.cohorts -}}
  {{- range $name, $cohort := $cohorts -}}
    {{- $key := printf "cohorts.%s" $name -}}
    {{- include "queues.rules.name" (dict "key" $key "name" $name "max" 63) -}}
    {{- include "queues.rules.quota" (dict "root" $ "key" (printf "%s.quota" $key) "quota" $cohort.quota
        "parent" $cohort.parent "parentKey" (printf "%s.parent" $key) "queue" false) -}}
    {{- include "queues.rules.known"
        (dict "root" $ "key" (printf "%s.parent" $key) "name" $cohort.parent "map" "cohorts" "optional" true) -}}
    {{- if and (hasKey $cohort "fairWeight") (not $cohort.parent) -}}
      {{- printf "%s.fairWeight is the cohort's share of its parent; it requires %s.parent.\n" $key $key -}}
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
      {{- printf "%s.parent: the parents of the cohorts form a cycle (%s); remove one parent.\n" $key (append $path $name | join ", ") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
