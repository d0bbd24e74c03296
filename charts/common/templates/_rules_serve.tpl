{{- /* common.rules.serve: problems of a served model that its schema cannot find. Takes the values, with the
resolved slice as `accelerator`, if it is valid. */ -}}
{{- define "common.rules.serve" -}}
  {{- $serve := .serve -}}
  {{- $min := int64 $serve.replicas.min -}}
  {{- $max := int64 $serve.replicas.max -}}
  {{- $mount := .storage.mountPath -}}
  {{- if gt $min $max -}}
    {{- printf "serve.replicas.min is %d; it must be at most serve.replicas.max, %d.\n" $min $max -}}
  {{- else if and (lt $min $max) (eq .slice.placement "topology") -}}
    {{- println (print "serve.replicas: Kueue does not scale a cluster with slice.placement: topology; use exclusive, or as many "
        "replicas at least as at most.") -}}
  {{- end -}}
  {{- if and (eq $serve.upgrade.strategy "incremental") (eq $min $max) -}}
    {{- println "serve.upgrade.strategy: incremental requires autoscaling; set serve.replicas.max above serve.replicas.min." -}}
  {{- end -}}
  {{- if and (eq $serve.upgrade.strategy "incremental") (gt (int64 $serve.upgrade.stepPercent) (int64 $serve.upgrade.surgePercent)) -}}
    {{- printf "serve.upgrade.stepPercent is %d; it must be at most serve.upgrade.surgePercent, %d.\n" (int64 $serve.upgrade.stepPercent)
        (int64 $serve.upgrade.surgePercent) -}}
  {{- end -}}
  {{- if and (hasPrefix "/" $serve.model) (not (hasPrefix (printf "%s/" $mount) $serve.model)) -}}
    {{- printf "serve.model: %q is not below storage.mountPath, %s, where the storage is mounted.\n" $serve.model $mount -}}
  {{- end -}}
  {{- if gt (toJson $serve.engineArgs | len) 60000 -}}
    {{- printf "serve.engineArgs has %d bytes; it can have at most 60000.\n" (toJson $serve.engineArgs | len) -}}
  {{- end -}}
  {{- if gt (int64 $serve.targetRequests) (int64 $serve.maxRequests) -}}
    {{- printf "serve.targetRequests is %d; it must be at most serve.maxRequests, %d.\n" (int64 $serve.targetRequests)
        (int64 $serve.maxRequests) -}}
  {{- end -}}
  {{- with .accelerator -}}
    {{- if and (eq $serve.engine "vllm") (eq .kind "cpu") -}}
      {{- printf "serve.engine: vllm runs on TPUs and GPUs; for %s, set serve.engine: mlx.\n" .name -}}
    {{- else if and (eq $serve.engine "mlx") (has .kind (list "tpu" "gpu")) -}}
      {{- printf "serve.engine: mlx runs on CPUs; for %s, set serve.engine: vllm.\n" .name -}}
    {{- end -}}
    {{- if and (eq $serve.dtype "float16") (eq .kind "tpu") -}}
      {{- println "serve.dtype: TPUs have no float16; use bfloat16." -}}
    {{- end -}}
    {{- $hosts := int64 .hosts -}}
    {{- if and (gt $hosts 1) (ne .kind "tpu") -}}
      {{- printf "slice.hosts is %d; a replica on %s runs on one host: set slice.hosts: 0.\n" $hosts .name -}}
    {{- else if and (gt $hosts 1) (or (ne $max 1) (ne $min 1)) -}}
      {{- printf (print "serve.replicas: a %s slice of %s has %d hosts, and a model on several hosts has one replica; set "
          "min and max to 1, or use a slice with one host (slice.machineType).\n") .name .topology $hosts -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
