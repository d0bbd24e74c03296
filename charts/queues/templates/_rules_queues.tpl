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
        {{- $wrong = append $wrong (printf "%s.quota is empty; name a flavor and its slices, such as {v6e-4x4: {slices: 4}}." $key) -}}
      {{- end -}}
      {{- $wrong = concat $wrong (include "queues.rules.quota" (dict "key" (printf "%s.quota" $key) "quota" $queue.quota "flavors" $flavors "parent" $queue.cohort "parentKey" (printf "%s.cohort" $key) "queue" true "chipsAlone" $queue.chipsAlone) | fromJsonArray) -}}
      {{- if and $queue.cohort (not (hasKey $cohorts $queue.cohort)) -}}
        {{- $wrong = append $wrong (printf "%s.cohort: there is no cohort %s; cohorts has %s." $key $queue.cohort (keys $cohorts | sortAlpha | join ", " | default "none")) -}}
      {{- end -}}
      {{- if and (hasKey $queue "fairWeight") (not $queue.cohort) -}}
        {{- $wrong = append $wrong (printf "%s.fairWeight is its share of a cohort; it needs %s.cohort." $key $key) -}}
      {{- end -}}
      {{- $wrong = concat $wrong (include "queues.rules.preemption" (dict "key" (printf "%s.preemption" $key) "preemption" $queue.preemption "cohort" $queue.cohort "priorities" $.Values.priorities "distinct" (len $values)) | fromJsonArray) -}}
      {{- range $check, $on := $queue.admissionChecks -}}
        {{- if not (hasKey $.Values.admissionChecks $check) -}}
          {{- $wrong = append $wrong (printf "%s.admissionChecks: there is no admission check %s; admissionChecks has %s." $key $check (keys $.Values.admissionChecks | sortAlpha | join ", " | default "none")) -}}
        {{- end -}}
        {{- range $on -}}
          {{- if not (hasKey $queue.quota .) -}}
            {{- $wrong = append $wrong (printf "%s.admissionChecks.%s: the quota has no flavor %s; it has %s." $key $check . (keys $queue.quota | sortAlpha | join ", " | default "none")) -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- /* What cannot be preempted, or never would be; `distinct` counts the priorities that differ, 0 (no class) included. */ -}}
{{- define "queues.rules.preemption" -}}
  {{- $wrong := list -}}
  {{- $given := .preemption -}}
  {{- range $field := list "withinClusterQueue" "reclaimWithinCohort" "borrowWithinCohort" -}}
    {{- if and (eq (get $given $field) "LowerPriority") (lt $.distinct 2) -}}
      {{- $wrong = append $wrong (printf "%s.%s is LowerPriority, but all runs have the same priority; give priorities a class whose value is not 0." $.key $field) -}}
    {{- end -}}
  {{- end -}}
  {{- if eq $given.borrowWithinCohort "LowerPriority" -}}
    {{- if not .cohort -}}
      {{- $wrong = append $wrong (printf "%s.borrowWithinCohort needs %s, to borrow from." .key (.key | replace ".preemption" ".cohort")) -}}
    {{- else if has $given.reclaimWithinCohort (list "" "Never") -}}
      {{- $wrong = append $wrong (printf "%s.borrowWithinCohort is LowerPriority; then %s.reclaimWithinCohort must be LowerPriority or Any." .key .key) -}}
    {{- end -}}
  {{- end -}}
  {{- with $given.maxPriorityThreshold -}}
    {{- if not (hasKey $.priorities .) -}}
      {{- $wrong = append $wrong (printf "%s.maxPriorityThreshold: there is no priority %s; priorities has %s." $.key . (keys $.priorities | sortAlpha | join ", " | default "none")) -}}
    {{- else if ne $given.borrowWithinCohort "LowerPriority" -}}
      {{- $wrong = append $wrong (printf "%s.maxPriorityThreshold limits whom borrowing preempts; it needs %s.borrowWithinCohort: LowerPriority." $.key $.key) -}}
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
      {{- $wrong = append $wrong (printf "%s.parent: there is no cohort %s; cohorts has %s." $key $cohort.parent (keys $cohorts | sortAlpha | join ", ")) -}}
    {{- end -}}
    {{- if and (hasKey $cohort "fairWeight") (not $cohort.parent) -}}
      {{- $wrong = append $wrong (printf "%s.fairWeight is its share of a parent cohort; it needs %s.parent." $key $key) -}}
    {{- end -}}
    {{- $path := list $name -}}
    {{- $at := $cohort.parent -}}
    {{- range $cohorts -}}
      {{- if and $at (not (has $at $path)) (hasKey $cohorts $at) -}}
        {{- $path = append $path $at -}}
        {{- $at = (get $cohorts $at).parent -}}
      {{- end -}}
    {{- end -}}
    {{- /* Told once, of the first in the alphabet. */ -}}
    {{- if and (eq $at $name) (eq $name (first (sortAlpha $path))) -}}
      {{- $wrong = append $wrong (printf "%s.parent: the cohorts are each other's parents (%s); one of them must have none." $key (append $path $name | join ", ")) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
