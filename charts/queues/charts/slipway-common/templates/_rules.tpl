{{- /* common.rules: a sentence in a line for each problem of the values; of `values`, `kind` (ray-job, job-set, or cluster
for a release of charts/ray-cluster, serve for one of charts/serve), `name` and `named` (the key that gives the name). Most
rules are in values.schema.json, which Helm evaluates first. Here are those that calculate or compare keys; for runs, the
launcher has them in launcher/config/checks/cluster_rules.py and charts/_rules.json. */ -}}
{{- define "common.rules" -}}
{{- $v := .values }}
{{- $longLived := eq .kind "cluster" }}
{{- $values := mergeOverwrite (deepCopy (omit $v "common" "global")) (dict "run" (dict "name" .name)) }}
{{- $ofSlices := include "common.rules.accelerators" (dict "values" $v "longLived" $longLived) }}
{{- $ofSlices = print $ofSlices (include "common.rules.alternatives" $v) }}
{{- $groups := list }}
{{- if not $ofSlices }}
{{- $resolved := dict "values" $v "longLived" $longLived "split" (ne .kind "job-set") }}
{{- include "common.slices" (set $resolved "into" $resolved) }}
{{- $groups = $resolved.slices }}
{{- $_ := set $values "accelerator" (first $groups).slice.resolved }}
{{- end }}
{{- include "common.rules.name" . }}
{{- include "common.rules.entries" $v }}
{{- $ofSlices }}
{{- $names := list }}
{{- range $groups }}
{{- include "common.rules.group" (set . "names" $names) }}
{{- include "common.rules.labels" (dict "group" . "nodeSelector" $v.worker.nodeSelector) }}
{{- $names = append $names .group }}
{{- end }}
{{- $cluster := $v.cluster | default dict }}
{{- $min := int64 $cluster.minSlices }}
{{- $max := int64 $cluster.maxSlices }}
{{- $topology := eq $v.slice.placement "topology" }}
{{- include "common.sentences" (list
    (list (and $topology (eq (dig "accelerator" "kind" "" $values) "cpu"))
        (printf "slice.placement: topology is for slices of chips on node pools of their own; %s does not need it." $v.slice.accelerator))
    (list (gt (len $groups) 17)
        (printf (print "%s: the Ray cluster has %d pod sets, including its head, and Kueue accepts at most 18; use fewer groups%s.")
        (ternary "cluster.groups" "slice.count" (not (empty $cluster.groups))) (add 1 (len $groups))
        (ternary ", or slice.placement: exclusive" "" $topology)))
    (list (and $v.from (eq (first (splitList "@" $v.from)) .name))
        (printf "from: %q is the run itself; a run that is submitted again resumes from its own checkpoints." $v.from))
    (list (and $longLived $max (gt $min $max))
        (printf "cluster.minSlices is %d; it must be at most cluster.maxSlices, %d." $min $max))) }}
{{- if eq .kind "serve" }}{{ include "common.rules.serve" $values }}{{ end }}
{{- include "common.rules.sizes" $values }}
{{- end -}}

{{- /* common.rules.group: problems of a group of hosts, as common.slices gives it. `names` are those of the groups before it. */ -}}
{{- define "common.rules.group" -}}
  {{- include "common.rules.reservation" (dict "key" .key "of" .slice "labels" "worker.nodeSelector") -}}
  {{- $reserved := and (ne .key "slice") (has .group (list "slice" "head" "headgroup")) -}}
  {{- include "common.sentences" (list
      (list .slice.resolved.error .slice.resolved.error)
      (list (and (eq .slice.resolved.kind "cpu") (not (and .cpu .memory)))
          (printf "%s.%s is empty; a %s host has no chips to request, so set the cpu and the memory that it needs."
          (ternary "worker" .key (eq .key "slice")) (ternary "cpu" "memory" (empty .cpu)) .slice.accelerator))
      (list (or $reserved (not (regexMatch "^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$" .group)))
          (printf (print "%s: %q is not a valid group name; use lowercase letters, digits and hyphens, and not slice, head or "
          "headgroup, which are reserved.") .key .group))
      (list (and (has .group .names) (ne .group "slice"))
          (printf "%s: there are two groups %q, one of them a slice of a larger group; rename this one." .key .group))) -}}
{{- end -}}

{{- /* common.rules.reservation: problems of how `of`, a slice or a flavor below `key`, gets machines. `labels`: the key for more. */ -}}
{{- define "common.rules.reservation" -}}
  {{- $reservation := .of.reservation -}}
  {{- $reserved := eq .of.provisioning "reservation" -}}
  {{- $valid := or (not $reservation) (regexMatch (include "common.pattern.kubernetesName" .) $reservation) -}}
  {{- include "common.sentences" (list
      (list (and $reserved (not $reservation)) (printf "%s.provisioning is reservation; %s.reservation must name it." .key .key))
      (list (and $reservation (not $reserved))
          (printf "%s.reservation requires %s.provisioning: reservation; it is %s." .key .key .of.provisioning))
      (list (contains "/" $reservation)
          (printf (print "%s.reservation: %q is a path; write only the reservation's name, and its project in %s "
          "(cloud.google.com/reservation-project: PROJECT).") .key $reservation .labels))
      (list (not (or $valid (contains "/" $reservation)))
          (printf (print "%s.reservation: %q is not a valid Kubernetes name; use at most 63 lowercase letters, digits and hyphens, with "
          "no hyphen at either end.") .key $reservation))) -}}
{{- end -}}

{{- /* common.rules.alternatives: problems of slice.any. One object can have only alternatives with the same hosts, and
launcher submits one object after another for the rest. Takes the values. */ -}}
{{- define "common.rules.alternatives" -}}
  {{- $slice := .slice -}}
  {{- $deadline := int64 .run.deadlineSeconds -}}
  {{- range $index, $one := .slice.any -}}
    {{- $provisioning := .provisioning | default $slice.provisioning -}}
    {{- $other := list -}}
    {{- range $key, $value := omit $one "provisioning" "reservation" -}}
      {{- if ne ($value | toString) (get $slice $key | toString) }}{{ $other = append $other $key }}{{ end -}}
    {{- end -}}
    {{- include "common.sentences" (list
        (list (and (eq $provisioning "flex-start") (gt $deadline 604800))
            (printf "run.deadlineSeconds is %d; nodes of flex-start run for at most 7 days, 604800 seconds." $deadline))
        (list $other
            (printf (print "slice.any: alternative %d sets %s; a Helm release can have alternatives that differ in provisioning "
            "and reservation. launcher submit tries others one after another.") (add 1 $index) (join ", " $other)))
        (list (and (not $other) (eq $provisioning "reservation") (not (.reservation | default $slice.reservation)))
            (printf "slice.any: alternative %d has provisioning: reservation; reservation must name it." (add 1 $index)))) -}}
  {{- end -}}
{{- end -}}

{{- /* common.rules.accelerators: contradictions in the rows of accelerators that `values` use; also takes `longLived`. */ -}}
{{- define "common.rules.accelerators" -}}
  {{- $used := list .values.slice.accelerator -}}
  {{- if .longLived }}{{ range .values.cluster.groups }}{{ $used = append $used .accelerator }}{{ end }}{{ end -}}
  {{- range $name := uniq $used -}}
    {{- $row := get $.values.common.accelerators $name | default dict -}}
    {{- $machines := $row.machineTypes | default dict -}}
    {{- $shapes := $row.topologies | default dict -}}
    {{- with $row.larger }}{{ $shapes = set (deepCopy $shapes) "4x4x4x1" .machineTypes }}{{ end -}}
    {{- range $shape, $types := $shapes -}}
      {{- $key := printf "common.accelerators.%s.%s" $name (ternary (printf "topologies.%s" $shape) "larger"
          (hasKey ($row.topologies | default dict) $shape)) -}}
      {{- if not (regexMatch "^[1-9][0-9]{0,3}(x[1-9][0-9]{0,3})*$" $shape) -}}
        {{- printf "%s: %q is not a valid topology; write it like 4x4.\n" $key $shape -}}
      {{- else -}}
        {{- $chips := 1 -}}
        {{- range splitList "x" $shape }}{{ $chips = mul $chips (int64 .) }}{{ end -}}
        {{- range $types -}}
          {{- if not (hasKey $machines .) -}}
            {{- printf "%s: %q is not in common.accelerators.%s.machineTypes; add it there with its chips per host.\n" $key . $name -}}
          {{- else if mod $chips (get $machines . | int64) -}}
            {{- printf "%s: %d chips are not a whole number of hosts; a host of %s has %d chips.\n" $key $chips .
                (get $machines . | int64) -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
