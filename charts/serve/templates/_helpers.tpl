{{- /* serve.validate: fail with a line for each problem; else set in the root context `cluster`, the values as the templates of
the Ray cluster read them: each replica has a slice of its own, and the hosts have the API key, the folders of caches in the
storage, and logs with the output of replicas; `slices`, its groups of hosts; `resolved`,
the slice of a replica; and `autoscaling`, whether the number of replicas follows the load. */ -}}
{{- define "serve.validate" -}}
  {{- include "common.ownValues" . -}}
  {{- include "common.fail" (include "common.rules" (dict "values" .Values "kind" "serve" "name" .Release.Name
      "named" "the release's name")) -}}
  {{- $serve := .Values.serve -}}
  {{- $values := deepCopy .Values -}}
  {{- $min := int64 $serve.replicas.min -}}
  {{- $_ := set $values.slice "count" $min -}}
  {{- $_ := set $values.cluster "minSlices" $min -}}
  {{- $_ := set $values.cluster "maxSlices" (int64 $serve.replicas.max) -}}
  {{- if $serve.apiKey.required -}}
    {{- $_ := set $values.worker.secretEnv "SLIPWAY_API_KEY" (pick $serve.apiKey "name" "key") -}}
  {{- end -}}
  {{- /* The replicas' output is in the logs of the hosts' pods, instead of files, without what Ray itself reports. */ -}}
  {{- $env := dict "RAY_LOG_TO_STDERR" "1" "RAY_BACKEND_LOG_LEVEL" "warning" -}}
  {{- if hasPrefix "hf:" $serve.model }}{{ $_ := set $env "HF_HOME" (printf "%s/huggingface" $values.storage.mountPath) }}{{ end -}}
  {{- /* vLLM compiles for minutes on a TPU. With this folder, only the first replica does. */ -}}
  {{- if eq (get $values.common.accelerators $values.slice.accelerator).kind "tpu" -}}
    {{- $_ := set $env "VLLM_XLA_CACHE_PATH" (printf "%s/vllm-xla-cache" $values.storage.mountPath) -}}
  {{- end -}}
  {{- $_ := set $values.worker "env" (mergeOverwrite $env $values.worker.env) -}}
  {{- $_ := set . "cluster" $values -}}
  {{- include "common.slices" (dict "values" $values "longLived" false "split" true "into" .) -}}
  {{- $_ := set . "autoscaling" (gt (int64 $serve.replicas.max) $min) -}}
  {{- $_ := set . "resolved" (first .slices).slice.resolved -}}
{{- end -}}

{{- /* serve.model: what the engine loads: a folder, or ORG/NAME. Takes the values. */ -}}
{{- define "serve.model" -}}
  {{- if hasPrefix "hf:" .serve.model -}}
    {{- trimPrefix "hf:" .serve.model -}}
  {{- else if hasPrefix "/" .serve.model -}}
    {{- .serve.model -}}
  {{- else -}}
    {{- printf "%s/%s" .storage.mountPath .serve.model -}}
  {{- end -}}
{{- end -}}

{{- /* serve.arguments: YAML of the arguments of the application (trainer/serving/settings.py). */ -}}
{{- define "serve.arguments" -}}
{{- $serve := .Values.serve -}}
model: {{ include "serve.model" .Values | quote }}
name: {{ $serve.name | default .Release.Name | quote }}
engine: {{ $serve.engine }}
context_length: {{ int64 $serve.contextLength }}
dtype: {{ $serve.dtype }}
require_api_key: {{ $serve.apiKey.required }}
max_requests: {{ int64 $serve.maxRequests }}
{{- if eq $serve.engine "vllm" }}
tensor_parallel_size: {{ int64 .resolved.chips }}
hosts: {{ int64 .resolved.hosts }}
engine_args: {{ toJson $serve.engineArgs }}
{{- end }}
{{- end -}}

{{- /* serve.deployment: YAML of the options of the deployment, in the form of Ray Serve's config file. A replica requests all
chips of its host, or all CPUs of a host without chips, so that each host has one replica. A replica on several hosts requests
them as a placement group with one bundle for each host, as vLLM's executor for TPUs expects them. */ -}}
{{- define "serve.deployment" -}}
  {{- $serve := .Values.serve -}}
  {{- $chips := int64 .resolved.chipsPerHost -}}
  {{- $deployment := dict
      "name" "Model"
      "max_ongoing_requests" (int64 $serve.maxRequests)
      "max_queued_requests" (int64 $serve.maxQueuedRequests)
      "health_check_period_s" (int64 $serve.health.periodSeconds)
      "health_check_timeout_s" (int64 $serve.health.timeoutSeconds)
      "graceful_shutdown_timeout_s" (int64 $serve.health.drainSeconds) -}}
  {{- if .autoscaling -}}
    {{- $_ := set $deployment "autoscaling_config" (dict
        "min_replicas" (int64 $serve.replicas.min)
        "max_replicas" (int64 $serve.replicas.max)
        "target_ongoing_requests" (int64 $serve.targetRequests)
        "downscale_delay_s" (int64 $serve.idleSeconds)) -}}
  {{- else -}}
    {{- $_ := set $deployment "num_replicas" (int64 $serve.replicas.min) -}}
  {{- end -}}
  {{- $actor := dict "num_cpus" 1 -}}
  {{- if eq .resolved.kind "cpu" -}}
    {{- /* KubeRay rounds the CPUs of a Ray node up to a whole number. */ -}}
    {{- $_ := set $actor "num_cpus" (include "common.quantity.number" .Values.worker.cpu | float64 | ceil | int64) -}}
  {{- else if eq .resolved.kind "gpu" -}}
    {{- $_ := set $actor "num_gpus" $chips -}}
  {{- else if eq (int64 .resolved.hosts) 1 -}}
    {{- $_ := set $actor "resources" (dict "TPU" $chips) -}}
  {{- else -}}
    {{- $bundles := list (dict "CPU" 1 "TPU" $chips) -}}
    {{- range until (sub (int .resolved.hosts) 1 | int) }}{{ $bundles = append $bundles (dict "TPU" $chips) }}{{ end -}}
    {{- $_ := set $deployment "placement_group_bundles" $bundles -}}
    {{- $_ := set $deployment "placement_group_strategy" "STRICT_SPREAD" -}}
  {{- end -}}
  {{- $_ := set $deployment "ray_actor_options" $actor -}}
  {{- toYaml $deployment -}}
{{- end -}}
