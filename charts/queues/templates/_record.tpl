{{- define "queues.rules.record" -}}
  {{- $record := .Values.record -}}
  {{- if $record.enabled -}}
    {{- include "common.sentences" (list
        (list (not (regexMatch "^[^@\\s]+(:[^:/@\\s]+|@sha256:[0-9a-f]{64})$" $record.image))
            (printf "record.image is %q; set an image that has the launcher, with a tag or a digest." $record.image))
        (list (hasSuffix ":latest" $record.image) "record.image has the tag latest; set the tag of a version, or a digest.")
        (list (not (regexMatch "^(gs|s3)://[a-z0-9][a-z0-9._-]*(/[A-Za-z0-9._/-]*)?$" $record.folder))
            (printf "record.folder is %q; set the URL of a folder in a bucket, such as gs://research-records." $record.folder))) -}}
    {{- range $key, $name := dict "record.namespace" $record.namespace "record.notifySecret" $record.notifySecret -}}
      {{- with $name }}{{ include "queues.rules.name" (dict "key" $key "name" . "max" 63) }}{{ end -}}
    {{- end -}}
  {{- else -}}
    {{- range $name, $team := .Values.teams -}}
      {{- if $team.notify -}}
        {{- println (printf "teams.%s.notify has no effect, because nothing reads the Secret; set record.enabled: true." $name) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
