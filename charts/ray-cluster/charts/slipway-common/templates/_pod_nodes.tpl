{{- /* The nodes that a pod can run on. They take the arguments of _pod.tpl, unless a comment lists others. */ -}}

{{- define "common.pod.nodes" -}}
  {{- with include "common.pod.nodeSelector" . | fromJson }}
nodeSelector:
  {{- range $key, $value := . }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
  {{- end }}
  {{- with include "common.pod.allAffinity" . | fromYaml }}
affinity:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with (include "common.pods" . | fromYaml).topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range $name, $constraint := . }}
  - {{- toYaml $constraint | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with include "common.pod.tolerations" . | fromJsonArray }}
tolerations:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "common.pod.nodeSelector" -}}
  {{- if .head -}}
    {{- .values.head.nodeSelector | toJson -}}
  {{- else -}}
    {{- $sets := include "common.labelSets" .slice | fromJsonArray -}}
    {{- $labels := dict -}}
    {{- range $key, $value := first $sets -}}
      {{- $everywhere := true -}}
      {{- range $sets }}{{ if ne (get . $key | default "") $value }}{{ $everywhere = false }}{{ end }}{{ end -}}
      {{- if $everywhere }}{{ $_ := set $labels $key $value }}{{ end -}}
    {{- end -}}
    {{- mergeOverwrite $labels .values.worker.nodeSelector | toJson -}}
  {{- end -}}
{{- end -}}

{{- /* The affinity of pods.affinity, with that of the alternatives of the slice. A node must match a term of each, and a node
must match one term of the result, so that the result has each pair of terms. */ -}}
{{- define "common.pod.allAffinity" -}}
  {{- $affinity := (include "common.pods" . | fromYaml).affinity | default dict -}}
  {{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
  {{- with include "common.pod.affinity" . | fromJson -}}
    {{- $terms := (get .nodeAffinity $key).nodeSelectorTerms -}}
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

{{- /* The labels in which the alternatives of slice.any differ; {} if one of them has no label of its own. A term excludes
the labels of the other alternatives: for Kueue, a term without a label of a flavor accepts each value of that label. */ -}}
{{- define "common.pod.affinity" -}}
  {{- $affinity := dict -}}
  {{- if not .head -}}
    {{- $selector := include "common.pod.nodeSelector" . | fromJson -}}
    {{- $sets := list -}}
    {{- $keys := list -}}
    {{- $any := false -}}
    {{- range $set := include "common.labelSets" .slice | fromJsonArray -}}
      {{- $own := dict -}}
      {{- range $key, $value := $set -}}
        {{- if ne (get $selector $key | default "") $value }}{{ $_ := set $own $key $value }}{{ end -}}
      {{- end -}}
      {{- if not $own }}{{ $any = true }}{{ end -}}
      {{- $sets = append $sets $own -}}
      {{- $keys = concat $keys (keys $own) | uniq | sortAlpha -}}
    {{- end -}}
    {{- $terms := list -}}
    {{- range $own := $sets -}}
      {{- $expressions := list -}}
      {{- range $key := $keys -}}
        {{- if hasKey $own $key -}}
          {{- $expressions = append $expressions (dict "key" $key "operator" "In" "values" (list (get $own $key))) -}}
        {{- else -}}
          {{- $expressions = append $expressions (dict "key" $key "operator" "DoesNotExist") -}}
        {{- end -}}
      {{- end -}}
      {{- $terms = append $terms (dict "matchExpressions" $expressions) -}}
    {{- end -}}
    {{- if not $any -}}
      {{- $required := dict "nodeSelectorTerms" (uniq $terms) -}}
      {{- $affinity = dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" $required) -}}
    {{- end -}}
  {{- end -}}
  {{- $affinity | toJson -}}
{{- end -}}

{{- /* common.labelSets: JSON list of the labels of the nodes that a slice can use: one set, or one for each of its
alternatives, which differ in their provisioning. Takes the values of the slice, with `resolved`. */ -}}
{{- define "common.labelSets" -}}
  {{- $slice := . -}}
  {{- $sets := list -}}
  {{- range .any | default (list dict) -}}
    {{- $one := dict "accelerator" $slice.resolved "machineType" $slice.machineType
        "provisioning" (.provisioning | default $slice.provisioning)
        "reservation" (.reservation | default $slice.reservation) -}}
    {{- $sets = append $sets (include "common.nodeLabels" $one | fromJson) -}}
  {{- end -}}
  {{- $sets | toJson -}}
{{- end -}}

{{- /* common.provisionings: JSON list of how the machines of a slice can be provisioned. Takes the values of the slice. */ -}}
{{- define "common.provisionings" -}}
  {{- $found := list -}}
  {{- range .any }}{{ $found = append $found (.provisioning | default $.provisioning) }}{{ end -}}
  {{- $found | default (list .provisioning) | uniq | toJson -}}
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
    {{- range include "common.provisionings" .slice | fromJsonArray -}}
      {{- with get $taints . -}}
        {{- $tolerations = append $tolerations (dict "key" . "operator" "Equal" "value" "true" "effect" "NoSchedule") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $toleration := $own }}{{ $tolerations = append $tolerations $toleration }}{{ end -}}
  {{- $tolerations | toJson -}}
{{- end -}}
