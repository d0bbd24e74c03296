{{- /* The volumes of a pod, and their mounts. They take the arguments of _pod.tpl, unless a comment lists others. */ -}}

{{- define "common.pod.mounts" -}}
{{- $values := .values }}
{{- $pods := .pods }}
{{- $config := hasKey .annotations "slipway.dev/run-config" }}
- name: storage
  mountPath: {{ $values.storage.mountPath | quote }}
{{- if $values.storage.text.bucket }}
- name: text
  mountPath: {{ $values.storage.text.mountPath | quote }}
  readOnly: true
{{- end }}
- name: shared-memory
  mountPath: /dev/shm
{{- if $config }}
- name: run-config
  mountPath: /etc/slipway
  readOnly: true
{{- end }}
{{- range $path, $mount := $pods.extraVolumeMounts }}
- mountPath: {{ $path | quote }}
  {{- toYaml $mount | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "common.pod.volumes" -}}
{{- $values := .values }}
{{- $pods := .pods }}
{{- $config := hasKey .annotations "slipway.dev/run-config" }}
{{- $host := and (not .head) $values.security.hostNetwork }}
{{- $user := $values.security.runAsUser | int64 }}
{{- if and .head (eq $user 0) }}{{ $user = 1000 }}{{ end }}
- name: storage
  {{- include "common.pod.storage" (dict "storage" $values.storage "user" $user "host" $host) | nindent 2 }}
{{- if $values.storage.text.bucket }}
{{- include "common.pod.text" (dict "text" $values.storage.text "user" $user "host" $host) | nindent 0 }}
{{- end }}
- name: shared-memory
  emptyDir:
    medium: Memory
    {{- with .memory }}
    sizeLimit: {{ include "common.quantity" . | quote }}
    {{- end }}
{{- if $config }}
- name: run-config
  downwardAPI:
    items:
      - path: run.json
        fieldRef:
          fieldPath: metadata.annotations['slipway.dev/run-config']
{{- end }}
{{- range $name, $volume := $pods.extraVolumes }}
- name: {{ $name | quote }}
  {{- toYaml $volume | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The source of the volume. Takes `storage`; `user`, the owner of the files, because a bucket stores no owners; and
`host`, whether the pod uses its machine's network. */ -}}
{{- define "common.pod.storage" -}}
{{- if eq .storage.kind "gcsfuse" -}}
{{- $options := list .storage.mountOptions -}}
{{- if .user }}{{ $options = append $options (printf "uid=%d,gid=%d" .user .user) }}{{ end -}}
csi:
  driver: gcsfuse.csi.storage.gke.io
  volumeAttributes:
    bucketName: {{ .storage.bucket | quote }}
    mountOptions: {{ $options | compact | join "," | quote }}
    {{- if .host }}
    # Without this, the driver cannot find the service account of a pod on the host's network (GKE 1.29 and later).
    hostNetworkPodKSA: "true"
    {{- end }}
{{- else if eq .storage.kind "pvc" -}}
persistentVolumeClaim:
  claimName: {{ .storage.claim | quote }}
{{- else -}}
emptyDir: {}
{{- end }}
{{- end -}}

{{- /* The read-only volume with text, and the volume of its cache, whose name is that of GKE. Takes the values
`storage.text` as `text`; `user` and `host`. */ -}}
{{- define "common.pod.text" -}}
{{- $options := list .text.mountOptions -}}
{{- if .user }}{{ $options = append $options (printf "uid=%d,gid=%d" .user .user) }}{{ end -}}
- name: text
  csi:
    driver: gcsfuse.csi.storage.gke.io
    readOnly: true
    volumeAttributes:
      bucketName: {{ .text.bucket | quote }}
      mountOptions: {{ $options | compact | join "," | quote }}
      {{- with .text.cacheSize }}
      fileCacheCapacity: {{ include "common.quantity" . | quote }}
      fileCacheForRangeRead: "true"
      {{- end }}
      {{- if .host }}
      hostNetworkPodKSA: "true"
      {{- end }}
{{- if .text.cacheSize }}
- name: gke-gcsfuse-cache
  emptyDir:
    {{- if eq .text.cacheMedium "memory" }}
    medium: Memory
    {{- end }}
    sizeLimit: {{ include "common.quantity" .text.cacheSize | quote }}
{{- end }}
{{- end -}}

