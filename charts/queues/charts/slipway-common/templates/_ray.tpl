{{- /* common.ray.spec: the spec of a Ray cluster, long-lived (charts/ray-cluster), of a RayJob (charts/run) or of a
RayService (charts/serve).

values            the values of the chart
slices            the list of groups that common.slices returns
labels            labels of the pods (dict)
annotations       annotations of the pods (dict)
autoscaling       whether Ray's autoscaler is on
podLog            whether the trainer copies its output to the log of the head's pod
attempt           the variable with the number of the run's attempt (dict); none in a long-lived cluster
kubernetesTokens  whether Ray asks Kubernetes to check tokens; KubeRay supports this only for a long-lived cluster
trains            whether the trainer runs on the hosts, and not another program
servePort         the port of a served model; 0 or absent: the cluster serves none */ -}}
{{- define "common.ray.spec" -}}
  {{- include "common.limitTemplates" (dict "text" (include "common.ray.clusterSpec" .) "count" (add 1 (len .slices))) -}}
{{- end -}}

{{- /* common.ray.clusterSpec: common.ray.spec, of any size. */ -}}
{{- define "common.ray.clusterSpec" -}}
{{- $in := . }}
{{- $values := .values -}}
{{- /* When Ray is terminated, it waits up to 30 seconds for its node to be idle. A head is never idle, because the
watcher of a job stays on it. A host whose head has ended first asks it for that long, and keeps its chips. In the cluster
of a run, the hook (common.ray.more) has already waited for everything that must finish. */}}
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
  # The defaults of the operator for the autoscaler. The quota of the queue must cover them.
  resources:
    requests: {cpu: 500m, memory: 512Mi}
    limits: {cpu: 500m, memory: 512Mi}
  securityContext:
    {{- include "common.containerSecurity" . | nindent 4 }}
{{- end }}
{{- with ($values.tracking | default dict).historyServer }}
{{- if .image }}
historyServerOptions:
  collectorOptions:
    image: {{ .image | quote }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    # Kueue does not count these requests, which each pod has.
    resources:
      requests: {cpu: 50m, memory: 256Mi}
      limits: {cpu: 200m, memory: 256Mi}
    env:
      - {name: STORAGE_BACKEND, value: gcs}
      - {name: GCS_BUCKET, value: {{ .bucket | quote }}}
{{- end }}
{{- end }}
headGroupSpec:
  # Run no tasks on the head: it is not one of the hosts.
  rayStartParams:
    num-cpus: "0"
  template:
    {{- $ports := dict "gcs-server" 6379 "dashboard" 8265 "client" 10001 }}
    {{- with .servePort }}{{ $_ := set $ports "serve" . }}{{ end }}
    {{- $env := list }}
    {{- if .podLog }}
    {{- /* Ray writes the output of a job to a file, but `kubectl logs` shows what the container's first process prints.
    The trainer can write to the pipe of that process: the container's user owns it (runc, fixStdioPermissions). */}}
    {{- $env = append $env (dict "name" "SLIPWAY_POD_LOG" "value" "/proc/1/fd/1") }}
    {{- with $in.attempt }}{{ $env = append $env . }}{{ end }}
    {{- $env = append $env $noDrain }}
    {{- end }}
    {{- /* A stopped job has as much time as a pod for its last checkpoint. Ray's default is 3 seconds. */}}
    {{- $env = append $env (dict "name" "RAY_JOB_STOP_WAIT_TIME_S" "value" (int64 $values.run.graceSeconds | toString)) }}
    {{- $more := include "common.ray.more" (dict "in" $in "option" "--head" "path" "/api/gcs_healthz" "port" 8265) | fromYaml }}
    {{- $container := dict "name" "ray-head" "ports" $ports "env" $env "more" $more }}
    {{- include "common.pod" (dict "values" $values "head" true "cpu" $values.head.cpu "memory" $values.head.memory
        "container" $container "labels" .labels "annotations" .annotations
        "token" (or .autoscaling .kubernetesTokens)) | nindent 4 }}
workerGroupSpecs:
  {{- range .slices }}
  - groupName: {{ .group | quote }}
    {{- $fixed := dict "minSlices" .slice.count "maxSlices" .slice.count }}
    {{- $limits := ternary $values.cluster $fixed $in.autoscaling }}
    replicas: {{ int64 $limits.minSlices }}
    minReplicas: {{ int64 $limits.minSlices }}
    maxReplicas: {{ int64 $limits.maxSlices }}
    numOfHosts: {{ int64 .slice.resolved.hosts }}
    rayStartParams: {}
    template:
      {{- $option := ternary "" "--serve" (empty $in.servePort) }}
      {{- $more := include "common.ray.more" (dict "in" $in "option" $option "path" "/api/local_raylet_healthz" "port" 52365) | fromYaml }}
      {{- $ports := dict }}
      {{- /* The port is not called `metrics`: KubeRay uses this name for the port of Ray's own metrics. */}}
      {{- if $in.trains }}{{ with int64 $values.tracking.metricsPort }}{{ $_ := set $ports "train-metrics" . }}{{ end }}{{ end }}
      {{- with $in.servePort }}
      {{- /* The proxy answers if it has a route to a replica that is ready. Without it, the pod must get no requests. */}}
      {{- $_ := set $ports "serve" . }}
      {{- $_ := set $more.readinessProbe "httpGet" (dict "path" "/-/healthz" "port" "serve") }}
      {{- $_ := set $more.readinessProbe "failureThreshold" 1 }}
      {{- end }}
      {{- $container := dict "name" "ray-worker" "ports" $ports "env" (ternary (list $noDrain) list $in.podLog) "more" $more }}
      {{- include "common.pod" (dict "values" $values "head" false "slice" .slice "cpu" .cpu "memory" .memory
          "container" $container "labels" $in.labels "annotations" $in.annotations
          "token" $in.kubernetesTokens) | nindent 6 }}
  {{- end }}
{{- end -}}

{{- /* common.ray.more: the probes and the preStop hook of a container. Takes `in`, what common.ray.spec takes; `path` and `port`
of the probes; and an `option` of the hook.

A container is ready when Ray answers. It is killed only after ten minutes without an answer (KubeRay's own value), because
a host that is compiling answers late. The paths do not require a token.

When a pod must end (a spot machine is reclaimed, a node is drained, Kueue preempts the run), the hook asks the run for one
more checkpoint and waits for it (trainer/prestop.py). The hook of a worker also notifies Ray, so that Ray Train counts the
restart as a preemption and not towards run.maxRestarts, and Ray Serve starts a replica elsewhere and sends this one no more
requests. */ -}}
{{- define "common.ray.more" -}}
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
lifecycle:
  preStop:
    exec:
      {{- $command := list "python" "-m" "trainer.prestop" "--seconds" (int64 .in.values.run.graceSeconds | toString) .option }}
      command: {{ compact $command | toJson }}
{{- end -}}
