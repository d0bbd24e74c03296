{{- /*
common.rules: JSON list of sentences, one for each thing that is wrong with the values across keys; of `values`, `kind`
(ray-job, job-set, or cluster for a standing one), `name` and `named` (the key that names it). launcher/cluster_rules.py
has the same rules with files and lines.
*/ -}}
{{- define "common.rules" -}}
{{- $v := .values }}
{{- $wrong := list }}
{{- $standing := eq .kind "cluster" }}
{{- $trainer := and (not $standing) (not $v.run.command) }}

{{- /* Names. GKE's TPU webhook cuts service names at 50 characters and KubeRay does not, so that longer names give
hosts that cannot be found; a JobSet's pods, NAME-slice-99-9999-xxxxx, must stay within 63. */}}
{{- $limit := get (dict "cluster" 41 "ray-job" 35 "job-set" 40) .kind }}
{{- $what := get (dict "cluster" "a RayCluster" "ray-job" "a ray-job run" "job-set" "a job-set run") .kind }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .name) }}
{{- $wrong = append $wrong (printf "%s: %q is no name; use small letters, digits and hyphens, with a letter first and no hyphen last." .named .name) }}
{{- else if gt (len .name) $limit }}
{{- $wrong = append $wrong (printf "%s: %q has %d characters; the name of %s may have %d." .named .name (len .name) $what $limit) }}
{{- end }}
{{- range $key, $name := dict "team.name" $v.team.name "team.namespace" $v.team.namespace "team.serviceAccount" $v.team.serviceAccount "queue.name" $v.queue.name "queue.priority" $v.queue.priority "queue.podPriority" $v.queue.podPriority "slice.reservation" $v.slice.reservation "storage.claim" $v.storage.claim }}
{{- if and $name (not (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" $name)) }}
{{- $wrong = append $wrong (printf "%s: %q is no name in Kubernetes; use at most 63 small letters, digits and hyphens, no hyphen first or last." $key $name) }}
{{- end }}
{{- end }}

{{- /* Image */}}
{{- with $v.image }}
{{- if not .repository }}
{{- $wrong = append $wrong "image.repository is empty; it must name the image with the trainer and Ray in it." }}
{{- else if regexMatch "@|:[^/]*$" .repository }}
{{- $wrong = append $wrong (printf "image.repository: %q carries a tag or a digest; they go into image.tag or image.digest." .repository) }}
{{- else if not (regexMatch "^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$" .repository) }}
{{- $wrong = append $wrong (printf "image.repository: %q is no image's name; write it like example.com/team/trainer." .repository) }}
{{- end }}
{{- if and (not .tag) (not .digest) }}
{{- $wrong = append $wrong "image.tag is empty; give the image's tag, or its digest in image.digest." }}
{{- else if and .tag .digest }}
{{- $wrong = append $wrong "image.tag and image.digest are both set; keep one of the two." }}
{{- else if eq .tag "latest" }}
{{- $wrong = append $wrong "image.tag is latest, which changes under a run; name a version." }}
{{- else if and .tag (not (regexMatch "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$" .tag)) }}
{{- $wrong = append $wrong (printf "image.tag: %q is no tag; use letters, digits, dots, hyphens and underscores." .tag) }}
{{- else if and .digest (not (regexMatch "^sha256:[0-9a-f]{64}$" .digest)) }}
{{- $wrong = append $wrong (printf "image.digest: %q is no digest; it is sha256: and 64 hexadecimal digits." .digest) }}
{{- end }}
{{- if not (regexMatch "^[0-9]+\\.[0-9]+\\.[0-9]+[-+.A-Za-z0-9]*$" .rayVersion) }}
{{- $wrong = append $wrong (printf "image.rayVersion: %q is no version of Ray; it is like 2.60.0." .rayVersion) }}
{{- end }}
{{- end }}

{{- /* Storage */}}
{{- with $v.storage }}
{{- if and (eq .kind "gcsfuse") (not .bucket) }}
{{- $wrong = append $wrong "storage.kind is gcsfuse; storage.bucket must name the bucket." }}
{{- else if and .bucket (not (regexMatch "^[a-z0-9][-a-z0-9._]{1,220}[a-z0-9]$" .bucket)) }}
{{- $wrong = append $wrong (printf "storage.bucket: %q is no bucket's name; write it without gs:// and without a folder." .bucket) }}
{{- end }}
{{- if and (eq .kind "pvc") (not .claim) }}
{{- $wrong = append $wrong "storage.kind is pvc; storage.claim must name the PersistentVolumeClaim." }}
{{- end }}
{{- if and (eq .kind "local") $trainer }}
{{- $wrong = append $wrong "storage.kind is local, which on a cluster ends with each pod, checkpoints and all; the trainer needs gcsfuse or pvc." }}
{{- end }}
{{- if not (regexMatch "^/[^:]*[^:/]$" .mountPath) }}
{{- $wrong = append $wrong (printf "storage.mountPath is %q; it must begin with \"/\" and name a folder below it." .mountPath) }}
{{- else if regexMatch "^/((etc/slipway|dev|proc|sys|bin|sbin|lib|lib64|usr|tmp/ray)(/|$)|(etc|tmp|run|var)$)" .mountPath }}
{{- $wrong = append $wrong (printf "storage.mountPath is %q, which the pods need for themselves; use another folder, such as /data." .mountPath) }}
{{- else if regexMatch "//|/\\.\\.?(/|$)|[[:cntrl:]]" .mountPath }}
{{- $wrong = append $wrong (printf "storage.mountPath: %q is no plain path; write it without \"..\", \"//\" and the like." .mountPath) }}
{{- end }}
{{- end }}

{{- /* What hosts are asked for */}}
{{- $table := include "common.rules.table" (dict "values" $v "standing" $standing) | fromJsonArray }}
{{- $wrong = concat $wrong $table }}
{{- if not $table }}
{{- $groups := include "common.slices" (dict "values" $v "standing" $standing "split" (ne .kind "job-set")) | fromJsonArray }}
{{- $names := list }}
{{- range $groups }}
{{- $wrong = concat $wrong (include "common.rules.slice" . | fromJsonArray) }}
{{- if and (has .group $names) (ne .group "slice") }}
{{- $wrong = append $wrong (printf "%s: there are two groups %q, one of them a slice of a larger group; rename this one." .key .group) }}
{{- end }}
{{- $names = append $names .group }}
{{- end }}
{{- if gt (len $groups) 7 }}
{{- $wrong = append $wrong (printf "%s: with its head the Ray cluster has %d pod sets, and Kueue takes at most 8; use fewer groups%s." (ternary "cluster.groups" "slice.count" (and $standing (not (empty $v.cluster.groups)))) (add 1 (len $groups)) (ternary ", or slice.placement: exclusive" "" (eq $v.slice.placement "topology"))) }}
{{- end }}
{{- end }}
{{- $quantities := dict "worker.cpu" $v.worker.cpu "worker.memory" $v.worker.memory }}
{{- if ne .kind "job-set" }}{{ $quantities = merge $quantities (dict "head.cpu" $v.head.cpu "head.memory" $v.head.memory) }}{{ end }}
{{- range $name, $group := ternary $v.cluster.groups dict $standing }}
{{- range $resource, $quantity := pick $group "cpu" "memory" }}{{ $_ := set $quantities (printf "cluster.groups.%s.%s" $name $resource) $quantity }}{{ end }}
{{- end }}
{{- range $resource, $quantity := pick $v.storage.sidecarLimits "cpu" "memory" "ephemeral-storage" }}
{{- if ne $quantity "0" }}{{ $_ := set $quantities (printf "storage.sidecarLimits.%s" $resource) ($quantity | default " ") }}{{ end }}
{{- end }}
{{- range $key, $quantity := $quantities }}
{{- if and $quantity (not (regexMatch (ternary "^([1-9][0-9]*m?|[0-9]+\\.[0-9]*[1-9][0-9]*)$" "^[0-9]*\\.?[0-9]*[1-9][0-9]*(\\.0)?(Ki|Mi|Gi|Ti|k|M|G|T)$" (hasSuffix "cpu" $key)) $quantity)) }}
{{- $wrong = append $wrong (printf "%s: %q is no amount of %s; write it like %s." $key (trim $quantity) (last (splitList "." $key)) (ternary "8 or 500m" "16Gi" (hasSuffix "cpu" $key))) }}
{{- end }}
{{- end }}
{{- $wrong = concat $wrong (include "common.rules.pods" (dict "values" $v "standing" $standing "kind" .kind) | fromJsonArray) }}
{{- $wrong = concat $wrong (include "common.rules.words" (dict "values" $v "kind" .kind) | fromJsonArray) }}
{{- $wrong = concat $wrong (include "common.rules.tracking" (dict "values" $v "trainer" $trainer) | fromJsonArray) }}
{{- if $trainer }}
{{- $wrong = concat $wrong (include "common.rules.data" $v | fromJsonArray) }}
{{- end }}
{{- $wrong | uniq | toJson }}
{{- end -}}
