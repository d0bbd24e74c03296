{{- /* common.limitTemplates: `text`, the YAML of `count` pod templates. Fails if they are longer than the admission policy of
charts/queues accepts (policies.bounds.templateBytes). launcher/config/checks/cluster_rules.py estimates the length. */ -}}
{{- define "common.limitTemplates" -}}
  {{- if gt (len .text) 262144 -}}
    {{- include "common.fail" (printf (print "worker.env, train, data: %d pod templates with them have more than 262144 bytes, the "
        "maximum of an object; put long texts into files in the storage%s.") (int .count)
        (ternary ", or use fewer groups of hosts" "" (gt (int .count) 2))) -}}
  {{- end -}}
  {{- .text -}}
{{- end -}}

{{- /* common.rules.sizes: maps, lists and texts that are too large for an object, which Kubernetes stores several times. The
admission policy of charts/queues has limits that are a little higher. Takes the values. */ -}}
{{- define "common.rules.sizes" -}}
  {{- $most := dict "worker.env" 200 "worker.secretEnv" 50 "worker.envFrom" 50 "head.envFrom" 50 "worker.nodeSelector" 50
      "worker.avoidNodes" 64 "worker.tolerations" 16 "head.nodeSelector" 50 "head.tolerations" 16 "image.pullSecrets" 10 "run.command" 1000
      "cluster.labels" 50 -}}
  {{- range $key := keys $most | sortAlpha -}}
    {{- $section := get $ (splitList "." $key | first) | default dict -}}
    {{- $entries := get $section (splitList "." $key | last) | default list -}}
    {{- if gt (len $entries) (get $most $key | int) -}}
      {{- printf "%s has %d entries; it can have at most %d.\n" $key (len $entries) (get $most $key) -}}
    {{- end -}}
  {{- end -}}
  {{- $sizes := dict "worker.env" 0 "run.command" 0 -}}
  {{- range $name, $value := .worker.env }}{{ $_ := set $sizes "worker.env" (add (get $sizes "worker.env") (len $name)
      (len $value)) }}{{ end -}}
  {{- range .run.command }}{{ $_ := set $sizes "run.command" (add (get $sizes "run.command") (len .)) }}{{ end -}}
  {{- range $key := keys $sizes | sortAlpha -}}
    {{- if gt (get $sizes $key | int) 60000 -}}
      {{- printf "%s has %d bytes; it can have at most 60000. Put long texts into a file in the storage.\n" $key (get $sizes $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
