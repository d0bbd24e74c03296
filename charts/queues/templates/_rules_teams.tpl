{{- define "queues.rules.teams" -}}
  {{- $queues := .Values.clusterQueues -}}
  {{- $priorities := .Values.priorities -}}
  {{- $teams := .Values.teams -}}
  {{- $owners := dict -}}
  {{- range $name, $team := $teams }}{{ $_ := set $owners $team.namespace $name }}{{ end -}}
  {{- $reserved := concat .Values.network.operatorNamespaces (list "kueue-system" "jobset-system" "ray-system" "cert-manager"
      "istio-system") -}}
  {{- $namespaces := dict -}}
  {{- range $name, $team := $teams -}}
    {{- $key := printf "teams.%s" $name -}}
    {{- range $field, $value := dict "" $name ".namespace" $team.namespace ".queue" $team.queue ".serviceAccount.name"
        $team.serviceAccount.name -}}
      {{- if or (not $field) (ne $value $name) -}}
        {{- include "queues.rules.name" (dict "key" (printf "%s%s" $key $field) "name" $value "max" 63) -}}
      {{- end -}}
    {{- end -}}
    {{- if not $team.clusterQueue -}}
      {{- printf "%s.clusterQueue is empty; set it to one of clusterQueues: %s.\n" $key (keys $queues | sortAlpha | join ", " | default
          "no entries") -}}
    {{- else -}}
      {{- include "queues.rules.known" (dict "key" (printf "%s.clusterQueue" $key) "what" "ClusterQueue" "name" $team.clusterQueue
          "map" "clusterQueues" "entries" $queues) -}}
    {{- end -}}
    {{- with get $namespaces $team.namespace -}}
      {{- printf "%s.namespace is %s, which teams.%s already uses; each team requires a namespace of its own.\n" $key $team.namespace . -}}
    {{- end -}}
    {{- $_ := set $namespaces $team.namespace $name -}}
    {{- if regexMatch "^kube-" $team.namespace -}}
      {{- printf "%s.namespace: Kubernetes reserves %s; choose another namespace.\n" $key $team.namespace -}}
    {{- else if or (has $team.namespace $reserved) (regexMatch "^(gke|gmp|kuberay)-" $team.namespace) -}}
      {{- printf (print "%s.namespace: %s is a namespace of the cluster's controllers, in which members would have rights; "
          "choose another namespace.\n") $key $team.namespace -}}
    {{- else if and (eq $team.namespace "default") $team.networkPolicy -}}
      {{- printf (print "%s.networkPolicy would restrict all pods in the namespace default, including those of other users; "
          "set %s.networkPolicy: false, or give the team a namespace of its own.\n") $key $key -}}
    {{- end -}}
    {{- if and $team.serviceAccount.create (eq $team.serviceAccount.name "default") -}}
      {{- printf (print "%s.serviceAccount.name: the service account default already exists in every namespace; choose "
          "another name, or set %s.serviceAccount.create: false.\n") $key $key -}}
    {{- else if and $team.serviceAccount.annotations (not $team.serviceAccount.create) -}}
      {{- printf "%s.serviceAccount.annotations requires %s.serviceAccount.create: true.\n" $key $key -}}
    {{- end -}}
    {{- if and $team.serviceAccount.imagePullSecrets (not $team.serviceAccount.create) -}}
      {{- printf "%s.serviceAccount.imagePullSecrets requires %s.serviceAccount.create: true.\n" $key $key -}}
    {{- end -}}
    {{- include "queues.rules.names" (dict "key" (printf "%s.serviceAccount.imagePullSecrets" $key)
        "names" $team.serviceAccount.imagePullSecrets "max" 253) -}}
    {{- include "queues.rules.namespace" (dict "root" $ "key" $key "name" $name "team" $team "queue" (get $queues $team.clusterQueue |
        default dict)) -}}
    {{- range $role := list "leads" "members" "viewers" -}}
      {{- $path := printf "%s.%s" $key $role -}}
      {{- range $member, $kind := get $team $role -}}
        {{- if and (eq $kind "ServiceAccount") (not (regexMatch "^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
            $member)) -}}
          {{- printf "%s: %q is not a valid service account; write NAME, or NAMESPACE/NAME.\n" $path $member -}}
        {{- else -}}
          {{- $account := ternary (splitList "/" $member) (list) (and (eq $kind "ServiceAccount") (contains "/" $member)) -}}
          {{- if and (eq $kind "User") (regexMatch "^system:serviceaccount:[^:]+:[^:]+$" $member) }}{{ $account = splitList ":" $member |
              rest | rest }}{{ end -}}
          {{- $owner := get $owners (first $account | default "") -}}
          {{- if $account -}}
            {{- if and $owner (ne $owner $name) -}}
              {{- printf (print "%s: %s is a service account of teams.%s, and all members of that team can use it; list its members, "
                  "or a service account of a namespace that belongs to no team.\n") $path $member $owner -}}
            {{- end -}}
          {{- else if and (hasPrefix "system:" $member) (ne $member (printf "system:serviceaccounts:%s" $team.namespace)) -}}
            {{- printf "%s: %s includes users outside the team; list the team's own users, groups and service accounts.\n" $path $member -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
    {{- range $team.priorities -}}
      {{- include "queues.rules.known" (dict "key" (printf "%s.priorities" $key) "what" "priority" "name" . "map" "priorities"
          "entries" $priorities) -}}
    {{- end -}}
    {{- range list "queues" "serviceAccounts" -}}
      {{- include "queues.rules.names" (dict "key" (printf "%s.allow.%s" $key .) "names" (get $team.allow .) "max" 63) -}}
    {{- end -}}
    {{- include "queues.rules.names" (dict "key" (printf "%s.clusters" $key) "names" $team.clusters "max" 41) -}}
    {{- if and $team.k8sTokenAuth (not $team.clusters) -}}
      {{- printf "%s.k8sTokenAuth requires %s.clusters, the clusters that accept members' tokens.\n" $key $key -}}
    {{- end -}}
    {{- include "queues.rules.limits" (dict "key" (printf "%s.resourceQuota" $key) "limits" $team.resourceQuota) -}}
    {{- include "queues.rules.limitRange" (dict "key" (printf "%s.limitRange" $key) "types" $team.limitRange) -}}
  {{- end -}}
  {{- include "queues.rules.limits" (dict "key" "resourceQuota" "limits" .Values.resourceQuota) -}}
  {{- include "queues.rules.limitRange" (dict "key" "limitRange" "types" .Values.limitRange) -}}
{{- end -}}

{{- define "queues.rules.network" -}}
  {{- $network := .Values.network -}}
  {{- range list "operatorNamespaces" "fromNamespaces" "modelsFromNamespaces" -}}
    {{- include "queues.rules.names" (dict "key" (printf "network.%s" .) "names" (get $network .) "max" 63) -}}
  {{- end -}}
  {{- $cidrs := dict -}}
  {{- range $field := list "proxyCidrs" "hostCidrs" "dnsCidrs" "httpsCidrs" }}{{ $_ := set $cidrs (printf "network.%s" $field)
      (get $network $field) }}{{ end -}}
  {{- range $name, $egress := $network.egress }}{{ $_ := set $cidrs (printf "network.egress.%s.cidr" $name) (list $egress.cidr) }}{{ end -}}
  {{- $byte := "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])" -}}
  {{- $v4 := printf "^%s(\\.%s){3}/([12]?[0-9]|3[0-2])$" $byte $byte -}}
  {{- range $key, $list := $cidrs -}}
    {{- range $list -}}
      {{- if not (or (regexMatch $v4 .) (regexMatch "^[0-9a-fA-F]*:[0-9a-fA-F:]*/([1-9]?[0-9]|1[01][0-9]|12[0-8])$" .)) -}}
        {{- printf "%s: %q is not a valid CIDR; write it like 10.0.0.0/8.\n" $key . -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
