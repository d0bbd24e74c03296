{{- /* The nodes that a pod can run on. They take the arguments of _pod.tpl, unless a comment lists others. */ -}}

{{- define "common.pod.nodes" -}}
  {{- /* The labels that the nodes of all alternatives of a host have. */ -}}
  {{- $sets := (.slice | default dict).labelSets | default list -}}
  {{- $selector := dict -}}
  {{- range $key, $value := first $sets | default dict -}}
    {{- $everywhere := true -}}
    {{- range $sets }}{{ if ne (get . $key | default "") $value }}{{ $everywhere = false }}{{ end }}{{ end -}}
    {{- if $everywhere }}{{ $_ := set $selector $key $value }}{{ end -}}
  {{- end -}}
  {{- $_ := mergeOverwrite $selector (ternary .values.head.nodeSelector .values.worker.nodeSelector .head) -}}
  {{- with $selector }}
nodeSelector:
  {{- range $key, $value := . }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
  {{- end }}
  {{- $_ := set . "nodeSelector" $selector }}
  {{- with include "common.pod.affinity" . }}
affinity:
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .pods.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range $name, $constraint := . }}
  - {{- toYaml $constraint | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with include "common.pod.tolerations" . }}
tolerations:
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* The affinity of pods.affinity, with that of the alternatives of the slice and of worker.avoidNodes. A node must match a
term of each, and a node must match one term of the result, so that the result has each pair of terms. */ -}}
{{- define "common.pod.affinity" -}}
  {{- $affinity := .pods.affinity | default dict -}}
  {{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
  {{- include "common.pod.terms" (set . "terms" list) -}}
  {{- $avoided := keys .values.worker.avoidNodes | sortAlpha -}}
  {{- if and $avoided (not .head) -}}
    {{- /* An entry that has ended counts, too: a template that reads the clock would render something else without a change. */ -}}
    {{- $expression := dict "key" "kubernetes.io/hostname" "operator" "NotIn" "values" $avoided -}}
    {{- $terms := list -}}
    {{- range .terms | default (list dict) -}}
      {{- $terms = append $terms (dict "matchExpressions" (append (.matchExpressions | default list) $expression)) -}}
    {{- end -}}
    {{- $_ := set . "terms" $terms -}}
  {{- end -}}
  {{- with .terms -}}
    {{- $terms := . -}}
    {{- with $affinity.nodeAffinity }}{{ with get . $key -}}
      {{- $pairs := list -}}
      {{- range $own := .nodeSelectorTerms }}{{ range $term := $terms -}}
        {{- $expressions := concat $term.matchExpressions ($own.matchExpressions | default list) -}}
        {{- $pairs = append $pairs (set (deepCopy $own) "matchExpressions" $expressions) -}}
      {{- end }}{{ end -}}
      {{- $terms = $pairs -}}
    {{- end }}{{ end -}}
    {{- $node := set ($affinity.nodeAffinity | default dict) $key (dict "nodeSelectorTerms" $terms) -}}
    {{- $affinity = set $affinity "nodeAffinity" $node -}}
  {{- end -}}
  {{- with $affinity }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* Set `terms` to one for each alternative of slice.any, of the labels in which they differ; to none if one of them has no
label of its own. A term excludes the labels of the other alternatives: for Kueue, a term without a label of a flavor accepts
each value of that label. Takes `nodeSelector`, too. Renders nothing. */ -}}
{{- define "common.pod.terms" -}}
  {{- $sets := list -}}
  {{- $keys := list -}}
  {{- range $set := (.slice | default dict).labelSets -}}
    {{- $own := dict -}}
    {{- range $key, $value := $set -}}
      {{- if ne (get $.nodeSelector $key | default "") $value }}{{ $_ := set $own $key $value }}{{ end -}}
    {{- end -}}
    {{- $sets = append $sets $own -}}
    {{- $keys = concat $keys (keys $own) | uniq | sortAlpha -}}
  {{- end -}}
  {{- range $own := ternary list $sets (has dict $sets) -}}
    {{- $expressions := list -}}
    {{- range $key := $keys -}}
      {{- $in := dict "key" $key "operator" "In" "values" (list (get $own $key)) -}}
      {{- $expressions = append $expressions (ternary $in (dict "key" $key "operator" "DoesNotExist") (hasKey $own $key)) -}}
    {{- end -}}
    {{- $_ := set $ "terms" (append $.terms (dict "matchExpressions" $expressions) | uniq) -}}
  {{- end -}}
{{- end -}}

{{- /* GKE taints nodes with chips, spot nodes, and nodes of a queued provisioning request. */ -}}
{{- define "common.pod.tolerations" -}}
  {{- $tolerations := list -}}
  {{- if not .head -}}
    {{- with include "common.resource" .slice.resolved -}}
      {{- $tolerations = append $tolerations (dict "key" . "operator" "Exists" "effect" "NoSchedule") -}}
    {{- end -}}
    {{- $taints := dict "spot" "cloud.google.com/gke-spot" "flex-start" "cloud.google.com/gke-queued" -}}
    {{- range .slice.provisionings -}}
      {{- with get $taints . -}}
        {{- $tolerations = append $tolerations (dict "key" . "operator" "Equal" "value" "true" "effect" "NoSchedule") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $own := ternary .values.head.tolerations .values.worker.tolerations .head -}}
  {{- range $name, $toleration := $own }}{{ $tolerations = append $tolerations $toleration }}{{ end -}}
  {{- with $tolerations }}{{ toYaml . }}{{ end -}}
{{- end -}}
