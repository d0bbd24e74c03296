{{- /* Problems of the quota of a ClusterQueue or a cohort. Takes `root`, `key` (…quota), `quota`, and `parent` (the
cohort to borrow from, or "") with its key, `parentKey`. For a ClusterQueue, also `queue` (true) and `chipsAlone`. */ -}}
{{- define "queues.rules.quota" -}}
  {{- $kinds := dict "chips" list "cpu" list "whole" list "labelled" list "others" list -}}
  {{- /* If a flavor is invalid, its kind is unknown, so the rules for the quota as a whole are skipped. */ -}}
  {{- $clear := true -}}
  {{- /* Resources of which the quota has more than 0: a further flavor can have 0, until no run holds it any more. */ -}}
  {{- $some := dict -}}
  {{- range $name, $quota := .quota -}}
    {{- $borrows := and $.parent (or (not (hasKey $quota "borrowing")) (int64 $quota.borrowing)) -}}
    {{- if or (int64 $quota.slices) $borrows }}{{ $_ := set $some (dig $name "resource" "" $.root.Values.flavors) true }}{{ end -}}
  {{- end -}}
  {{- range $name, $quota := .quota -}}
    {{- $key := printf "%s.%s" $.key $name -}}
    {{- $flavor := get $.root.Values.flavors $name | default dict -}}
    {{- include "queues.rules.known" (dict "root" $.root "key" $key "name" $name "map" "flavors") -}}
    {{- if dig "resolved" "error" (not $flavor) $flavor -}}
      {{- $clear = false -}}
    {{- else -}}
      {{- $chips := not (empty $flavor.resource) -}}
      {{- /* Borrowing and lending require a cohort. */ -}}
      {{- $limits := pick $quota "borrowing" "lending" "cpuBorrowing" "memoryBorrowing" "cpuLending" "memoryLending" -}}
      {{- range $limit, $_ := ternary $limits dict (empty $.parent) -}}
        {{- $verb := ternary "borrow from" "lend to" (hasSuffix "orrowing" $limit) -}}
        {{- printf "%s.%s requires %s, the cohort to %s.\n" $key $limit $.parentKey $verb -}}
      {{- end -}}
      {{- include (ternary "queues.rules.quotaChips" "queues.rules.quotaCpu" $chips)
          (dict "key" $key "quota" $quota "flavor" $flavor "queue" $.queue "some" $some) -}}
      {{- range $kind, $is := dict "chips" $chips "cpu" (not $chips) "whole" $flavor.hostCpu "others" (and $quota.resources (not $chips))
          "labelled" (and (not $chips) (or $flavor.spec.nodeLabels $flavor.spec.nodeTaints)) -}}
        {{- if $is }}{{ $_ := set $kinds $kind (append (get $kinds $kind) $name) }}{{ end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if $clear -}}
    {{- $whole := join ", " $kinds.whole -}}
    {{- $labelled := first $kinds.labelled -}}
    {{- $alone := .key | replace ".quota" ".chipsAlone" -}}
    {{- include "common.sentence" (list
        (list (and $kinds.whole (ne (len $kinds.whole) (len $kinds.chips)))
            (printf "%s: only %s %s hostCpu and hostMemory; in one quota, all flavors with chips or none must have them." .key
            $whole (ternary "has" "have" (eq (len $kinds.whole) 1))))
        (list (and $kinds.whole $kinds.others)
            (printf (print "%s.%s.resources: the hosts of %s take all resources from that flavor (hostCpu, hostMemory), which "
            "has none of these; remove this key.") .key (first $kinds.others) $whole))
        (list (and $kinds.chips $kinds.labelled (not $kinds.whole))
            (printf (print "%s.%s: hosts with chips also take cpu and memory from this flavor, and its node labels or taints "
            "would keep them off their nodes; remove the labels and taints of flavors.%s, or set hostCpu and "
            "hostMemory of the flavors with chips.") .key $labelled $labelled))) -}}
    {{- include "common.sentences" (list
        (list (and .queue $kinds.chips (not $kinds.cpu) (not .chipsAlone))
            (printf (print "%s contains only chips, so a run that requests cpu or memory, as every Ray head does, would never "
            "start; add a flavor with accelerator: cpu, or set %s: true.") .key $alone))
        (list (and .queue $kinds.cpu .chipsAlone)
            (printf "%s is true, but %s has the cpu flavor %s; remove one of them." $alone .key (first $kinds.cpu)))) -}}
  {{- end -}}
  {{- if gt (len .quota) 64 -}}
    {{- printf "%s has %d flavors; Kueue accepts at most 64.\n" .key (len .quota) -}}
  {{- end -}}
{{- end -}}

{{- define "queues.rules.quotaChips" -}}
  {{- range $field, $_ := pick .quota "cpu" "memory" "cpuBorrowing" "memoryBorrowing" "cpuLending" "memoryLending" "resources" -}}
    {{- printf (print "%s.%s: a flavor with chips is counted in slices; for the cpu and memory of its hosts, set hostCpu "
        "and hostMemory of the flavor.\n") $.key $field -}}
  {{- end -}}
  {{- $slices := int64 .quota.slices -}}
  {{- if not (hasKey .quota "slices") -}}
    {{- printf "%s.slices is missing; set it to the number of slices of %d chips.\n" .key (int64 .flavor.resolved.chips) -}}
  {{- else if .queue -}}
    {{- include "common.sentences" (list
        (list (not (hasKey .some .flavor.resource))
            (printf "%s.slices is 0 and the queue cannot borrow, so no run would ever start; set it to at least 1." .key))
        (list (gt (int64 .quota.lending) $slices)
            (printf "%s.lending is %d; it must be at most slices, which is %d." .key (int64 .quota.lending) $slices))) -}}
  {{- end -}}
{{- end -}}

{{- define "queues.rules.quotaCpu" -}}
  {{- $quota := .quota -}}
  {{- range $field, $_ := pick $quota "slices" "borrowing" "lending" -}}
    {{- printf "%s.%s: a cpu flavor is counted in cpu and memory, not in slices; remove this key.\n" $.key $field -}}
  {{- end -}}
  {{- range $of, $example := dict "cpu" "64 or 500m" "memory" "256Gi" -}}
    {{- $bad := "" -}}
    {{- range $field, $amount := pick $quota $of (printf "%sBorrowing" $of) (printf "%sLending" $of) -}}
      {{- $key := printf "%s.%s" $.key $field -}}
      {{- $bad = print $bad (include "queues.rules.quantity" (dict "key" $key "quantity" $amount "example" $example)) -}}
    {{- end -}}
    {{- $bad -}}
    {{- $amount := get $quota $of -}}
    {{- $lending := get $quota (printf "%sLending" $of) -}}
    {{- if not (hasKey $quota $of) -}}
      {{- printf "%s.%s is missing; heads and hosts take %s from it; write it like %s.\n" $.key $of $of (splitList " " $example | first) -}}
    {{- else if and (not $bad) $lending $.queue (include "common.quantity.exceeds" (list $lending $amount)) -}}
      {{- printf "%s.%sLending is %v; it must be at most %s, which is %v.\n" $.key $of $lending $of $amount -}}
    {{- end -}}
  {{- end -}}
  {{- range $resource, $amount := $quota.resources -}}
    {{- if or (has $resource (list "cpu" "memory")) (not (regexMatch "^[a-z0-9]([-a-z0-9./]*[a-z0-9])?$" $resource)) -}}
      {{- printf "%s.resources: %q is not the name of another resource; write it like ephemeral-storage.\n" $.key $resource -}}
    {{- end -}}
  {{- end -}}
  {{- include "queues.rules.limits" (dict "key" (printf "%s.resources" .key) "limits" $quota.resources) -}}
{{- end -}}
