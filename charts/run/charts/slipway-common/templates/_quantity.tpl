{{- /* common.quantity: an amount in Kubernetes' canonical form, in which the API server stores it: the largest unit without a
fraction. 1000m is 1, 1024Mi is 1Gi, 0.5 is 500m, 5000 is 5k. Any other form would differ from the stored object in every
comparison. Takes a number or a text.

The result is rounded up to thousandths, as the API server rounds the resources of a pod. A text that is not an amount, or too
large for 64 bits, is returned unchanged, for the rules or the API server to reject. */ -}}
{{- define "common.quantity" -}}
  {{- $text := ternary . (toJson .) (kindIs "string" .) | trimPrefix "+" -}}
  {{- $unit := regexFind "([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$" $text -}}
  {{- $number := trimSuffix $unit $text -}}
  {{- $digits := regexReplaceAll "^0+" (replace "." "" $number) "" -}}
  {{- if or (not (regexMatch "^([0-9]+\\.?[0-9]*|\\.[0-9]+)$" $number)) (gt (len $digits) 18) -}}
    {{- $text -}}
  {{- else -}}
    {{- $decimals := regexFind "\\.[0-9]*$" $number | trimPrefix "." | len -}}
    {{- $exponents := dict "n" -9 "u" -6 "m" -3 "k" 3 "M" 6 "G" 9 "T" 12 "P" 15 "E" 18 -}}
    {{- if hasSuffix "i" $unit -}}
      {{- include "common.quantity.binary" (dict "digits" $digits "decimals" $decimals "unit" $unit) | default $text -}}
    {{- else -}}
      {{- $exponent := get $exponents $unit | default (regexReplaceAll "^[eE][+]?(-?)0*" $unit "${1}" | int64) | int64 -}}
      {{- include "common.quantity.decimal" (dict "digits" $digits "exponent" (sub $exponent $decimals)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* The canonical form of `digits`, an integer as a text, times ten to the power of `exponent`. */ -}}
{{- define "common.quantity.decimal" -}}
  {{- $digits := .digits -}}
  {{- $exponent := int .exponent -}}
  {{- if lt $exponent -3 -}}
    {{- $all := printf "%s%s" (repeat (sub -3 $exponent | int) "0") $digits -}}
    {{- $kept := substr 0 (len $digits) $all -}}
    {{- $up := ternary 1 0 (regexMatch "[1-9]" (trimPrefix $kept $all)) -}}
    {{- $digits = add (regexReplaceAll "^0+" $kept "" | int64) $up | toString -}}
    {{- $exponent = -3 -}}
  {{- end -}}
  {{- $whole := regexReplaceAll "0+$" $digits "" -}}
  {{- if not $whole -}}
    0
  {{- else -}}
    {{- $exponent = add $exponent (sub (len $digits) (len $whole)) -}}
    {{- $thousands := min 6 (sub (div (add $exponent 3) 3) 1) -}}
    {{- $zeros := repeat (sub $exponent (mul 3 $thousands) | int) "0" -}}
    {{- $units := list "m" "" "k" "M" "G" "T" "P" "E" -}}
    {{- printf "%s%s%s" $whole $zeros (index $units (add 1 $thousands | int)) -}}
  {{- end -}}
{{- end -}}

{{- /* The same for `digits`, the last `decimals` of which are after the point, in a `unit` such as Gi; "" if too large. */ -}}
{{- define "common.quantity.binary" -}}
  {{- $units := list "" "Ki" "Mi" "Gi" "Ti" "Pi" "Ei" -}}
  {{- $amount := int64 .digits -}}
  {{- $power := get (dict "Ki" 1 "Mi" 2 "Gi" 3 "Ti" 4 "Pi" 5 "Ei" 6) .unit -}}
  {{- $divisor := printf "1%s" (repeat .decimals "0") | int64 -}}
  {{- /* Smaller units until the amount is an integer, then larger ones. */ -}}
  {{- $fits := true -}}
  {{- range until $power -}}
    {{- if mod $amount $divisor -}}
      {{- if gt $amount 9007199254740991 }}{{ $fits = false }}{{ end -}}
      {{- $amount = mul $amount 1024 -}}
      {{- $power = sub $power 1 | int -}}
    {{- end -}}
  {{- end -}}
  {{- if not $fits -}}
  {{- else if mod $amount $divisor -}}
    {{- include "common.quantity.decimal" (dict "digits" (toString $amount) "exponent" (sub 0 .decimals)) -}}
  {{- else -}}
    {{- $amount = div $amount $divisor -}}
    {{- range until (sub 6 $power | int) -}}
      {{- if and $amount (eq 0 (mod $amount 1024 | int)) }}{{ $amount = div $amount 1024 }}{{ $power = add $power 1 | int }}{{ end -}}
    {{- end -}}
    {{- if and $amount $power -}}
      {{- printf "%d%s" $amount (index $units $power) -}}
    {{- else -}}
      {{- include "common.quantity.decimal" (dict "digits" (toString $amount) "exponent" 0) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- /* A quantity as a number, to compare quantities: in cores or in bytes. */ -}}
{{- define "common.quantity.number" -}}
  {{- $canonical := include "common.quantity" . -}}
  {{- $unit := regexFind "[A-Za-z]*$" $canonical -}}
  {{- $number := trimSuffix $unit $canonical | float64 -}}
  {{- $powers := dict "k" 1 "M" 2 "G" 3 "T" 4 "P" 5 "E" 6 -}}
  {{- if eq $unit "m" -}}
    {{- $number = divf $number 1000 -}}
  {{- else -}}
    {{- range until (get $powers (trimSuffix "i" $unit | replace "K" "k") | int) -}}
      {{- $number = mulf $number (ternary 1024 1000 (hasSuffix "i" $unit)) -}}
    {{- end -}}
  {{- end -}}
  {{- $number -}}
{{- end -}}

{{- /* "true" if a quantity is more than another one. Takes the list of both. */ -}}
{{- define "common.quantity.exceeds" -}}
  {{- if gt (include "common.quantity.number" (first .) | float64) (include "common.quantity.number" (last .) | float64) }}true{{ end -}}
{{- end -}}
