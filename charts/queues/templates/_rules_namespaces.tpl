{{- /*
Labels and annotations of a team's namespace, and those that its ClusterQueue requires (namespaceSelector). Takes `root`,
`key`, `name`, `team` and `queue`, the entry of its ClusterQueue.
*/ -}}
{{- define "queues.rules.namespace" -}}
  {{- $wrong := list -}}
  {{- $space := .team.namespace -}}
  {{- $live := lookup "v1" "Namespace" "" $space -}}
  {{- $made := include "queues.makesNamespace" (dict "root" .root "team" .team "live" $live) -}}
  {{- range $field := list "labels" "annotations" -}}
    {{- $given := get $.team $field -}}
    {{- if and $given (not $made) -}}
      {{- $pairs := list -}}
      {{- range $label, $value := $given }}{{ $pairs = append $pairs (printf "%s=%s" $label $value) }}{{ end -}}
      {{- $wrong = append $wrong (printf "%s.%s: this release does not create the namespace %s; remove the key, and change the namespace yourself: kubectl %s namespace %s %s" $.key $field $space (trimSuffix "s" $field | replace "annotation" "annotate") $space (join " " $pairs)) -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong = concat $wrong (include "queues.rules.labels" (dict "key" (printf "%s.labels" .key) "labels" .team.labels "reserved" (include "queues.reservedLabels" .)) | fromJsonArray) -}}
  {{- $labels := dig "metadata" "labels" dict $live -}}
  {{- if $made -}}
    {{- $labels = include "queues.labels" (dict "root" .root "name" .name "team" .name) | fromYaml -}}
    {{- $labels = merge (dict "kubernetes.io/metadata.name" $space "pod-security.kubernetes.io/enforce" .team.podSecurity) .team.labels $labels -}}
  {{- end -}}
  {{- if or $made $live -}}
    {{- range $label, $value := .queue.namespaceSelector -}}
      {{- if ne (get $labels $label) $value -}}
        {{- $way := ternary (printf "add it to %s.labels" $.key) (printf "add it: kubectl label namespace %s %s=%s" $space $label $value) (not (empty $made)) -}}
        {{- $wrong = append $wrong (printf "clusterQueues.%s.namespaceSelector: the namespace %s of teams.%s does not have the label %s=%s, so its runs would never start; %s." $.team.clusterQueue $space $.name $label $value $way) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- define "queues.reservedLabels" -}}
^((app|pod-security)\.kubernetes\.io/.*|kubernetes\.io/metadata\.name|helm\.sh/chart|(slipway\.dev|kueue\.x-k8s\.io)/.*)$
{{- end -}}

{{- /* A sentence for each label and annotation of all objects that is not valid. */ -}}
{{- define "queues.rules.common" -}}
  {{- $wrong := include "queues.rules.labels" (dict "key" "commonLabels" "labels" .Values.commonLabels "reserved" (include "queues.reservedLabels" .)) | fromJsonArray -}}
  {{- $names := dict -}}
  {{- range $name, $_ := .Values.commonAnnotations }}{{ $_ := set $names $name "" }}{{ end -}}
  {{- $reserved := "^(helm\\.sh|meta\\.helm\\.sh|slipway\\.dev|kueue\\.x-k8s\\.io|kubectl\\.kubernetes\\.io)/" -}}
  {{- concat $wrong (include "queues.rules.labels" (dict "key" "commonAnnotations" "what" "annotation" "labels" $names "reserved" $reserved) | fromJsonArray) | toJson -}}
{{- end -}}

{{- /* A sentence for each label that is not valid, or `reserved` (a pattern). Takes `key`, `labels` and `reserved`. */ -}}
{{- define "queues.rules.labels" -}}
  {{- $wrong := list -}}
  {{- range $label, $value := .labels -}}
    {{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $label) -}}
      {{- $wrong = append $wrong (printf "%s: %q is not a valid %s key; use letters, digits, hyphens, dots and underscores, such as example.com/pool." $.key $label ($.what | default "label")) -}}
    {{- else if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value) -}}
      {{- $wrong = append $wrong (printf "%s.%s: %q is not a valid label value; use at most 63 letters, digits, hyphens, dots and underscores." $.key $label $value) -}}
    {{- else if regexMatch $.reserved $label -}}
      {{- $wrong = append $wrong (printf "%s.%s is set by Slipway; remove it." $.key $label) -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- /* Amounts of a LimitRange that are not valid, or in the wrong order. Takes `key` and `types`. */ -}}
{{- define "queues.rules.limitRange" -}}
  {{- $wrong := list -}}
  {{- range $type, $fields := .types -}}
    {{- if not (or (kindIs "invalid" $fields) (has $type (list "Container" "PersistentVolumeClaim" "Pod"))) -}}
      {{- $wrong = append $wrong (printf "%s: unknown type %q; use Container, PersistentVolumeClaim or Pod." $.key $type) -}}
    {{- end -}}
    {{- range $field := list "default" "defaultRequest" -}}
      {{- if and (ne $type "Container") (get ($fields | default dict) $field) -}}
        {{- $wrong = append $wrong (printf "%s.%s.%s: only a Container has defaults; remove this key." $.key $type $field) -}}
      {{- end -}}
    {{- end -}}
    {{- $last := dict -}}
    {{- range $field := list "min" "defaultRequest" "default" "max" -}}
      {{- range $resource, $amount := get ($fields | default dict) $field | default dict -}}
        {{- $path := printf "%s.%s.%s" $.key $type $field -}}
        {{- $bad := include "queues.rules.limits" (dict "key" $path "limits" (dict $resource $amount)) | fromJsonArray -}}
        {{- $wrong = concat $wrong $bad -}}
        {{- if not $bad -}}
          {{- $number := include "common.quantity.number" $amount | float64 -}}
          {{- with get $last $resource -}}
            {{- if gt .number $number -}}
              {{- $wrong = append $wrong (printf "%s: %s is %v, which is less than %v in %s." $path $resource $amount .amount .field) -}}
            {{- end -}}
          {{- end -}}
          {{- $_ := set $last $resource (dict "number" $number "amount" $amount "field" $field) -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- /* A sentence for each amount that is not valid. Takes `key` and `limits`. */ -}}
{{- define "queues.rules.limits" -}}
  {{- $wrong := list -}}
  {{- range $resource, $amount := .limits -}}
    {{- if not (kindIs "invalid" $amount) -}}
      {{- $wrong = append $wrong (include "queues.rules.quantity" (dict "key" (printf "%s: %s" $.key $resource) "quantity" $amount "example" "500 or 256Gi")) -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
