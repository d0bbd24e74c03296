{{- /* Patterns of charts/_rules.json. `make charts` writes this file. */ -}}
{{- define "common.pattern.kubernetesName" }}^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?${{- end -}}
{{- define "common.pattern.secretVariable" }}
  {{- `TOKEN[0-9]*$|(^|_)SECRET_|SECRETS?$|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|_KEY[0-9]*$|(API|ACCESS|PRIVATE)KEY$` -}}
{{- end -}}
{{- define "common.pattern.plainVariable" }}
  {{- `_(FILE|PATH|DIR|NAME|ID|URL|TYPE|MODE)$|(^|_)(USE|DISABLE|ENABLE)_|^(JAX|XLA|LIBTPU)_|^GOOGLE_APPLICATION_CREDENTIALS$|^` -}}
  {{- `RAY_(SERVE_SESSION_ID_HEADER|TLS_SERVER)_KEY$|(^|_)(PAD|BOS|EOS|UNK|MASK|SEP|CLS|STOP|START|END|SPECIAL|IMAGE|PER)_TOKEN` -}}
  {{- `$|(^|_)(PUBLIC|CACHE|SORT|PRIMARY|PARTITION|GROUP|TEXT|PROMPT|LABEL|IMAGE|FEATURE|INPUT|TARGET|METRIC|RNG|PRNG|RANDOM)_K` -}}
  {{- `EY$` -}}
{{- end -}}
{{- define "common.pattern.quantity" }}^[+]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?${{- end -}}
{{- define "common.pattern.bytes" }}^[+]?([0-9]{1,6}(\.[0-9]*)?|\.[0-9]+)[num]?${{- end -}}
{{- define "common.pattern.zero" }}^[+]?[0.]*0[0.]*([KMGTPE]i|[numkMGTPE])?${{- end -}}
