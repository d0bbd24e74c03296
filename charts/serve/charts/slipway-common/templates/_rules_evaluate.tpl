{{- /* The evaluation of common.valueRules; launcher/config/checks/value_rules.py does the same in Python. */ -}}

{{- /*
common.rules.evaluate: a line for each sentence of common.valueRules that the values break; of `values`, `kind`, and
`each`: whether to evaluate the rules of a group of hosts, whose key is `group`, or the others. `named` is the key that
sentences show for run.name.
*/ -}}
{{- define "common.rules.evaluate" -}}
  {{- $table := include "common.valueRules" . | fromJson -}}
  {{- range $entry := append $table.rules $table.patterns -}}
    {{- range $field, $text := $entry -}}
      {{- if and (kindIs "slice" $text) (or (not $entry.rule) (has $field (list "message" "matches" "forbids"))) -}}
        {{- $_ := set $entry $field (join "" $text) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
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
              {{- println (include "common.rules.message" (dict "rule" $rule "item" $item "values" $.values "group" $.group
                  "named" $.named)) -}}
            {{- end -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
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
