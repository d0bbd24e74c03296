{{- /* Labels and annotations of a team's namespace, and those that its ClusterQueue requires (namespaceSelector). Takes
`root`, `key`, `name`, `team` and `queue`, the entry of its ClusterQueue. */ -}}
{{- define "queues.rules.namespace" -}}
  {{- $space := .team.namespace -}}
  {{- $live := lookup "v1" "Namespace" "" $space -}}
  {{- $made := include "queues.makesNamespace" (dict "root" .root "team" .team "live" $live) -}}
  {{- range $field := list "labels" "annotations" -}}
    {{- $given := get $.team $field -}}
    {{- if and $given (not $made) -}}
      {{- $command := printf "kubectl %s namespace %s" (trimSuffix "s" $field | replace "annotation" "annotate") $space -}}
      {{- range $label, $value := $given }}{{ $command = printf "%s %s=%s" $command $label $value }}{{ end -}}
      {{- printf (print "%s.%s: this release does not create the namespace %s; remove the key, and change the namespace "
          "yourself: %s\n") $.key $field $space $command -}}
    {{- end -}}
  {{- end -}}
  {{- $reserved := include "queues.reservedLabels" . -}}
  {{- include "queues.rules.labels" (dict "key" (printf "%s.labels" .key) "labels" .team.labels "reserved" $reserved) -}}
  {{- $labels := dig "metadata" "labels" dict $live -}}
  {{- if $made -}}
    {{- $labels = include "queues.labels" (dict "root" .root "name" .name "team" .name) | fromYaml -}}
    {{- $own := dict "kubernetes.io/metadata.name" $space "pod-security.kubernetes.io/enforce" .team.podSecurity -}}
    {{- $labels = merge $own .team.labels $labels -}}
  {{- end -}}
  {{- if or $made $live -}}
    {{- range $label, $value := .queue.namespaceSelector -}}
      {{- if ne (get $labels $label) $value -}}
        {{- $way := printf "add it: kubectl label namespace %s %s=%s" $space $label $value -}}
        {{- if $made }}{{ $way = printf "add it to %s.labels" $.key }}{{ end -}}
        {{- printf (print "clusterQueues.%s.namespaceSelector: the namespace %s of teams.%s does not have the label %s=%s, so "
            "its runs would never start; %s.\n") $.team.clusterQueue $space $.name $label $value $way -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- define "queues.reservedLabels" -}}
^((app|pod-security)\.kubernetes\.io/.*|kubernetes\.io/metadata\.name|helm\.sh/chart|(slipway\.dev|kueue\.x-k8s\.io)/.*)$
{{- end -}}

{{- /* A sentence for each label and annotation of all objects that is not valid. */ -}}
{{- define "queues.rules.common" -}}
  {{- $reserved := include "queues.reservedLabels" . -}}
  {{- include "queues.rules.labels" (dict "key" "commonLabels" "labels" .Values.commonLabels "reserved" $reserved) -}}
  {{- $names := dict -}}
  {{- range $name, $_ := .Values.commonAnnotations }}{{ $_ := set $names $name "" }}{{ end -}}
  {{- $reserved = "^(helm\\.sh|meta\\.helm\\.sh|slipway\\.dev|kueue\\.x-k8s\\.io|kubectl\\.kubernetes\\.io)/" -}}
  {{- include "queues.rules.labels" (dict "key" "commonAnnotations" "what" "annotation" "labels" $names "reserved" $reserved) -}}
{{- end -}}

{{- /* A sentence for each label that is not valid, or `reserved` (a pattern). Takes `key`, `labels` and `reserved`. */ -}}
{{- define "queues.rules.labels" -}}
  {{- range $label, $value := .labels -}}
    {{- include "common.sentence" (list
        (list (not (regexMatch "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $label))
            (printf "%s: %q is not a valid %s key; use letters, digits, hyphens, dots and underscores, such as example.com/pool."
            $.key $label ($.what | default "label")))
        (list (not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value))
            (printf "%s.%s: %q is not a valid label value; use at most 63 letters, digits, hyphens, dots and underscores."
            $.key $label $value))
        (list (regexMatch $.reserved $label) (printf "%s.%s is set by Slipway; remove it." $.key $label))) -}}
  {{- end -}}
{{- end -}}

{{- /* Amounts of a LimitRange that are not valid, or in the wrong order. Takes `key` and `types`. */ -}}
{{- define "queues.rules.limitRange" -}}
  {{- range $type, $fields := .types -}}
    {{- if not (or (kindIs "invalid" $fields) (has $type (list "Container" "PersistentVolumeClaim" "Pod"))) -}}
      {{- printf "%s: unknown type %q; use Container, PersistentVolumeClaim or Pod.\n" $.key $type -}}
    {{- end -}}
    {{- $last := dict -}}
    {{- range $field := list "min" "defaultRequest" "default" "max" -}}
      {{- $amounts := get ($fields | default dict) $field | default dict -}}
      {{- $path := printf "%s.%s.%s" $.key $type $field -}}
      {{- if and $amounts (hasPrefix "default" $field) (ne $type "Container") -}}
        {{- printf "%s: only a Container has defaults; remove this key.\n" $path -}}
      {{- end -}}
      {{- range $resource, $amount := $amounts -}}
        {{- $bad := include "queues.rules.limits" (dict "key" $path "limits" (dict $resource $amount)) -}}
        {{- $bad -}}
        {{- if not $bad -}}
          {{- with get $last $resource -}}
            {{- if include "common.quantity.exceeds" (list .amount $amount) -}}
              {{- printf "%s: %s is %v, which is less than %v in %s.\n" $path $resource $amount .amount .field -}}
            {{- end -}}
          {{- end -}}
          {{- $_ := set $last $resource (dict "amount" $amount "field" $field) -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* A sentence for each amount that is not valid. Takes `key` and `limits`. */ -}}
{{- define "queues.rules.limits" -}}
  {{- range $resource, $amount := .limits -}}
    {{- if kindIs "invalid" $amount }}{{ continue }}{{ end -}}
    {{- include "queues.rules.quantity" (dict "key" (printf "%s: %s" $.key $resource) "quantity" $amount "example" "500 or 256Gi") -}}
  {{- end -}}
{{- end -}}
