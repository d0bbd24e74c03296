{{- define "ray-cluster.validate" -}}
  {{- include "common.ownValues" . -}}
  {{- include "common.fail" (include "common.rules" (dict "values" .Values "kind" "cluster" "name" .Release.Name
      "named" "the release's name")) -}}
  {{- include "common.slices" (dict "values" .Values "longLived" true "split" true "into" .) -}}
{{- end -}}
