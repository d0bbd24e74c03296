{{- /* One more part of common.rules: who follows a run; of `values` and `trainer`, whether the trainer runs. */ -}}
{{- define "common.rules.tracking" -}}
  {{- $wrong := list -}}
  {{- $v := .values -}}
  {{- $port := int64 $v.tracking.metricsPort -}}
  {{- $taken := list 6379 8080 8265 8431 8471 8476 52365 -}}
  {{- if and $port (or (lt $port 1024) (has (int $port) $taken) (and (ge $port 10001) (le $port 19999))) -}}
    {{- $wrong = append $wrong (printf "tracking.metricsPort: %d is a port that the system, Ray, JAX or libtpu takes; use another, such as 9464." $port) -}}
  {{- end -}}
  {{- $wandb := $v.tracking.wandb -}}
  {{- if and $wandb.project (not (regexMatch "^[^/\\\\#?%:]{1,128}$" $wandb.project)) -}}
    {{- $wrong = append $wrong (printf "tracking.wandb.project: %q is no project's name; it has at most 128 characters, none of them one of / \\ # ? %% and :. The user or team goes into tracking.wandb.entity." $wandb.project) -}}
  {{- else if and .trainer $wandb.project (eq $wandb.mode "online") (not $wandb.secret.name) (not (hasKey $v.worker.secretEnv "WANDB_API_KEY")) (not $v.worker.envFrom) -}}
    {{- $wrong = append $wrong "tracking.wandb.project is set; tracking.wandb.secret.name must name the Secret with the API key (tracking.wandb.mode: offline needs none)." -}}
  {{- end -}}
  {{- if hasKey $v.worker.env "WANDB_API_KEY" -}}
    {{- $wrong = append $wrong "worker.env.WANDB_API_KEY would put the key into the run's record; keep it in a Secret, and name that in tracking.wandb.secret.name." -}}
  {{- end -}}
  {{- with $wandb.secret.name -}}
    {{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$" .) -}}
      {{- $wrong = append $wrong (printf "tracking.wandb.secret.name: %q is no name of an object; use small letters, digits, hyphens and dots." .) -}}
    {{- end -}}
    {{- if hasKey $v.worker.secretEnv "WANDB_API_KEY" -}}
      {{- $wrong = append $wrong "worker.secretEnv.WANDB_API_KEY and tracking.wandb.secret.name are both set; keep one of the two." -}}
    {{- end -}}
    {{- if not (regexMatch "^[-._A-Za-z0-9]{1,253}$" $wandb.secret.key) -}}
      {{- $wrong = append $wrong (printf "tracking.wandb.secret.key: %q is no key of a Secret; use letters, digits, hyphens, dots and underscores." $wandb.secret.key) -}}
    {{- end -}}
  {{- end -}}
  {{- $wrong | toJson -}}
{{- end -}}
