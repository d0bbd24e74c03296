{{- /* The evaluation of common.valueRules; launcher/config/checks/value_rules.py does the same in Python. */ -}}

{{- /*
common.rules.evaluate: JSON list of the sentences of common.valueRules that the values break; of `values`, `kind`, and
`each`: whether to evaluate the rules of a group of hosts, whose key is `group`, or the others. `named` is the key that
sentences show for run.name.
*/ -}}
{{- define "common.rules.evaluate" -}}
  {{- $problems := list -}}
  {{- $table := include "common.valueRules" . | fromJson -}}
  {{- $failed := dict -}}
  {{- range $rule := $table.rules -}}
    {{- if not $rule.else }}{{ $failed = dict }}{{ end -}}
    {{- $kinds := $rule.kinds | default "objects" -}}
    {{- if kindIs "string" $kinds }}{{ $kinds = get $table.kinds $kinds }}{{ end -}}
    {{- if and (has $.kind $kinds) (eq $.each ($rule.each | default false)) -}}
      {{- $failedAbove := deepCopy $failed -}}
      {{- range $key := $rule.keys -}}
        {{- $found := dict -}}
        {{- include "common.rules.items" (dict "values" $.values "key" $key "into" $found) -}}
        {{- range $item := $found.items -}}
          {{- if not (or (hasKey $failedAbove $item.base) (and $rule.named (not (has $item.name $rule.named)))) -}}
            {{- if include "common.rules.broken" (dict "rule" $rule "item" $item "values" $.values "patterns" $table.patterns) -}}
              {{- $_ := set $failed $item.base true -}}
              {{- $problems = append $problems (include "common.rules.message" (dict "rule" $rule "item" $item "values" $.values "group" $.group "named" $.named)) -}}
            {{- end -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $problems | toJson -}}
{{- end -}}

{{- /*
common.rules.items: set `items` in the dict `into` to what `key` is in `values`: one item, or one for each entry that its
`*` matches. An item has key, parent and name (of the entry), base (what an `else` rule refers to: the entry, or ""),
entry (its value), and, of the key itself, `given` and `value`. It renders nothing: to return JSON takes twice as long.
*/ -}}
{{- define "common.rules.items" -}}
  {{- $items := list -}}
  {{- if contains "*" .key -}}
    {{- $parent := first (splitList ".*" .key) -}}
    {{- $below := trimPrefix "." (last (splitList ".*" .key)) -}}
    {{- $above := dict -}}
    {{- include "common.rules.at" (dict "values" .values "key" $parent "into" $above) -}}
    {{- $entries := $above.value | default list -}}
    {{- range $name, $entry := $entries -}}
      {{- $base := ternary (printf "%s.%v" $parent $name) (printf "%s[%v]" $parent $name) (kindIs "map" $entries) -}}
      {{- $item := dict "base" $base "parent" $parent "name" $name "entry" $entry "key" (ternary $base $parent (kindIs "map" $entries)) -}}
      {{- if $below -}}
        {{- include "common.rules.at" (dict "values" $entry "key" $below "into" $item) -}}
        {{- $_ := set $item "key" (printf "%s.%s" $base $below) -}}
      {{- else -}}
        {{- $_ := set (set $item "given" true) "value" $entry -}}
      {{- end -}}
      {{- $items = append $items $item -}}
    {{- end -}}
  {{- else -}}
    {{- $item := dict "base" "" "key" .key "parent" .key "name" .key "entry" "" -}}
    {{- include "common.rules.at" (dict "values" .values "key" .key "into" $item) -}}
    {{- $items = list $item -}}
  {{- end -}}
  {{- $_ := set .into "items" $items -}}
{{- end -}}

{{- /*
common.rules.at: set in the dict `into` whether the dotted `key` is `given` in `values`, and its `value`; "" if it is not.
*/ -}}
{{- define "common.rules.at" -}}
  {{- $value := .values -}}
  {{- $given := true -}}
  {{- range splitList "." .key -}}
    {{- if and (kindIs "map" $value) (hasKey $value .) -}}
      {{- $value = get $value . -}}
    {{- else if and (kindIs "slice" $value) $value (eq . "0") -}}
      {{- $value = first $value -}}
    {{- else -}}
      {{- $value = "" -}}
      {{- $given = false -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set (set .into "given" $given) "value" $value -}}
{{- end -}}

{{- /* common.rules.broken: "true" if the `item` breaks the `rule`, else ""; with `values` and the table's `patterns`. */ -}}
{{- define "common.rules.broken" -}}
  {{- $item := .item -}}
  {{- $holds := true -}}
  {{- range $key, $wanted := .rule.when -}}
    {{- $at := dict -}}
    {{- if hasPrefix "." $key -}}
      {{- include "common.rules.at" (dict "values" $item.entry "key" (trimPrefix "." $key) "into" $at) -}}
    {{- else -}}
      {{- include "common.rules.at" (dict "values" $.values "key" (replace "{name}" (toString $item.name) $key) "into" $at) -}}
    {{- end -}}
    {{- $is := false -}}
    {{- if kindIs "bool" $wanted -}}
      {{- $is = eq $wanted (not (empty $at.value)) -}}
    {{- else if not (kindIs "map" $wanted) -}}
      {{- $is = eq (toString $at.value) (toString $wanted) -}}
    {{- else if hasKey $wanted "given" -}}
      {{- $is = eq $wanted.given $at.given -}}
    {{- else -}}
      {{- $is = ne (toString $at.value) (toString $wanted.not) -}}
    {{- end -}}
    {{- if not $is }}{{ $holds = false }}{{ end -}}
  {{- end -}}
  {{- $rule := .rule -}}
  {{- $value := ternary $item.name $item.value (eq ($rule.of | default "") "name") -}}
  {{- $tests := pick $rule "matches" "forbids" "longest" "outside" "equals" -}}
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
  {{- if and (ne $slice "slice") (not (hasPrefix "worker.nodeSelector" $key)) }}{{ $key = regexReplaceAll "^(slice|worker)\\." $key (printf "%s." $slice) }}{{ end -}}
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
