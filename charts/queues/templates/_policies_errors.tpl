{{- /* The CEL that follows from the table run-policy.yaml. The errors of an object are one string, with a line for each. A
list would need flatten, which an API server of Kubernetes 1.34 does not accept. */ -}}

{{- /* queues.policies.size: CEL of the number of characters in the texts of a map. Takes the arguments of
queues.policies.errors. Fields of policies.fields are not counted. */ -}}
{{- define "queues.policies.size" -}}
  {{- $in := . -}}
  {{- $sizes := list "0" -}}
  {{- range $name, $field := (get .table.shapes .shape).fields -}}
    {{- $self := printf "%s.%s" $in.of $name -}}
    {{- $size := "" -}}
    {{- if $field.size -}}
      {{- $size = regexReplaceAll "\\bself\\b" $field.size $self -}}
    {{- else if $field.shape -}}
      {{- $size = include "queues.policies.size" (merge (dict "shape" $field.shape "of" $self) $in) -}}
    {{- else if $field.items -}}
      {{- $item := printf "v%d" (int $in.depth) -}}
      {{- $below := merge (dict "shape" $field.items "of" $item "depth" (add 1 (int $in.depth))) $in -}}
      {{- $size = printf "%s.map(%s, %s).sum()" $self $item (include "queues.policies.size" $below) -}}
    {{- else if $field.entries -}}
      {{- $size = printf "%s.map(name, size(name) + size(string(%s[name]))).sum()" $self $self -}}
    {{- else if not (get $field "is") -}}
      {{- $size = printf "type(%s) == string ? size(%s) : 0" $self $self -}}
    {{- end -}}
    {{- if and $size (not (has $name (get $in.fields $in.shape | default list))) -}}
      {{- $sizes = append $sizes (printf "!has(%s) ? 0 : %s" $self $size) -}}
    {{- end -}}
  {{- end -}}
  {{- printf "[%s].sum()" (join ", " $sizes) -}}
{{- end -}}

{{- /* queues.policies.errors: CEL of the errors of a map, a text with a line for each: "" if there is none. Takes `table`,
`constants`, `fields` (the values policies.fields); `shape`; `at`, the CEL of the path; `of`, the CEL of the map; and `depth`,
the number of lists that it is in. */ -}}
{{- define "queues.policies.errors" -}}
  {{- $in := . -}}
  {{- $shape := get .table.shapes .shape -}}
  {{- $more := get .fields .shape | default list -}}
  {{- $known := concat (keys $shape.fields) $more | uniq | sortAlpha | toRawJson -}}
  {{- $key := printf " Values of charts/queues that allow it: policies.fields.%s.\n" .shape | toRawJson -}}
  {{- $reason := .table.refusal | toRawJson -}}
  {{- with $shape.refused }}{{ $reason = printf "%s[?key].orValue(%s)" (toRawJson .) $reason }}{{ end -}}
  {{- $errors := list (printf `%s.filter(key, !(key in %s)).map(key, %s + "." + key + " must be absent: " + %s + %s).join("")`
      .of $known .at $reason $key) -}}
  {{- range $name, $field := $shape.fields -}}
    {{- if has $name $more }}{{ continue }}{{ end -}}
    {{- $self := printf "%s.%s" $in.of $name -}}
    {{- $path := printf `%s + ".%s"` $in.at $name -}}
    {{- $message := "" -}}
    {{- with $field.message -}}
      {{- $message = include "queues.policies.filled" (dict "text" . "constants" $in.constants "item" "") -}}
    {{- end -}}
    {{- $allows := empty $field.key | ternary "" (printf " Values of charts/queues that allow it: %s." $field.key) -}}
    {{- $message = printf " %s.%s\n" $message $allows | toRawJson -}}
    {{- if $field.required -}}
      {{- $errors = append $errors (printf `has(%s) ? "" : %s + " is missing.\n"` $self $path) -}}
    {{- end -}}
    {{- $check := "" -}}
    {{- with $field.check -}}
      {{- $check = include "queues.policies.filled" (dict "text" . "constants" $in.constants "item" $in.of) -}}
      {{- $check = regexReplaceAll "\\bself\\b" $check $self -}}
    {{- end -}}
    {{- /* A text without another limit is short, so that a large object is not stored. */ -}}
    {{- if not (or $check $field.shape $field.items (get $field "is")) -}}
      {{- $check = printf "type(%s) != string || size(%s) <= 1024" $self $self -}}
      {{- $message = " must have at most 1024 characters.\n" | toRawJson -}}
    {{- end -}}
    {{- if $field.entries -}}
      {{- /* A key has a prefix of at most 253 characters, a slash, and a name of at most 63. */ -}}
      {{- $check = regexReplaceAll "\\bvalue\\b" $check (printf "%s[name]" $self) -}}
      {{- $errors = append $errors (printf (print `!has(%s) ? "" : size(%s) > 64 ? %s + " must have at most 64 keys.\n" : `
          `%s.filter(name, size(name) > 317 || !(%s)).map(name, %s + "[" + name + "]" + %s).join("")`)
          $self $self $path $self $check $path $message) -}}
    {{- else if $check -}}
      {{- $errors = append $errors (printf `!has(%s) || (%s) ? "" : %s + %s` $self $check $path $message) -}}
    {{- end -}}
    {{- with $field.shape -}}
      {{- $text := include "queues.policies.errors" (merge (dict "shape" . "of" $self "at" $path) $in) -}}
      {{- $errors = append $errors (printf `!has(%s) ? "" : %s` $self $text) -}}
    {{- end -}}
    {{- with $field.items -}}
      {{- $index := printf "i%d" (int $in.depth) -}}
      {{- $item := printf "v%d" (int $in.depth) -}}
      {{- $at := printf `%s + "[" + string(%s) + "]"` $path $index -}}
      {{- $text := include "queues.policies.errors" (merge (dict "shape" . "of" $item "at" $at "depth" (add 1 (int $in.depth))) $in) -}}
      {{- $tooMany := printf " must have at most %d items.\n" (int $field.most) | toRawJson -}}
      {{- $errors = append $errors (printf `!has(%s) ? "" : size(%s) > %d ? %s + %s : %s.transformList(%s, %s, %s).join("")`
          $self $self (int $field.most) $path $tooMany $self $index $item $text) -}}
    {{- end -}}
  {{- end -}}
  {{- printf `[%s].join("")` (join ", " $errors) -}}
{{- end -}}
