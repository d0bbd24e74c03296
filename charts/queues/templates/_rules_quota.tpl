{{- /* Problems of the quota of a ClusterQueue or a cohort. Takes `key` (…quota), `quota`, `flavors`, and `parent` (the cohort
to borrow from, or "") with its key, `parentKey`. For a ClusterQueue, also `queue` (true) and `chipsAlone`. */ -}}
{{- define "queues.rules.quota" -}}
  {{- $kinds := dict "chips" (list) "cpu" (list) "whole" (list) "labelled" (list) "others" (list) -}}
  {{- /* If a flavor is invalid, its kind is unknown, so the rules for the quota as a whole are skipped. */ -}}
  {{- $clear := true -}}
  {{- /* Resources of which the quota has more than 0: a further flavor can have 0, until no run holds it any more. */ -}}
  {{- $some := dict -}}
  {{- range $name, $quota := .quota -}}
    {{- $borrows := and $.parent (or (not (hasKey $quota "borrowing")) (int64 $quota.borrowing)) -}}
    {{- if or (int64 $quota.slices) $borrows }}{{ $_ := set $some (dig $name "resource" "" $.flavors) true }}{{ end -}}
  {{- end -}}
  {{- range $name, $quota := .quota -}}
    {{- $key := printf "%s.%s" $.key $name -}}
    {{- $flavor := get $.flavors $name -}}
    {{- if dig "resolved" "error" (not $flavor) ($flavor | default dict) }}{{ $clear = false }}{{ end -}}
    {{- include "queues.rules.known" (dict "key" $key "what" "flavor" "name" $name "map" "flavors" "entries" $.flavors) -}}
    {{- if not (dig "resolved" "error" (not $flavor) ($flavor | default dict)) -}}
      {{- $one := dict "key" $key "quota" $quota "flavor" $flavor "parent" $.parent "parentKey" $.parentKey "queue" $.queue "some" $some -}}
      {{- include "queues.rules.quotaLimits" $one -}}
      {{- include (ternary "queues.rules.quotaChips" "queues.rules.quotaCpu" (not (empty $flavor.resource))) $one -}}
      {{- $kind := ternary "chips" "cpu" (not (empty $flavor.resource)) -}}
      {{- $_ := set $kinds $kind (append (get $kinds $kind) $name) -}}
      {{- if and $quota.resources (not $flavor.resource) }}{{ $_ := set $kinds "others" (append $kinds.others $name) }}{{ end -}}
      {{- if $flavor.hostCpu }}{{ $_ := set $kinds "whole" (append $kinds.whole $name) }}{{ end -}}
      {{- if and (not $flavor.resource) (or $flavor.spec.nodeLabels $flavor.spec.nodeTaints) }}{{ $_ := set $kinds "labelled"
          (append $kinds.labelled $name) }}{{ end -}}
    {{- end -}}
  {{- end -}}
  {{- if not $clear -}}
  {{- else if and $kinds.whole (ne (len $kinds.whole) (len $kinds.chips)) -}}
    {{- printf "%s: only %s %s hostCpu and hostMemory; in one quota, all flavors with chips or none must have them.\n" .key
        (join ", " $kinds.whole) (ternary "has" "have" (eq (len $kinds.whole) 1)) -}}
  {{- else if and $kinds.whole $kinds.others -}}
    {{- printf (print "%s.%s.resources: the hosts of %s take all resources from that flavor (hostCpu, hostMemory), which "
        "has none of these; remove this key.\n") .key (first $kinds.others) (join ", " $kinds.whole) -}}
  {{- else if and $kinds.chips $kinds.labelled (not $kinds.whole) -}}
    {{- printf (print "%s.%s: hosts with chips also take cpu and memory from this flavor, and its node labels or taints "
        "would keep them off their nodes; remove the labels and taints of flavors.%s, or set hostCpu and "
        "hostMemory of the flavors with chips.\n") .key (first $kinds.labelled) (first $kinds.labelled) -}}
  {{- end -}}
  {{- if not (and .queue $clear) -}}
  {{- else if and $kinds.chips (not $kinds.cpu) (not .chipsAlone) -}}
    {{- printf (print "%s contains only chips, so a run that requests cpu or memory, as every Ray head does, would never "
        "start; add a flavor with accelerator: cpu, or set %s: true.\n") .key (.key | replace ".quota" ".chipsAlone") -}}
  {{- else if and $kinds.cpu .chipsAlone -}}
    {{- printf "%s is true, but %s has the cpu flavor %s; remove one of them.\n" (.key | replace ".quota" ".chipsAlone") .key
        (first $kinds.cpu) -}}
  {{- end -}}
  {{- if gt (len .quota) 64 -}}
    {{- printf "%s has %d flavors; Kueue accepts at most 64.\n" .key (len .quota) -}}
  {{- end -}}
{{- end -}}

{{- /* Borrowing and lending require a cohort. */ -}}
{{- define "queues.rules.quotaLimits" -}}
  {{- range $limit := list "borrowing" "lending" "cpuBorrowing" "memoryBorrowing" "cpuLending" "memoryLending" -}}
    {{- if and (hasKey $.quota $limit) (not $.parent) -}}
      {{- printf "%s.%s requires %s, the cohort to %s.\n" $.key $limit $.parentKey (ternary "borrow from" "lend to" (hasSuffix "orrowing"
          $limit)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- define "queues.rules.quotaChips" -}}
  {{- $quota := .quota -}}
  {{- range $field := list "cpu" "memory" "cpuBorrowing" "memoryBorrowing" "cpuLending" "memoryLending" "resources" -}}
    {{- if hasKey $quota $field -}}
      {{- printf (print "%s.%s: a flavor with chips is counted in slices; for the cpu and memory of its hosts, set hostCpu "
          "and hostMemory of the flavor.\n") $.key $field -}}
    {{- end -}}
  {{- end -}}
  {{- if not (hasKey $quota "slices") -}}
    {{- printf "%s.slices is missing; set it to the number of slices of %d chips.\n" .key (int64 .flavor.resolved.chips) -}}
  {{- else -}}
    {{- $slices := int64 $quota.slices -}}
    {{- if and .queue (not (hasKey .some .flavor.resource)) -}}
      {{- printf "%s.slices is 0 and the queue cannot borrow, so no run would ever start; set it to at least 1.\n" .key -}}
    {{- end -}}
    {{- if and .queue (hasKey $quota "lending") (gt (int64 $quota.lending) $slices) -}}
      {{- printf "%s.lending is %d; it must be at most slices, which is %d.\n" .key (int64 $quota.lending) $slices -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- define "queues.rules.quotaCpu" -}}
  {{- $quota := .quota -}}
  {{- range $field := list "slices" "borrowing" "lending" -}}
    {{- if hasKey $quota $field -}}
      {{- printf "%s.%s: a cpu flavor is counted in cpu and memory, not in slices; remove this key.\n" $.key $field -}}
    {{- end -}}
  {{- end -}}
  {{- range $of := list "cpu" "memory" -}}
    {{- $bad := "" -}}
    {{- range $field := list $of (printf "%sBorrowing" $of) (printf "%sLending" $of) -}}
      {{- if hasKey $quota $field -}}
        {{- $example := ternary "64 or 500m" "256Gi" (eq $of "cpu") -}}
        {{- $amount := dict "key" (printf "%s.%s" $.key $field) "quantity" (get $quota $field) "example" $example -}}
        {{- $bad = print $bad (include "queues.rules.quantity" $amount) -}}
      {{- end -}}
    {{- end -}}
    {{- $bad -}}
    {{- $lending := get $quota (printf "%sLending" $of) -}}
    {{- if not (hasKey $quota $of) -}}
      {{- printf "%s.%s is missing; heads and hosts take %s from it; write it like %s.\n" $.key $of $of (ternary "64" "256Gi"
          (eq $of "cpu")) -}}
    {{- else if and (not $bad) $lending $.queue (gt (include "common.quantity.number" $lending | float64) (include "common.quantity.number"
        (get $quota $of) | float64)) -}}
      {{- printf "%s.%sLending is %v; it must be at most %s, which is %v.\n" $.key $of $lending $of (get $quota $of) -}}
    {{- end -}}
  {{- end -}}
  {{- range $resource, $amount := $quota.resources -}}
    {{- if or (has $resource (list "cpu" "memory")) (not (regexMatch "^[a-z0-9]([-a-z0-9./]*[a-z0-9])?$" $resource)) -}}
      {{- printf "%s.resources: %q is not the name of another resource; write it like ephemeral-storage.\n" $.key $resource -}}
    {{- end -}}
  {{- end -}}
  {{- include "queues.rules.limits" (dict "key" (printf "%s.resources" .key) "limits" $quota.resources) -}}
{{- end -}}
