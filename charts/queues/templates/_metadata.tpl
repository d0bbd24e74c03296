{{- /* queues.labels: the labels of an object. Takes `root`, `name` and, for the objects of a team, `team`. */ -}}
{{- define "queues.labels" -}}
{{- with .root.Values.commonLabels }}
{{- toYaml . }}
{{ end }}
{{- include "common.labels" (dict "root" .root "name" .name "component" "queues") }}
{{- with .team }}
slipway.dev/team: {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* queues.metadata: the metadata of an object. Takes `root`; `name`; if it has them, `namespace`, `labels` and
`annotations`; for an object of a team, the name of the `team`; and `of`, the entry of the values that its label names, if it
is not that team. */ -}}
{{- define "queues.metadata" -}}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- $labels := include "queues.labels" (set (pick . "root" "team") "name" (.of | default .team | default .name)) | fromYaml }}
    {{- merge (dict) (.labels | default dict) $labels | toYaml | nindent 4 }}
  {{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- /* queues.binding: a RoleBinding, or without a namespace a ClusterRoleBinding, of the Role of that kind whose name is `role`,
or else that of the binding. Takes what queues.metadata takes, and `subjects`, a list or a map. */ -}}
{{- define "queues.binding" -}}
{{- $kind := ternary "Role" "ClusterRole" (hasKey . "namespace") -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
{{ include "queues.metadata" . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .role | default .name }}
subjects:
  {{- range .subjects }}
  - {{ toJson . }}
  {{- end }}
{{- end -}}
