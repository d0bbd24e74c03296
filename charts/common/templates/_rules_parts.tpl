{{- /* Parts of common.rules, each a JSON list of sentences. */ -}}

{{- /* A group of hosts, as common.slices gives it. */ -}}
{{- define "common.rules.slice" -}}
  {{- $wrong := list -}}
  {{- $resolved := .slice.resolved -}}
  {{- if $resolved.error -}}
    {{- $wrong = append $wrong $resolved.error -}}
  {{- else if and (eq $resolved.kind "cpu") (not (and .cpu .memory)) -}}
    {{- $of := ternary "worker" .key (eq .key "slice") -}}
    {{- $wrong = append $wrong (printf "%s.cpu and %s.memory must say what a host is: %s.accelerator is %s, which has no chips to ask for." $of $of .key .slice.accelerator) -}}
  {{- end -}}
  {{- if and (eq .slice.placement "topology") (eq $resolved.kind "cpu") (eq .key "slice") -}}
    {{- $wrong = append $wrong (printf "slice.placement: topology is for slices of chips on node pools of their own; %s needs none." .slice.accelerator) -}}
  {{- end -}}
  {{- if and (eq .slice.provisioning "reservation") (not .slice.reservation) -}}
    {{- $wrong = append $wrong (printf "%s.provisioning is reservation; %s.reservation must name it." .key .key) -}}
  {{- else if and .slice.reservation (ne .slice.provisioning "reservation") -}}
    {{- $wrong = append $wrong (printf "%s.reservation needs %s.provisioning: reservation, which is %s." .key .key .slice.provisioning) -}}
  {{- end -}}
  {{- if or (not (regexMatch "^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$" .group)) (and (ne .key "slice") (has .group (list "slice" "head" "headgroup"))) -}}
    {{- $wrong = append $wrong (printf "%s: %q cannot be a group's name; use small letters, digits and hyphens, and not slice, head or headgroup, which are taken." .key .group) -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- define "common.rules.pods" -}}
  {{- $v := .values -}}
  {{- $wrong := list -}}
  {{- range $name, $_ := merge (dict) $v.worker.env $v.worker.secretEnv -}}
    {{- if not (regexMatch "^[A-Za-z_][A-Za-z0-9_]*$" $name) -}}
      {{- $key := ternary "worker.env" "worker.secretEnv" (hasKey $v.worker.env $name) -}}
      {{- $wrong = append $wrong (printf "%s: %q is no name of a variable; use letters, digits and underscores." $key $name) -}}
    {{- else if and (eq $.kind "job-set") (has $name (list "JOB_INDEX" "SLIPWAY_COORDINATOR")) -}}
      {{- $wrong = append $wrong (printf "%s.%s is set by Slipway; remove it." (ternary "worker.env" "worker.secretEnv" (hasKey $v.worker.env $name)) $name) -}}
    {{- else if and (hasKey $v.worker.secretEnv $name) (has $name (list "JAX_PLATFORMS" "ENABLE_PJRT_COMPATIBILITY")) -}}
      {{- $wrong = append $wrong (printf "worker.secretEnv.%s is set by Slipway; use worker.env.%s for another value." $name $name) -}}
    {{- else if and (hasKey $v.worker.env $name) (hasKey $v.worker.secretEnv $name) -}}
      {{- $wrong = append $wrong (printf "worker.env.%s and worker.secretEnv.%s are both set; keep one of the two." $name $name) -}}
    {{- end -}}
  {{- end -}}
  {{- range $at, $tolerations := dict "head" $v.head.tolerations "worker" $v.worker.tolerations -}}
    {{- range $name, $toleration := $tolerations -}}
      {{- if and $toleration.value (eq ($toleration.operator | default "Equal") "Exists") -}}
        {{- $wrong = append $wrong (printf "%s.tolerations.%s: operator Exists takes no value; remove one of the two." $at $name) -}}
      {{- else if and (not $toleration.key) (ne ($toleration.operator | default "Equal") "Exists") -}}
        {{- $wrong = append $wrong (printf "%s.tolerations.%s: key is empty; name the taint's key, or give operator: Exists, for all." $at $name) -}}
      {{- else if and $toleration.key (not (regexMatch "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $toleration.key)) -}}
        {{- $wrong = append $wrong (printf "%s.tolerations.%s.key: %q is no key of a taint; use letters, digits, hyphens, dots and underscores, such as example.com/pool." $at $name $toleration.key) -}}
      {{- else if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" ($toleration.value | default "")) -}}
        {{- $wrong = append $wrong (printf "%s.tolerations.%s.value: %q is no value of a taint; use at most 63 letters, digits, hyphens, dots and underscores." $at $name $toleration.value) -}}
      {{- end -}}
      {{- if and (hasKey $toleration "tolerationSeconds") (ne ($toleration.effect | default "") "NoExecute") -}}
        {{- $wrong = append $wrong (printf "%s.tolerations.%s: tolerationSeconds needs effect: NoExecute." $at $name) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $resource, $limit := $v.storage.sidecarLimits -}}
    {{- if not (has $resource (list "cpu" "memory" "ephemeral-storage")) -}}
      {{- $wrong = append $wrong (printf "storage.sidecarLimits: there is no limit %q; there are cpu, memory and ephemeral-storage." $resource) -}}
    {{- end -}}
  {{- end -}}
  {{- if and .standing $v.security.k8sTokenAuth -}}
    {{- if not $v.security.tokenAuth -}}
      {{- $wrong = append $wrong "security.k8sTokenAuth needs security.tokenAuth: true." -}}
    {{- else if not (or $v.team.serviceAccount $v.team.name) -}}
      {{- $wrong = append $wrong "security.k8sTokenAuth needs team.serviceAccount or team.name: a service account that may ask Kubernetes about tokens, which the namespace's default may not." -}}
    {{- end -}}
  {{- end -}}
  {{- $max := int64 $v.cluster.maxSlices -}}
  {{- if and .standing $max (eq $v.slice.placement "topology") -}}
    {{- $wrong = append $wrong "cluster.maxSlices: Kueue does not let a cluster grow with slice.placement: topology; use exclusive." -}}
  {{- end -}}
  {{- if and .standing (not $max) (int64 $v.cluster.minSlices) -}}
    {{- $wrong = append $wrong "cluster.minSlices needs cluster.maxSlices, the most that a group may grow to." -}}
  {{- else if and .standing $max (gt (int64 $v.cluster.minSlices) $max) -}}
    {{- $wrong = append $wrong (printf "cluster.minSlices is %d; it must be at most cluster.maxSlices, %d." (int64 $v.cluster.minSlices) $max) -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- /* The text to train on; of the values. */ -}}
{{- define "common.rules.data" -}}
  {{- $wrong := list -}}
  {{- $data := .data -}}
  {{- if and $data.files $data.corpus -}}
    {{- $wrong = append $wrong "data.files and data.corpus are both set; keep one of the two." -}}
  {{- else if not (or $data.files $data.corpus .train.dataset_type) -}}
    {{- $wrong = append $wrong "data: there is nothing to train on; give data.files, or data.corpus: python, or train.dataset_type (synthetic needs no text)." -}}
  {{- end -}}
  {{- range $key, $files := dict "data.files" $data.files "data.heldOut.files" $data.heldOut.files -}}
    {{- range $files -}}
      {{- if not (trim .) -}}
        {{- $wrong = append $wrong (printf "%s has an empty item; remove it, or name a file." $key) -}}
      {{- else if contains "://" . -}}
        {{- $wrong = append $wrong (printf "%s: %q is a URL; text is read from files: copy it, or mount its bucket." $key .) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}

{{- /* Labels, and names of objects that are not Slipway's; of `values` and `kind`. */ -}}
{{- define "common.rules.words" -}}
  {{- $wrong := list -}}
  {{- $v := .values -}}
  {{- $labels := dict "worker.nodeSelector" $v.worker.nodeSelector -}}
  {{- if ne .kind "job-set" }}{{ $_ := set $labels "head.nodeSelector" $v.head.nodeSelector }}{{ end -}}
  {{- if eq .kind "cluster" }}{{ $_ := set $labels "cluster.labels" $v.cluster.labels }}{{ end -}}
  {{- range $key, $map := $labels -}}
    {{- range $label, $value := $map -}}
      {{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $label) -}}
        {{- $wrong = append $wrong (printf "%s: %q is no key of a label; use letters, digits, hyphens, dots and underscores, such as example.com/pool." $key $label) -}}
      {{- else if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value) -}}
        {{- $wrong = append $wrong (printf "%s.%s: %q is no value of a label; use at most 63 letters, digits, hyphens, dots and underscores." $key $label $value) -}}
      {{- else if and (eq $key "cluster.labels") (regexMatch "^(app\\.kubernetes\\.io/(name|component|part-of|managed-by)|helm\\.sh/chart)$" $label) -}}
        {{- $wrong = append $wrong (printf "%s.%s is set by Slipway; remove it." $key $label) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and (ne .kind "cluster") $v.run.command (not (first ($v.run.command | default (list "-")))) -}}
    {{- $wrong = append $wrong "run.command begins with an empty item; it must begin with a program." -}}
  {{- end -}}
  {{- $names := dict "image.pullSecrets" $v.image.pullSecrets "worker.envFrom" (keys $v.worker.envFrom | sortAlpha) -}}
  {{- range $name, $secret := $v.worker.secretEnv }}{{ $_ := set $names (printf "worker.secretEnv.%s.name" $name) (list $secret.name) }}{{ end -}}
  {{- range $key, $list := $names -}}
    {{- range $list -}}
      {{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$" .) -}}
        {{- $wrong = append $wrong (printf "%s: %q is no name of an object; use small letters, digits, hyphens and dots." $key .) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $name, $secret := $v.worker.secretEnv -}}
    {{- if not (regexMatch "^[-._A-Za-z0-9]{1,253}$" $secret.key) -}}
      {{- $wrong = append $wrong (printf "worker.secretEnv.%s.key: %q is no key of a Secret; use letters, digits, hyphens, dots and underscores." $name $secret.key) -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}
