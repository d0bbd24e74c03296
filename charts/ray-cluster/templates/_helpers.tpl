{{- define "ray-cluster.validate" -}}
  {{- include "common.ownValues" (dict "values" .Values "others" (include "ray-cluster.others" .)
      "empty" (include "ray-cluster.emptyValues" .)) -}}
  {{- $wrong := include "common.rules" (dict "values" .Values "kind" "cluster" "name" .Release.Name
      "named" "the release's name") | fromJsonArray -}}
  {{- if $wrong -}}
    {{- fail (printf "\n%s\n" (join "\n" $wrong)) -}}
  {{- end -}}
{{- end -}}
