{{- define "queues.rules.teams" -}}
  {{- $queues := .Values.clusterQueues -}}
  {{- $owners := dict -}}
  {{- range $name, $team := .Values.teams }}{{ $_ := set $owners $team.namespace $name }}{{ end -}}
  {{- $reserved := concat .Values.network.operatorNamespaces
      (list "kueue-system" "jobset-system" "ray-system" "cert-manager" "istio-system") -}}
  {{- $namespaces := dict -}}
  {{- range $name, $team := .Values.teams -}}
    {{- $key := printf "teams.%s" $name -}}
    {{- $space := $team.namespace -}}
    {{- $account := $team.serviceAccount -}}
    {{- include "queues.rules.name" (dict "key" $key "name" $name "max" 63) -}}
    {{- range $field, $value := dict "namespace" $space "queue" $team.queue "serviceAccount.name" $account.name -}}
      {{- if ne $value $name }}{{ include "queues.rules.name" (dict "key" (printf "%s.%s" $key $field) "name" $value "max" 63) }}{{ end -}}
    {{- end -}}
    {{- include "queues.rules.known"
        (dict "root" $ "key" (printf "%s.clusterQueue" $key) "name" $team.clusterQueue "map" "clusterQueues" "optional" true) -}}
    {{- include "common.sentences" (list
        (list (not $team.clusterQueue)
            (printf "%s.clusterQueue is empty; set it to one of clusterQueues: %s." $key
            (keys $queues | sortAlpha | join ", " | default "no entries")))
        (list (hasKey $namespaces $space)
            (printf "%s.namespace is %s, which teams.%s already uses; each team requires a namespace of its own." $key $space
            (get $namespaces $space)))
        (list (and $account.imagePullSecrets (not $account.create))
            (printf "%s.serviceAccount.imagePullSecrets requires %s.serviceAccount.create: true." $key $key))
        (list (and $account.annotations (not $account.create))
            (printf "%s.serviceAccount.annotations requires %s.serviceAccount.create: true." $key $key))
        (list (and $account.create (eq $account.name "default"))
            (printf (print "%s.serviceAccount.name: the service account default already exists in every namespace; choose "
            "another name, or set %s.serviceAccount.create: false.") $key $key))
        (list (and $team.k8sTokenAuth (not $team.clusters))
            (printf "%s.k8sTokenAuth requires %s.clusters, the clusters that accept members' tokens." $key $key))) -}}
    {{- include "common.sentence" (list
        (list (hasPrefix "kube-" $space)
            (printf "%s.namespace: Kubernetes reserves %s; choose another namespace." $key $space))
        (list (or (has $space $reserved) (regexMatch "^(gke|gmp|kuberay)-" $space))
            (printf (print "%s.namespace: %s is a namespace of the cluster's controllers, in which members would have rights; "
            "choose another namespace.") $key $space))
        (list (and (eq $space "default") $team.networkPolicy)
            (printf (print "%s.networkPolicy would restrict all pods in the namespace default, including those of other users; "
            "set %s.networkPolicy: false, or give the team a namespace of its own.") $key $key))) -}}
    {{- $_ := set $namespaces $space $name -}}
    {{- include "queues.rules.namespace" (dict "root" $ "key" $key "name" $name "team" $team
        "queue" (get $queues $team.clusterQueue | default dict)) -}}
    {{- range $role := list "leads" "members" "viewers" -}}
      {{- range $member, $kind := get $team $role -}}
        {{- include "queues.rules.member" (dict "key" (printf "%s.%s" $key $role) "member" $member "kind" $kind "team" $name
            "owners" $owners "namespace" $space) -}}
      {{- end -}}
    {{- end -}}
    {{- range $team.priorities -}}
      {{- include "queues.rules.known" (dict "root" $ "key" (printf "%s.priorities" $key) "name" . "map" "priorities") -}}
    {{- end -}}
    {{- range list (list "allow.queues" $team.allow.queues 63) (list "allow.serviceAccounts" $team.allow.serviceAccounts 63)
        (list "clusters" $team.clusters 41) (list "serviceAccount.imagePullSecrets" $account.imagePullSecrets 253) -}}
      {{- include "queues.rules.names" (dict "key" (printf "%s.%s" $key (first .)) "names" (index . 1) "max" (last .)) -}}
    {{- end -}}
    {{- include "queues.rules.limits" (dict "key" (printf "%s.resourceQuota" $key) "limits" $team.resourceQuota) -}}
    {{- include "queues.rules.limitRange" (dict "key" (printf "%s.limitRange" $key) "types" $team.limitRange) -}}
  {{- end -}}
  {{- include "queues.rules.limits" (dict "key" "resourceQuota" "limits" .Values.resourceQuota) -}}
  {{- include "queues.rules.limitRange" (dict "key" "limitRange" "types" .Values.limitRange) -}}
{{- end -}}

{{- /* The problem of a `member` of this `kind`. Takes the `key` of the role; the names of the `team` and of its `namespace`; and
`owners`, the teams by namespace. */ -}}
{{- define "queues.rules.member" -}}
  {{- $of := list -}}
  {{- if eq .kind "ServiceAccount" -}}
    {{- $of = splitList "/" .member | initial -}}
  {{- else if and (eq .kind "User") (regexMatch "^system:serviceaccount:[^:]+:[^:]+$" .member) -}}
    {{- $of = splitList ":" .member | initial | rest | rest -}}
  {{- end -}}
  {{- $owner := get .owners (first $of | default "") | default .team -}}
  {{- $name := "^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" -}}
  {{- include "common.sentence" (list
      (list (and (eq .kind "ServiceAccount") (not (regexMatch $name .member)))
          (printf "%s: %q is not a valid service account; write NAME, or NAMESPACE/NAME." .key .member))
      (list (ne $owner .team)
          (printf (print "%s: %s is a service account of teams.%s, and all members of that team can use it; list its members, "
          "or a service account of a namespace that belongs to no team.") .key .member $owner))
      (list (and (not $of) (hasPrefix "system:" .member) (ne .member (printf "system:serviceaccounts:%s" .namespace)))
          (printf "%s: %s includes users outside the team; list the team's own users, groups and service accounts." .key .member))) -}}
{{- end -}}

{{- define "queues.rules.network" -}}
  {{- $network := .Values.network -}}
  {{- range $field, $names := pick $network "operatorNamespaces" "fromNamespaces" "modelsFromNamespaces" -}}
    {{- include "queues.rules.names" (dict "key" (printf "network.%s" $field) "names" $names "max" 63) -}}
  {{- end -}}
  {{- $cidrs := pick $network "proxyCidrs" "hostCidrs" "dnsCidrs" "httpsCidrs" -}}
  {{- range $name, $egress := $network.egress }}{{ $_ := set $cidrs (printf "egress.%s.cidr" $name) (list $egress.cidr) }}{{ end -}}
  {{- $byte := "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])" -}}
  {{- $v4 := printf "^%s(\\.%s){3}/([12]?[0-9]|3[0-2])$" $byte $byte -}}
  {{- $v6 := "^[0-9a-fA-F]*:[0-9a-fA-F:]*/([1-9]?[0-9]|1[01][0-9]|12[0-8])$" -}}
  {{- range $key, $list := $cidrs -}}
    {{- range $list -}}
      {{- if not (or (regexMatch $v4 .) (regexMatch $v6 .)) -}}
        {{- printf "network.%s: %q is not a valid CIDR; write it like 10.0.0.0/8.\n" $key . -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
