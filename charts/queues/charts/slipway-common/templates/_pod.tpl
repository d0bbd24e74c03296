{{- /* common.pod: YAML (metadata, spec) of the pod template for a Ray cluster's head and for every host of a slice.

values       the values of the chart; entries of head.pods or worker.pods replace those of `pods`
head         whether the pod is the head of a Ray cluster
slice        for a host: the values of its slice, with the resolved slice under the key "resolved"
cpu, memory  requests of the container; "" for no request
container    dict of name, command (list), ports (name: number), env (list, as in Kubernetes), more (dict of other fields)
labels       dict, without that of the team
annotations  dict; if the run config is in it, it is mounted as a file
restart      restart policy; "" for the default of the owner
token        whether the token of the service account is mounted */ -}}
{{- define "common.pod" -}}
{{- $_ := set . "pods" (mergeOverwrite (deepCopy .values.pods) (deepCopy (ternary .values.head.pods .values.worker.pods .head))) -}}
{{- if .pods.extra -}}
{{- $pod := include "common.pod.template" . | fromYaml -}}
{{- $_ := mergeOverwrite $pod.spec .pods.extra -}}
{{- toYaml $pod -}}
{{- else -}}
{{- include "common.pod.template" . -}}
{{- end -}}
{{- end -}}

{{- /* common.pod.template: the pod template without pods.extra. */ -}}
{{- define "common.pod.template" -}}
{{- $values := .values }}
{{- $pods := .pods }}
{{- $host := and (not .head) $values.security.hostNetwork }}
{{- $user := ternary 1000 (int64 $values.security.runAsUser) (and .head (not (int64 $values.security.runAsUser))) }}
{{- $_ := set (set . "user" $user) "host" $host }}
{{- $team := ternary (dict "slipway.dev/team" $values.team.name) dict (not (empty $values.team.name)) -}}
metadata:
  labels:
    {{- mergeOverwrite (deepCopy $values.commonLabels) ($pods.labels | default dict) $team .labels | toYaml | nindent 4 }}
  {{- with include "common.pod.annotations" . | trim }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
spec:
  {{- with $values.queue.podPriority }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with $values.team.serviceAccount | default $values.team.name }}
  serviceAccountName: {{ . | quote }}
  {{- end }}
  automountServiceAccountToken: {{ .token }}
  enableServiceLinks: false
  {{- with .restart }}
  restartPolicy: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ int64 $values.run.graceSeconds }}
  {{- if $host }}
  hostNetwork: true
  {{- end }}
  {{- with $pods.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" $host) }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with $pods.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $pods.hostAliases }}
  hostAliases:
    {{- range $name, $alias := . }}
    - {{- toYaml $alias | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- with $pods.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with $pods.schedulerName }}
  schedulerName: {{ . | quote }}
  {{- end }}
  securityContext:
    runAsUser: {{ $user }}
    {{- if $user }}
    runAsGroup: {{ $user }}
    runAsNonRoot: true
    fsGroup: {{ $user }}
    fsGroupChangePolicy: OnRootMismatch
    {{- end }}
    seccompProfile:
      type: RuntimeDefault
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with include "common.pod.nodes" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $pods.initContainers }}
  initContainers:
    {{- include "common.pod.containers" (dict "containers" . "image" $values.image) | trim | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .container.name }}
      image: {{ include "common.image" $values.image | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- with .container.command }}
      command: {{ toJson . }}
      {{- end }}
      {{- with .container.ports }}
      ports:
        {{- range $name, $port := . }}
        - name: {{ $name }}
          containerPort: {{ int64 $port }}
        {{- end }}
      {{- end }}
      {{- with include "common.pod.env" . | trim }}
      env:
        {{- . | nindent 8 }}
      {{- end }}
      {{- with ternary $values.head.envFrom $values.worker.envFrom .head }}
      envFrom:
        {{- range $name, $kind := . }}
        - {{ ternary "configMapRef" "secretRef" (eq $kind "ConfigMap") }}: {name: {{ $name | quote }}}
        {{- end }}
      {{- end }}
      {{- with include "common.pod.resources" . | trim }}
      resources:
        {{- . | nindent 8 }}
      {{- end }}
      {{- $lifecycle := ternary (pick $pods "lifecycle") dict (not (empty $pods.lifecycle)) }}
      {{- with mergeOverwrite $lifecycle (.container.more | default dict) }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      securityContext:
        {{- if and $values.security.privileged (not .head) }}
        privileged: true
        {{- else }}
        {{- include "common.containerSecurity" . | nindent 8 }}
        {{- end }}
      volumeMounts:
        {{- include "common.pod.mounts" . | trim | nindent 8 }}
    {{- with $pods.sidecars }}
    {{- include "common.pod.containers" (dict "containers" . "image" $values.image) | trim | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "common.pod.volumes" . | trim | nindent 4 }}
{{- end -}}
