{{- /* common.rules.serve: problems that the schema cannot find. Takes the values; if it is valid, the slice as `accelerator`. */ -}}
{{- define "common.rules.serve" -}}
  {{- $serve := .serve -}}
  {{- $min := int64 $serve.replicas.min -}}
  {{- $max := int64 $serve.replicas.max -}}
  {{- $incremental := eq $serve.upgrade.strategy "incremental" -}}
  {{- $step := int64 $serve.upgrade.stepPercent -}}
  {{- $surge := int64 $serve.upgrade.surgePercent -}}
  {{- $outside := and (hasPrefix "/" $serve.model) (not (hasPrefix (printf "%s/" .storage.mountPath) $serve.model)) -}}
  {{- $arguments := toJson $serve.engineArgs | len -}}
  {{- include "common.sentences" (list
      (list (gt $min $max) (printf "serve.replicas.min is %d; it must be at most serve.replicas.max, %d." $min $max))
      (list (and (lt $min $max) (eq .slice.placement "topology"))
          (print "serve.replicas: Kueue does not scale a cluster with slice.placement: topology; use exclusive, or as many "
          "replicas at least as at most."))
      (list (and $incremental (eq $min $max))
          "serve.upgrade.strategy: incremental requires autoscaling; set serve.replicas.max above serve.replicas.min.")
      (list (and $incremental (gt $step $surge))
          (printf "serve.upgrade.stepPercent is %d; it must be at most serve.upgrade.surgePercent, %d." $step $surge))
      (list $outside
          (printf "serve.model: %q is not below storage.mountPath, %s, where the storage is mounted." $serve.model .storage.mountPath))
      (list (gt $arguments 60000) (printf "serve.engineArgs has %d bytes; it can have at most 60000." $arguments))
      (list (gt (int64 $serve.targetRequests) (int64 $serve.maxRequests))
          (printf "serve.targetRequests is %d; it must be at most serve.maxRequests, %d." (int64 $serve.targetRequests)
          (int64 $serve.maxRequests)))) -}}
  {{- with .accelerator -}}
    {{- $hosts := int64 .hosts -}}
    {{- include "common.sentences" (list
        (list (and (eq $serve.engine "vllm") (eq .kind "cpu"))
            (printf "serve.engine: vllm runs on TPUs and GPUs; for %s, set serve.engine: mlx." .name))
        (list (and (eq $serve.engine "mlx") (has .kind (list "tpu" "gpu")))
            (printf "serve.engine: mlx runs on CPUs; for %s, set serve.engine: vllm." .name))
        (list (and (eq $serve.dtype "float16") (eq .kind "tpu")) "serve.dtype: TPUs have no float16; use bfloat16.")
        (list (and (gt $hosts 1) (ne .kind "tpu"))
            (printf "slice.hosts is %d; a replica on %s runs on one host: set slice.hosts: 0." $hosts .name))
        (list (and (gt $hosts 1) (eq .kind "tpu") (or (ne $max 1) (ne $min 1)))
            (printf (print "serve.replicas: a %s slice of %s has %d hosts, and a model on several hosts has one replica; set "
            "min and max to 1, or use a slice with one host (slice.machineType).") .name .topology $hosts))) -}}
  {{- end -}}
{{- end -}}
