{{- /* One more part of common.rules. */ -}}

{{- /* What contradicts itself in the rows in use of the table of accelerators; of `values` and `standing`. */ -}}
{{- define "common.rules.table" -}}
  {{- $wrong := list -}}
  {{- $used := list .values.slice.accelerator -}}
  {{- if .standing }}{{ range .values.cluster.groups }}{{ $used = append $used .accelerator }}{{ end }}{{ end -}}
  {{- range $name := uniq $used -}}
    {{- $row := get $.values.common.accelerators $name | default dict -}}
    {{- $machines := $row.machineTypes | default dict -}}
    {{- $shapes := $row.topologies | default dict -}}
    {{- with $row.larger }}{{ $shapes = set (deepCopy $shapes) "4x4x4x1" .machineTypes }}{{ end -}}
    {{- range $shape, $types := $shapes -}}
      {{- $key := printf "common.accelerators.%s.%s" $name (ternary (printf "topologies.%s" $shape) "larger" (hasKey ($row.topologies | default dict) $shape)) -}}
      {{- if not (regexMatch "^[1-9][0-9]{0,3}(x[1-9][0-9]{0,3})*$" $shape) -}}
        {{- $wrong = append $wrong (printf "%s: %q is no shape; write it like 4x4." $key $shape) -}}
      {{- else -}}
        {{- $chips := 1 -}}
        {{- range splitList "x" $shape }}{{ $chips = mul $chips (int64 .) }}{{ end -}}
        {{- range $types -}}
          {{- if not (hasKey $machines .) -}}
            {{- $wrong = append $wrong (printf "%s: %q is not in common.accelerators.%s.machineTypes; add it there with its chips per host." $key . $name) -}}
          {{- else if mod $chips (get $machines . | int64) -}}
            {{- $wrong = append $wrong (printf "%s: %d chips are no whole number of hosts with %d chips, as %s has." $key $chips (get $machines . | int64) .) -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}
