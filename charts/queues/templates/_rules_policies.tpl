{{- /* The shapes of policies.fields are those of the table run-policy.yaml. */ -}}
{{- define "queues.rules.policies" -}}
  {{- range $name, $fields := .Values.policies.fields -}}
    {{- if not (hasKey ($.Files.Get "run-policy.yaml" | fromYaml).shapes $name) -}}
      {{- printf "policies.fields: unknown shape %q; docs/reference/run-policy.md lists the shapes.\n" $name -}}
    {{- end -}}
    {{- range $field := $fields -}}
      {{- if not (regexMatch "^[A-Za-z][A-Za-z0-9]*$" $field) -}}
        {{- printf "policies.fields.%s: %q is not the name of a field.\n" $name $field -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $field := .Values.policies.volumes -}}
    {{- if not (regexMatch "^[A-Za-z][A-Za-z0-9]*$" $field) -}}
      {{- printf "policies.volumes: %q is not the name of a type of volumes.\n" $field -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
