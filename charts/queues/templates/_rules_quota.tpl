{{- /*
A quota of a ClusterQueue or a cohort: JSON list of sentences; of `key` (…quota), `quota`, `flavors`, and `parent`
(whom it borrows from, or "") with `parentKey`. Of a queue besides: `queue` true and `chipsAlone`.
*/ -}}
{{- define "queues.rules.quota" -}}
  {{- $wrong := list -}}
  {{- $kinds := dict "chips" (list) "cpu" (list) "whole" (list) "labelled" (list) -}}
  {{- /* What a flavor is that is wrong nobody knows, so nothing is said of the quota as a whole. */ -}}
  {{- $clear := true -}}
  {{- range $name, $quota := .quota -}}
    {{- $key := printf "%s.%s" $.key $name -}}
    {{- $flavor := get $.flavors $name -}}
    {{- if or (not $flavor) (dig "resolved" "error" "" ($flavor | default dict)) }}{{ $clear = false }}{{ end -}}
    {{- if not $flavor -}}
      {{- $wrong = append $wrong (printf "%s: there is no flavor %s; flavors has %s." $key $name (keys $.flavors | sortAlpha | join ", " | default "none")) -}}
    {{- else if not $flavor.resolved.error -}}
      {{- $one := dict "key" $key "quota" $quota "flavor" $flavor "parent" $.parent "parentKey" $.parentKey "queue" $.queue -}}
      {{- $wrong = concat $wrong (include "queues.rules.quotaLimits" $one | fromJsonArray) -}}
      {{- $wrong = concat $wrong (include (ternary "queues.rules.quotaChips" "queues.rules.quotaCpu" (not (empty $flavor.resource))) $one | fromJsonArray) -}}
      {{- $kind := ternary "chips" "cpu" (not (empty $flavor.resource)) -}}
      {{- $_ := set $kinds $kind (append (get $kinds $kind) $name) -}}
      {{- if $flavor.hostCpu }}{{ $_ := set $kinds "whole" (append $kinds.whole $name) }}{{ end -}}
      {{- if and (not $flavor.resource) (or $flavor.spec.nodeLabels $flavor.spec.nodeTaints) }}{{ $_ := set $kinds "labelled" (append $kinds.labelled $name) }}{{ end -}}
    {{- end -}}
  {{- end -}}
  {{- if not $clear -}}
  {{- else if and $kinds.whole (ne (len $kinds.whole) (len $kinds.chips)) -}}
    {{- $wrong = append $wrong (printf "%s: of its flavors only %s %s hostCpu and hostMemory; in one quota all flavors with chips have them, or none." .key (join ", " $kinds.whole) (ternary "has" "have" (eq (len $kinds.whole) 1))) -}}
  {{- else if and $kinds.chips $kinds.labelled (not $kinds.whole) -}}
    {{- $wrong = append $wrong (printf "%s.%s: hosts with chips take cpu and memory from this flavor too, and its node labels or taints would keep them off their nodes; remove those from flavors.%s, or give the flavors with chips hostCpu and hostMemory." .key (first $kinds.labelled) (first $kinds.labelled)) -}}
  {{- end -}}
  {{- if not (and .queue $clear) -}}
  {{- else if and $kinds.chips (not $kinds.cpu) (not .chipsAlone) -}}
    {{- $wrong = append $wrong (printf "%s has chips alone, so a run that asks for cpu or memory, as every Ray head does, would never start; add a flavor with accelerator: cpu, or set %s: true." .key (.key | replace ".quota" ".chipsAlone")) -}}
  {{- else if and $kinds.cpu .chipsAlone -}}
    {{- $wrong = append $wrong (printf "%s is true, but %s has the cpu flavor %s; remove one of the two." (.key | replace ".quota" ".chipsAlone") .key (first $kinds.cpu)) -}}
  {{- end -}}
  {{- if gt (len .quota) 64 -}}
    {{- $wrong = append $wrong (printf "%s has %d flavors; Kueue takes 64." .key (len .quota)) -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- /* Borrowing and lending, which need somebody to borrow from. */ -}}
{{- define "queues.rules.quotaLimits" -}}
  {{- $wrong := list -}}
  {{- range $limit := list "borrowing" "lending" "cpuBorrowing" "memoryBorrowing" "cpuLending" "memoryLending" -}}
    {{- if and (hasKey $.quota $limit) (not $.parent) -}}
      {{- $wrong = append $wrong (printf "%s.%s needs %s, to %s." $.key $limit $.parentKey (ternary "borrow from" "lend to" (hasSuffix "orrowing" $limit))) -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- define "queues.rules.quotaChips" -}}
  {{- $wrong := list -}}
  {{- $quota := .quota -}}
  {{- range $field := list "cpu" "memory" "cpuBorrowing" "memoryBorrowing" "cpuLending" "memoryLending" -}}
    {{- if hasKey $quota $field -}}
      {{- $wrong = append $wrong (printf "%s.%s: a flavor with chips is counted in slices; for the hosts' own cpu and memory, set hostCpu and hostMemory of the flavor." $.key $field) -}}
    {{- end -}}
  {{- end -}}
  {{- if not (hasKey $quota "slices") -}}
    {{- $wrong = append $wrong (printf "%s.slices is missing; it says how many slices of %d chips there are." .key (int64 .flavor.resolved.chips)) -}}
  {{- else -}}
    {{- $slices := int64 $quota.slices -}}
    {{- if and .queue (eq $slices 0) (or (not .parent) (and (hasKey $quota "borrowing") (eq (int64 $quota.borrowing) 0))) -}}
      {{- $wrong = append $wrong (printf "%s.slices is 0, and nothing can be borrowed: no run would ever start; give at least 1." .key) -}}
    {{- end -}}
    {{- if and .queue (hasKey $quota "lending") (gt (int64 $quota.lending) $slices) -}}
      {{- $wrong = append $wrong (printf "%s.lending is %d; it must be at most slices, %d." .key (int64 $quota.lending) $slices) -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- define "queues.rules.quotaCpu" -}}
  {{- $wrong := list -}}
  {{- $quota := .quota -}}
  {{- range $field := list "slices" "borrowing" "lending" -}}
    {{- if hasKey $quota $field -}}
      {{- $wrong = append $wrong (printf "%s.%s: a flavor of cpu is counted in cpu and memory, not in slices." $.key $field) -}}
    {{- end -}}
  {{- end -}}
  {{- range $of := list "cpu" "memory" -}}
    {{- $bad := list -}}
    {{- range $field := list $of (printf "%sBorrowing" $of) (printf "%sLending" $of) -}}
      {{- if hasKey $quota $field -}}
        {{- $bad = append $bad (include "queues.rules.quantity" (dict "key" (printf "%s.%s" $.key $field) "quantity" (get $quota $field) "of" $of)) -}}
      {{- end -}}
    {{- end -}}
    {{- $bad = compact $bad -}}
    {{- $lending := get $quota (printf "%sLending" $of) -}}
    {{- if not (hasKey $quota $of) -}}
      {{- $bad = append $bad (printf "%s.%s is missing; heads and hosts take %s from it, such as %s." $.key $of $of (ternary "64" "256Gi" (eq $of "cpu"))) -}}
    {{- else if and (not $bad) $lending $.queue (gt (include "queues.number" $lending | int64) (include "queues.number" (get $quota $of) | int64)) -}}
      {{- $bad = append $bad (printf "%s.%sLending is %s; it must be at most %s, %s." $.key $of $lending $of (get $quota $of)) -}}
    {{- end -}}
    {{- $wrong = concat $wrong $bad -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}
