{{- define "queues.rules.teams" -}}
  {{- $wrong := list -}}
  {{- $queues := .Values.clusterQueues -}}
  {{- $priorities := include "queues.priorities" . | fromJson -}}
  {{- $teams := include "queues.teams" . | fromJson -}}
  {{- $owners := dict -}}
  {{- range $name, $team := $teams }}{{ $_ := set $owners $team.namespace $name }}{{ end -}}
  {{- $reserved := concat .Values.network.operatorNamespaces (list "kueue-system" "jobset-system" "ray-system" "cert-manager" "istio-system") -}}
  {{- $namespaces := dict -}}
  {{- range $name, $team := $teams -}}
    {{- $key := printf "teams.%s" $name -}}
    {{- range $field, $value := dict "" $name ".namespace" $team.namespace ".queue" $team.queue ".serviceAccount.name" $team.serviceAccount.name -}}
      {{- if or (not $field) (ne $value $name) -}}
        {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" (printf "%s%s" $key $field) "name" $value "max" 63)) -}}
      {{- end -}}
    {{- end -}}
    {{- if not $team.clusterQueue -}}
      {{- $wrong = append $wrong (printf "%s.clusterQueue is empty; set it to one of clusterQueues: %s." $key (keys $queues | sortAlpha | join ", " | default "no entries")) -}}
    {{- else if not (hasKey $queues $team.clusterQueue) -}}
      {{- $wrong = append $wrong (printf "%s.clusterQueue: unknown ClusterQueue %q (available in clusterQueues: %s)." $key $team.clusterQueue (keys $queues | sortAlpha | join ", " | default "no entries")) -}}
    {{- end -}}
    {{- with get $namespaces $team.namespace -}}
      {{- $wrong = append $wrong (printf "%s.namespace is %s, which teams.%s already uses; each team requires a namespace of its own." $key $team.namespace .) -}}
    {{- end -}}
    {{- $_ := set $namespaces $team.namespace $name -}}
    {{- if regexMatch "^kube-" $team.namespace -}}
      {{- $wrong = append $wrong (printf "%s.namespace: Kubernetes reserves %s; choose another namespace." $key $team.namespace) -}}
    {{- else if or (has $team.namespace $reserved) (regexMatch "^(gke|gmp|kuberay)-" $team.namespace) -}}
      {{- $wrong = append $wrong (printf "%s.namespace: %s is a namespace of the cluster's controllers, in which members would have rights; choose another namespace." $key $team.namespace) -}}
    {{- else if and (eq $team.namespace "default") $team.networkPolicy -}}
      {{- $wrong = append $wrong (printf "%s.networkPolicy would restrict all pods in the namespace default, including those of other users; set %s.networkPolicy: false, or give the team a namespace of its own." $key $key) -}}
    {{- end -}}
    {{- if and $team.serviceAccount.create (eq $team.serviceAccount.name "default") -}}
      {{- $wrong = append $wrong (printf "%s.serviceAccount.name: the service account default already exists in every namespace; choose another name, or set %s.serviceAccount.create: false." $key $key) -}}
    {{- else if and $team.serviceAccount.annotations (not $team.serviceAccount.create) -}}
      {{- $wrong = append $wrong (printf "%s.serviceAccount.annotations requires %s.serviceAccount.create: true." $key $key) -}}
    {{- end -}}
    {{- if and $team.serviceAccount.imagePullSecrets (not $team.serviceAccount.create) -}}
      {{- $wrong = append $wrong (printf "%s.serviceAccount.imagePullSecrets requires %s.serviceAccount.create: true." $key $key) -}}
    {{- end -}}
    {{- range $team.serviceAccount.imagePullSecrets -}}
      {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" (printf "%s.serviceAccount.imagePullSecrets" $key) "name" . "max" 253)) -}}
    {{- end -}}
    {{- $wrong = concat $wrong (include "queues.rules.namespace" (dict "root" $ "key" $key "name" $name "team" $team "queue" (get $queues $team.clusterQueue | default dict)) | fromJsonArray) -}}
    {{- range $role := list "leads" "members" "viewers" -}}
      {{- $path := printf "%s.%s" $key $role -}}
      {{- range $member, $kind := get $team $role -}}
        {{- if and (eq $kind "ServiceAccount") (not (regexMatch "^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" $member)) -}}
          {{- $wrong = append $wrong (printf "%s: %q is not a valid service account; write NAME, or NAMESPACE/NAME." $path $member) -}}
        {{- else -}}
          {{- $account := ternary (splitList "/" $member) (list) (and (eq $kind "ServiceAccount") (contains "/" $member)) -}}
          {{- if and (eq $kind "User") (regexMatch "^system:serviceaccount:[^:]+:[^:]+$" $member) }}{{ $account = splitList ":" $member | rest | rest }}{{ end -}}
          {{- $owner := get $owners (first $account | default "") -}}
          {{- if $account -}}
            {{- if and $owner (ne $owner $name) -}}
              {{- $wrong = append $wrong (printf "%s: %s is a service account of teams.%s, and all members of that team can use it; list its members, or a service account of a namespace that belongs to no team." $path $member $owner) -}}
            {{- end -}}
          {{- else if and (hasPrefix "system:" $member) (ne $member (printf "system:serviceaccounts:%s" $team.namespace)) -}}
            {{- $wrong = append $wrong (printf "%s: %s includes users outside the team; list the team's own users, groups and service accounts." $path $member) -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
    {{- range $team.priorities -}}
      {{- if not (hasKey $priorities .) -}}
        {{- $wrong = append $wrong (printf "%s.priorities: unknown priority %q (available in priorities: %s)." $key . (keys $priorities | sortAlpha | join ", " | default "no entries")) -}}
      {{- end -}}
    {{- end -}}
    {{- range $field := list "queues" "serviceAccounts" -}}
      {{- range get $team.allow $field -}}
        {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" (printf "%s.allow.%s" $key $field) "name" . "max" 63)) -}}
      {{- end -}}
    {{- end -}}
    {{- range $team.clusters -}}
      {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" (printf "%s.clusters" $key) "name" . "max" 41)) -}}
    {{- end -}}
    {{- if and $team.k8sTokenAuth (not $team.clusters) -}}
      {{- $wrong = append $wrong (printf "%s.k8sTokenAuth requires %s.clusters, the clusters that accept members' tokens." $key $key) -}}
    {{- end -}}
    {{- $wrong = concat $wrong (include "queues.rules.limits" (dict "key" (printf "%s.resourceQuota" $key) "limits" $team.resourceQuota) | fromJsonArray) -}}
    {{- $wrong = concat $wrong (include "queues.rules.limitRange" (dict "key" (printf "%s.limitRange" $key) "types" $team.limitRange) | fromJsonArray) -}}
  {{- end -}}
  {{- $wrong = concat $wrong (include "queues.rules.limits" (dict "key" "resourceQuota" "limits" .Values.resourceQuota) | fromJsonArray) -}}
  {{- $wrong = concat $wrong (include "queues.rules.limitRange" (dict "key" "limitRange" "types" .Values.limitRange) | fromJsonArray) -}}
  {{- compact $wrong | toJson -}}
{{- end -}}

{{- define "queues.rules.network" -}}
  {{- $wrong := list -}}
  {{- $network := .Values.network -}}
  {{- range $field := list "operatorNamespaces" "fromNamespaces" "modelsFromNamespaces" -}}
    {{- range get $network $field -}}
      {{- $wrong = append $wrong (include "queues.rules.name" (dict "key" (printf "network.%s" $field) "name" . "max" 63)) -}}
    {{- end -}}
  {{- end -}}
  {{- $cidrs := dict -}}
  {{- range $field := list "proxyCidrs" "hostCidrs" "dnsCidrs" "httpsCidrs" }}{{ $_ := set $cidrs (printf "network.%s" $field) (get $network $field) }}{{ end -}}
  {{- range $name, $egress := $network.egress }}{{ $_ := set $cidrs (printf "network.egress.%s.cidr" $name) (list $egress.cidr) }}{{ end -}}
  {{- $byte := "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])" -}}
  {{- $v4 := printf "^%s(\\.%s){3}/([12]?[0-9]|3[0-2])$" $byte $byte -}}
  {{- range $key, $list := $cidrs -}}
    {{- range $list -}}
      {{- if not (or (regexMatch $v4 .) (regexMatch "^[0-9a-fA-F]*:[0-9a-fA-F:]*/([1-9]?[0-9]|1[01][0-9]|12[0-8])$" .)) -}}
        {{- $wrong = append $wrong (printf "%s: %q is not a valid CIDR; write it like 10.0.0.0/8." $key .) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- compact $wrong | toJson -}}
{{- end -}}
