{{- /* common.limitTemplates: `text`, the YAML of `count` pod templates. Fails if they are longer than the admission policy of
charts/queues accepts (policies.bounds.templateBytes). launcher/config/checks/cluster_rules.py estimates the length. */ -}}
{{- define "common.limitTemplates" -}}
  {{- if gt (len .text) 262144 -}}
    {{- include "common.fail" (printf (print "%d pod templates with the run config and the environment of a worker have more than 262144 "
        "bytes, the maximum of an object; put long texts into files in the storage%s.") (int .count)
        (ternary ", or use fewer groups of hosts" "" (gt (int .count) 2))) -}}
  {{- end -}}
  {{- .text -}}
{{- end -}}

{{- /* common.rules.sizes: texts that are too large for an object, which Kubernetes stores several times. The admission policy
of charts/queues has limits that are a little higher. Takes the values. */ -}}
{{- define "common.rules.sizes" -}}
  {{- range $key, $texts := dict "run.command" .run.command "worker.env" (concat (keys .worker.env) (values .worker.env)) -}}
    {{- $size := join "" $texts | len -}}
    {{- if gt $size 60000 -}}
      {{- printf "%s has %d bytes; it can have at most 60000. Put long texts into a file in the storage.\n" $key $size -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
