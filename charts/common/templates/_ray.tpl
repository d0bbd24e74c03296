{{- /*
The spec of a Ray cluster, a standing one's (charts/ray-cluster) and a RayJob's own (charts/run).

common.ray.spec takes: values; slices, a list of groups as common.slices gives them; labels and annotations of the
pods (dicts); autoscaling (bool); podLog (bool), whether the trainer copies what it prints to the head's own log;
kubernetesTokens (bool), whether Ray has Kubernetes judge tokens, which KubeRay does for a standing cluster alone;
trains (bool), whether the trainer runs on the hosts, and not another program.
*/ -}}
{{- define "common.ray.spec" -}}
{{- $in := . }}
{{- $values := .values -}}
{{- /* Told to end, Ray waits up to 30 seconds for its node to be idle: a head's never is, for a job's watcher stays on it,
and a host asks for that long a head that is gone before it, and keeps its chips. What there is to wait for in a run's
own cluster, the hook (common.ray.lifecycle) has waited for before. */}}
{{- $noDrain := dict "name" "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S" "value" "0" -}}
rayVersion: {{ $values.image.rayVersion | quote }}
authOptions:
  mode: {{ ternary "token" "disabled" $values.security.tokenAuth }}
  {{- if .kubernetesTokens }}
  enableK8sTokenAuth: true
  {{- end }}
{{- if .autoscaling }}
enableInTreeAutoscaling: true
autoscalerOptions:
  version: v2
  idleTimeoutSeconds: {{ int64 $values.cluster.idleSeconds }}
  # What the operator gives the autoscaler by default; the queue's quota has to cover it.
  resources:
    requests: {cpu: 500m, memory: 512Mi}
    limits: {cpu: 500m, memory: 512Mi}
  securityContext:
    {{- include "common.containerSecurity" . | nindent 4 }}
{{- end }}
headGroupSpec:
  # No tasks: the head is not one of the hosts.
  rayStartParams:
    num-cpus: "0"
  template:
    {{- $ports := dict "gcs-server" 6379 "dashboard" 8265 "client" 10001 }}
    {{- $env := list }}
    {{- if .podLog }}
    {{- /* Ray keeps a job's output in a file. What the container's first process prints is what `kubectl logs` shows,
    and the pipe belongs to the container's user (runc, fixStdioPermissions). */}}
    {{- $env = append $env (dict "name" "SLIPWAY_POD_LOG" "value" "/proc/1/fd/1") }}
    {{- $env = append $env $noDrain }}
    {{- end }}
    {{- /* A job that is stopped has as long as a pod for its last checkpoint; Ray's own patience is 3 seconds. */}}
    {{- $env = append $env (dict "name" "RAY_JOB_STOP_WAIT_TIME_S" "value" (int64 $values.run.graceSeconds | toString)) }}
    {{- $more := include "common.ray.probes" (dict "path" "/api/gcs_healthz" "port" 8265) | fromYaml }}
    {{- $_ := set $more "lifecycle" (include "common.ray.lifecycle" (dict "values" $values "head" true) | fromYaml) }}
    {{- $container := dict "name" "ray-head" "ports" $ports "env" $env "more" $more }}
    {{- include "common.pod" (dict "values" $values "head" true "cpu" $values.head.cpu "memory" $values.head.memory "container" $container "labels" .labels "annotations" .annotations "token" (or .autoscaling .kubernetesTokens)) | nindent 4 }}
workerGroupSpecs:
  {{- range .slices }}
  - groupName: {{ .group | quote }}
    {{- if $in.autoscaling }}
    replicas: {{ int64 $values.cluster.minSlices }}
    minReplicas: {{ int64 $values.cluster.minSlices }}
    maxReplicas: {{ int64 $values.cluster.maxSlices }}
    {{- else }}
    replicas: {{ int64 .slice.count }}
    minReplicas: {{ int64 .slice.count }}
    maxReplicas: {{ int64 .slice.count }}
    {{- end }}
    numOfHosts: {{ int64 .slice.resolved.hosts }}
    rayStartParams: {}
    template:
      {{- $more := include "common.ray.probes" (dict "path" "/api/local_raylet_healthz" "port" 52365) | fromYaml }}
      {{- $_ := set $more "lifecycle" (include "common.ray.lifecycle" (dict "values" $values "head" false) | fromYaml) }}
      {{- $ports := ternary (include "common.pod.metricsPort" $values | fromJson) dict $in.trains }}
      {{- $container := dict "name" "ray-worker" "ports" $ports "env" (ternary (list $noDrain) list $in.podLog) "more" $more }}
      {{- $annotations := mergeOverwrite (include "common.topologyRequest" (dict "slice" .slice "sliced" (gt (int64 .slice.count) 1)) | fromJson) $in.annotations }}
      {{- include "common.pod" (dict "values" $values "head" false "slice" .slice "cpu" .cpu "memory" .memory "container" $container "labels" $in.labels "annotations" $annotations "token" $in.kubernetesTokens) | nindent 6 }}
  {{- end }}
{{- end -}}

{{- /*
Ready once Ray answers; killed only after ten minutes without an answer (KubeRay's own figure), for a host that is
busy compiling answers late. The paths need no token.
*/ -}}
{{- define "common.ray.probes" -}}
readinessProbe:
  httpGet: {path: {{ .path }}, port: {{ .port }}}
  initialDelaySeconds: 10
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 10
livenessProbe:
  httpGet: {path: {{ .path }}, port: {{ .port }}}
  initialDelaySeconds: 30
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 120
{{- end -}}

{{- /*
A pod that is told to end (a spot machine taken back, a drained node, a run that Kueue preempts) has its run write one
more checkpoint, and stays until it has (trainer/prestop.py). A worker's tells Ray, so that the restart is a preemption
to Ray Train and not one of run.maxRestarts. Takes values; head (bool).
*/ -}}
{{- define "common.ray.lifecycle" -}}
preStop:
  exec:
    command: [python, -m, trainer.prestop, --seconds, {{ int64 .values.run.graceSeconds | quote }}{{ if .head }}, --head{{ end }}]
{{- end -}}

{{- /*
common.topologyRequest: JSON of the annotations that ask Kueue to keep a slice's pods on one node pool, where
slice.placement is topology; `sliced`: the pod set holds several slices, each of which is kept together.
*/ -}}
{{- define "common.topologyRequest" -}}
  {{- $annotations := dict -}}
  {{- if and (eq .slice.placement "topology") (ne .slice.resolved.kind "cpu") -}}
    {{- $level := "cloud.google.com/gke-nodepool" -}}
    {{- if .sliced -}}
      {{- $_ := set $annotations "kueue.x-k8s.io/podset-slice-required-topology" $level -}}
      {{- $_ := set $annotations "kueue.x-k8s.io/podset-slice-size" (.slice.resolved.hosts | int64 | toString) -}}
    {{- else -}}
      {{- $_ := set $annotations "kueue.x-k8s.io/podset-required-topology" $level -}}
    {{- end -}}
  {{- end -}}
  {{- $annotations | toJson -}}
{{- end -}}
