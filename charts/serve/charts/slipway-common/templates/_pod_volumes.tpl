{{- /* The volumes of a pod, and their mounts. They take the arguments of _pod.tpl, and those that it adds: `user`, who owns the
files, because a bucket stores no owners; and `host`, whether the pod uses its machine's network. */ -}}

{{- define "common.pod.mounts" -}}
{{- $storage := .values.storage -}}
- name: storage
  mountPath: {{ $storage.mountPath | quote }}
{{- if $storage.text.bucket }}
- name: text
  mountPath: {{ $storage.text.mountPath | quote }}
  readOnly: true
{{- end }}
- name: shared-memory
  mountPath: /dev/shm
{{- if hasKey .annotations "slipway.dev/run-config" }}
- name: run-config
  mountPath: /etc/slipway
  readOnly: true
{{- end }}
{{- range $path, $mount := .pods.extraVolumeMounts }}
- mountPath: {{ $path | quote }}
  {{- toYaml $mount | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "common.pod.volumes" -}}
{{- $storage := .values.storage -}}
- name: storage
  {{- if eq $storage.kind "gcsfuse" }}
  csi:
    {{- include "common.pod.bucket" (dict "of" $storage "user" .user "host" .host) | nindent 4 }}
  {{- else if eq $storage.kind "pvc" }}
  persistentVolumeClaim:
    claimName: {{ $storage.claim | quote }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- if $storage.text.bucket }}
- name: text
  csi:
    readOnly: true
    {{- include "common.pod.bucket" (dict "of" $storage.text "user" .user "host" .host) | nindent 4 }}
{{- if $storage.text.cacheSize }}
# The name is that of GKE.
- name: gke-gcsfuse-cache
  emptyDir:
    {{- if eq $storage.text.cacheMedium "memory" }}
    medium: Memory
    {{- end }}
    sizeLimit: {{ include "common.quantity" $storage.text.cacheSize | quote }}
{{- end }}
{{- end }}
- name: shared-memory
  emptyDir:
    medium: Memory
    {{- with .memory }}
    sizeLimit: {{ include "common.quantity" . | quote }}
    {{- end }}
{{- if hasKey .annotations "slipway.dev/run-config" }}
- name: run-config
  downwardAPI:
    items:
      - path: run.json
        fieldRef:
          fieldPath: metadata.annotations['slipway.dev/run-config']
{{- end }}
{{- range $name, $volume := .pods.extraVolumes }}
- name: {{ $name | quote }}
  {{- toYaml $volume | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The CSI volume of a bucket. Takes the values `storage` or `storage.text` as `of`; `user` and `host`. */ -}}
{{- define "common.pod.bucket" -}}
driver: gcsfuse.csi.storage.gke.io
volumeAttributes:
  bucketName: {{ .of.bucket | quote }}
  {{- $owner := ternary (printf "uid=%d,gid=%d" .user .user) "" (ne .user 0) }}
  mountOptions: {{ list .of.mountOptions $owner | compact | join "," | quote }}
  {{- with .of.cacheSize }}
  fileCacheCapacity: {{ include "common.quantity" . | quote }}
  fileCacheForRangeRead: "true"
  {{- end }}
  {{- if .host }}
  # Without this, the driver cannot find the service account of a pod on the host's network (GKE 1.29 and later).
  hostNetworkPodKSA: "true"
  {{- end }}
{{- end -}}
