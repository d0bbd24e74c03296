{{- /* Rules that compare keys, which values.schema.json cannot. charts/_rules.json has them, too, for the launcher. */ -}}

{{- /* common.rules.name: the problem of the `name` of an object of this `kind`; `named` is the key that gives the name. */ -}}
{{- define "common.rules.name" -}}
  {{- $limit := get (dict "ray-job" (list 35 "a ray-job run") "job-set" (list 40 "a job-set run") "cluster" (list 41 "a RayCluster")
      "serve" (list 35 "a RayService")) .kind -}}
  {{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .name) -}}
    {{- printf (print "%s: %q is not a valid name; use lowercase letters, digits and hyphens, starting with a letter and not ending "
        "with a hyphen.\n") .named .name -}}
  {{- else if gt (len .name) (first $limit) -}}
    {{- printf "%s: %q has %d characters; the name of %s can have at most %d.\n" .named .name (len .name) (last $limit) (first $limit) -}}
  {{- end -}}
{{- end -}}

{{- /* common.rules.entries: problems of variables, of volumes and of their mounts. Takes the values. */ -}}
{{- define "common.rules.entries" -}}
  {{- range $part := list "head" "worker" -}}
    {{- $pods := get $ $part -}}
    {{- $more := ternary " If it is not a secret, put it into a ConfigMap, and set worker.envFrom." "" (eq $part "worker") -}}
    {{- range $name, $value := $pods.env -}}
      {{- $secret := and $value (regexMatch (include "common.pattern.secretVariable" $) $name) -}}
      {{- include "common.sentences" (list
          (list (hasKey $pods.secretEnv $name)
              (printf "%s.env.%s and %s.secretEnv.%s are both set; remove one of them." $part $name $part $name))
          (list (and $secret (not (regexMatch (include "common.pattern.plainVariable" $) $name)))
              (printf (print "%s.env.%s would store a secret in the run's record; put it into a Secret, and set %s.secretEnv.%s to the "
              "Secret's name and key.%s") $part $name $part $name $more))) -}}
    {{- end -}}
  {{- end -}}
  {{- $volumes := dict -}}
  {{- range list .pods .head.pods .worker.pods }}{{ $_ := merge $volumes (.extraVolumes | default dict) }}{{ end -}}
  {{- range $key, $pods := dict "pods" .pods "head.pods" .head.pods "worker.pods" .worker.pods -}}
    {{- range $name, $volume := $pods.extraVolumes -}}
      {{- if gt (len $volume) 1 -}}
        {{- printf "%s.extraVolumes.%s has %d sources; a volume has one. In an overlay, null removes that of another file.\n" $key $name
          (len $volume) -}}
      {{- end -}}
    {{- end -}}
    {{- range $path, $mount := $pods.extraVolumeMounts -}}
      {{- $at := printf "%s.extraVolumeMounts" $key -}}
      {{- $own := "^(storage|text|shared-memory|run-config|ray-token)$|^gke-gcsfuse-" -}}
      {{- include "common.sentence" (list
          (list (eq $path $.storage.mountPath)
              (printf "%s: %s is storage.mountPath, where the storage of the run is; mount the volume at another path." $at $path))
          (list (and $.storage.text.bucket (eq $path $.storage.text.mountPath))
              (printf "%s: %s is storage.text.mountPath, where the text is; mount the volume at another path." $at $path))
          (list (not (or (hasKey $volumes $mount.name) (regexMatch $own $mount.name)))
              (printf "%s.%s.name: there is no volume %q; add it to pods.extraVolumes." $at $path $mount.name))) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* common.rules.labels: labels in `nodeSelector` that contradict the nodes of a `group`, so that its pods never start. */ -}}
{{- define "common.rules.labels" -}}
  {{- $key := .group.key -}}
  {{- $slice := .group.slice -}}
  {{- $row := $slice.resolved -}}
  {{- $tpu := eq $row.kind "tpu" -}}
  {{- $onGke := or $tpu (and (eq $row.kind "gpu") (not $row.labelKey)) -}}
  {{- range $label, $value := .nodeSelector -}}
    {{- $wanted := "" -}}
    {{- $of := "" -}}
    {{- $chips := "" -}}
    {{- if and $tpu (eq $label "cloud.google.com/gke-tpu-topology") -}}
      {{- $wanted = $slice.topology -}}
      {{- $of = "topology" -}}
    {{- else if and $onGke (eq $label (ternary "cloud.google.com/gke-tpu-accelerator" "cloud.google.com/gke-accelerator" $tpu)) -}}
      {{- $wanted = $row.label -}}
      {{- $of = "accelerator" -}}
    {{- else if and $onGke (regexMatch "^(beta[.]|node[.])kubernetes.io/instance-type$" $label) -}}
      {{- $wanted = $row.machineType -}}
    {{- else if and $onGke (eq $label "cloud.google.com/gke-accelerator-count") -}}
      {{- $wanted = toString $row.chipsPerHost -}}
      {{- $chips = printf ", which has %s %s" $wanted (ternary "chips" "GPUs" $tpu) -}}
    {{- else if and (eq $slice.provisioning "reservation") (not $slice.any) (eq $label "cloud.google.com/reservation-name") -}}
      {{- $wanted = $slice.reservation -}}
      {{- $of = "reservation" -}}
    {{- else if and $tpu (regexMatch "^(beta[.])?kubernetes.io/arch$" $label) (ne $value "amd64") -}}
      {{- printf "worker.nodeSelector: %s: %q is wrong for %s, whose nodes have amd64. Remove it.\n" $label $value $row.name -}}
    {{- else if or (and $tpu (eq $label "cloud.google.com/gke-accelerator"))
        (and (eq $row.kind "gpu") (regexMatch "^cloud.google.com/gke-tpu-(topology|accelerator)$" $label)) -}}
      {{- printf "worker.nodeSelector: %s: nodes of %s do not have this label. Remove it, or change %s.accelerator.\n" $label $row.name
          $key -}}
    {{- end -}}
    {{- if and $wanted (ne $wanted $value) -}}
      {{- printf "worker.nodeSelector: %s: %q contradicts %s.%s, %s%s" $label $value $key ($of | default "machineType")
          (ternary "whose nodes have " "" (eq $of "accelerator")) (ternary $wanted $row.machineType (empty $chips)) -}}
      {{- if $of }}{{ printf ": no node has both labels. Remove it, or change %s.%s.\n" $key $of -}}
      {{- else }}{{ printf "%s. Remove it, and set %s.machineType.\n" $chips $key }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
