{{- /* One rule of common.valueRules and one item: whether it breaks the rule, and the sentence about it. */ -}}

{{- /* common.rules.broken: "true" if the `item` breaks the `rule`, else ""; with `values` and the table's `patterns`. */ -}}
{{- define "common.rules.broken" -}}
  {{- $item := .item -}}
  {{- $rule := .rule -}}
  {{- $value := ternary $item.name $item.value (eq ($rule.of | default "") "name") -}}
  {{- $holds := true -}}
  {{- range $key, $wanted := .rule.when -}}
    {{- $key = $key | replace "{name}" (toString $item.name) | replace "{value}" (toString $value) -}}
    {{- $at := dict -}}
    {{- if hasPrefix "." $key -}}
      {{- include "common.rules.at" (dict "values" $item.entry "key" (trimPrefix "." $key) "into" $at) -}}
    {{- else -}}
      {{- include "common.rules.at" (dict "values" $.values "key" $key "into" $at) -}}
    {{- end -}}
    {{- $is := false -}}
    {{- if kindIs "bool" $wanted -}}
      {{- $is = eq $wanted (not (empty $at.value)) -}}
    {{- else if not (kindIs "map" $wanted) -}}
      {{- $is = eq (toString $at.value) (toString $wanted | replace "{name}" (toString $item.name)) -}}
    {{- else if hasKey $wanted "given" -}}
      {{- $is = eq $wanted.given $at.given -}}
    {{- else -}}
      {{- $is = ne (toString $at.value) (toString $wanted.not) -}}
    {{- end -}}
    {{- if not $is }}{{ $holds = false }}{{ end -}}
  {{- end -}}
  {{- $tests := pick $rule "matches" "forbids" "longest" "outside" "equals" "includes" -}}
  {{- $broken := empty $tests -}}
  {{- if $tests -}}
    {{- if or (not $item.given) (and $rule.optional (empty $value)) -}}
    {{- else if $rule.matches -}}
      {{- $broken = not (regexMatch (get .patterns $rule.matches | default $rule.matches) (toString $value)) -}}
    {{- else if $rule.forbids -}}
      {{- $broken = regexMatch (get .patterns $rule.forbids | default $rule.forbids) (toString $value) -}}
      {{- if $rule.allows }}{{ $broken = and $broken (not (regexMatch (get .patterns $rule.allows) (toString $value))) }}{{ end -}}
    {{- else if $rule.longest -}}
      {{- $broken = gt (len (toString $value)) (int $rule.longest) -}}
    {{- else if $rule.includes -}}
      {{- $names := list -}}
      {{- range $value }}{{ if kindIs "map" . }}{{ $names = append $names .name }}{{ end }}{{ end -}}
      {{- range $rule.includes }}{{ if not (has . $names) }}{{ $broken = true }}{{ end }}{{ end -}}
    {{- else if $rule.equals -}}
      {{- $at := dict }}{{ include "common.rules.at" (dict "values" $.values "key" $rule.equals "into" $at) -}}
      {{- $broken = and (not (empty $at.value)) (ne (toString $at.value) (toString $value)) -}}
    {{- else -}}
      {{- range $rule.outside -}}
        {{- if and (ge (float64 $value) (float64 (first .))) (le (float64 $value) (float64 (last .))) }}{{ $broken = true }}{{ end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and $holds $broken }}true{{ end -}}
{{- end -}}

{{- /* common.rules.message: the sentence of a broken `rule` on an `item`; {value} last, because it can contain braces. */ -}}
{{- define "common.rules.message" -}}
  {{- $key := .item.key -}}
  {{- $slice := .group | default "slice" -}}
  {{- if and (ne $slice "slice") (not (hasPrefix "worker.nodeSelector" $key)) }}{{ $key = regexReplaceAll "^(slice|worker)\\." $key
      (printf "%s." $slice) }}{{ end -}}
  {{- if and .named (eq $key "run.name") }}{{ $key = .named }}{{ end -}}
  {{- $value := toString (ternary .item.name .item.value (eq (.rule.of | default "") "name")) -}}
  {{- $message := .rule.message -}}
  {{- range regexFindAll "\\{[a-z]\\w*(\\.\\w+)+\\}" $message -1 -}}
    {{- $at := dict -}}
    {{- include "common.rules.at" (dict "values" $.values "key" (trimAll "{}" .) "into" $at) -}}
    {{- $message = replace . (toString $at.value) $message -}}
  {{- end -}}
  {{- $message = $message | replace "{slice}" $slice | replace "{key}" $key | replace "{parent}" .item.parent -}}
  {{- $message = $message | replace "{name}" (toString .item.name) | replace "{length}" (len $value | toString) -}}
  {{- $message | replace "{value}" (printf "%q" $value) -}}
{{- end -}}
