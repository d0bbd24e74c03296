{{- /* The nodes that a pod can run on. They take the arguments of _pod.tpl, unless a comment lists others. */ -}}

{{- define "common.pod.nodes" -}}
  {{- $selector := dict -}}
  {{- include "common.pod.nodeSelector" (set . "nodeSelector" $selector) -}}
  {{- with $selector }}
nodeSelector:
  {{- range $key, $value := . }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
  {{- end }}
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

{{- /* Set in `nodeSelector` the labels that the nodes of the pod must have: of a host, those of all alternatives. Renders nothing. */ -}}
{{- define "common.pod.nodeSelector" -}}
  {{- if .head -}}
    {{- $_ := mergeOverwrite .nodeSelector .values.head.nodeSelector -}}
  {{- else -}}
    {{- range $key, $value := first .slice.labelSets -}}
      {{- $everywhere := true -}}
      {{- range $.slice.labelSets }}{{ if ne (get . $key | default "") $value }}{{ $everywhere = false }}{{ end }}{{ end -}}
      {{- if $everywhere }}{{ $_ := set $.nodeSelector $key $value }}{{ end -}}
    {{- end -}}
    {{- $_ := mergeOverwrite .nodeSelector .values.worker.nodeSelector -}}
  {{- end -}}
{{- end -}}

{{- /* The affinity of pods.affinity, with that of the alternatives of the slice and of worker.avoidNodes. A node must match a
term of each, and a node must match one term of the result, so that the result has each pair of terms. */ -}}
{{- define "common.pod.affinity" -}}
  {{- $affinity := .pods.affinity | default dict -}}
  {{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
  {{- include "common.pod.terms" (set . "terms" list) -}}
  {{- include "common.pod.avoid" . -}}
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
      {{- if hasKey $own $key -}}
        {{- $expressions = append $expressions (dict "key" $key "operator" "In" "values" (list (get $own $key))) -}}
      {{- else -}}
        {{- $expressions = append $expressions (dict "key" $key "operator" "DoesNotExist") -}}
      {{- end -}}
    {{- end -}}
    {{- $_ := set $ "terms" (append $.terms (dict "matchExpressions" $expressions) | uniq) -}}
  {{- end -}}
{{- end -}}

{{- /* Exclude the nodes of worker.avoidNodes from each of `terms` of a host; of one if there is none. An entry that has ended
counts, too: a template that reads the clock would render something else without a change. Renders nothing. */ -}}
{{- define "common.pod.avoid" -}}
  {{- $names := list -}}
  {{- range $name, $end := .values.worker.avoidNodes }}{{ if $end }}{{ $names = append $names $name }}{{ end }}{{ end -}}
  {{- if and $names (not .head) -}}
    {{- $expression := dict "key" "kubernetes.io/hostname" "operator" "NotIn" "values" $names -}}
    {{- $terms := list -}}
    {{- range .terms | default (list dict) -}}
      {{- $terms = append $terms (dict "matchExpressions" (append (.matchExpressions | default list) $expression)) -}}
    {{- end -}}
    {{- $_ := set . "terms" $terms -}}
  {{- end -}}
{{- end -}}

{{- /* GKE taints nodes with chips, spot nodes, and nodes of a queued provisioning request. */ -}}
{{- define "common.pod.tolerations" -}}
  {{- $tolerations := list -}}
  {{- $own := .values.head.tolerations -}}
  {{- if not .head -}}
    {{- $own = .values.worker.tolerations -}}
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
  {{- range $name, $toleration := $own }}{{ $tolerations = append $tolerations $toleration }}{{ end -}}
  {{- with $tolerations }}{{ toYaml . }}{{ end -}}
{{- end -}}
