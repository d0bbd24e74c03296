{{- /* The chips, hosts and machine type of a slice, from the table of accelerators. launcher/config/accelerators.py computes
the same; tests/charts/test_presets_slices.py compares the two for every shape. */ -}}

{{- /* common.slice: JSON of the slice that `slice` (accelerator, topology, machineType, hosts) requests: what the table's row
contains about one chip (kind, label, labelKey, resource, rayAcceleratorType, hbmGiB, peakTflops), name, machineType,
topology, chipsPerHost and, per slice, chips and hosts. If there is no such slice, `error` is a sentence that starts with a
key below `key`. Takes `slice`, `accelerators` (the table) and `key`. Sets `resolved` in `into`; renders nothing. */ -}}
{{- define "common.slice" -}}
  {{- $name := .slice.accelerator -}}
  {{- $row := get .accelerators $name | default dict -}}
  {{- $machines := $row.machineTypes | default dict -}}
  {{- $topology := .slice.topology | default "" -}}
  {{- $machine := .slice.machineType | default "" -}}
  {{- $hosts := .slice.hosts | default 0 | int64 -}}
  {{- $error := "" -}}
  {{- if not $row -}}
    {{- $error = printf "accelerator: unknown accelerator %q; use one of %s, or add it to common.accelerators." $name
        (keys .accelerators | sortAlpha | join ", ") -}}
  {{- else if eq $row.kind "tpu" -}}
    {{- $fitting := include "common.slice.machineTypes" (dict "row" $row "topology" $topology) | splitList "," | compact -}}
    {{- if $hosts -}}
      {{- $error = printf "hosts: the topology of a %s slice determines its hosts; remove %s.hosts." $name .key -}}
    {{- else if not $fitting -}}
      {{- $error = include "common.slice.noTopology" (dict "name" $name "row" $row "topology" $topology) -}}
    {{- else if and $machine (not (has $machine $fitting)) -}}
      {{- $error = printf "machineType: %q is not a machine type of a %s slice of %s; use %s." $machine $name $topology
          (include "common.either" $fitting) -}}
    {{- else -}}
      {{- $machine = $machine | default (first $fitting) -}}
      {{- $chips := 1 -}}
      {{- range splitList "x" $topology }}{{ $chips = mul $chips (int64 .) }}{{ end -}}
      {{- $hosts = div $chips (get $machines $machine | int64) -}}
    {{- end -}}
  {{- else -}}
    {{- $machine = $machine | default ($row.defaultMachineType | default "") -}}
    {{- $hosts = $hosts | default 1 -}}
    {{- if $topology -}}
      {{- $error = printf "topology: only TPU slices have a topology; for %s, set %s.hosts instead." $name .key -}}
    {{- else if and (eq $row.kind "gpu") (not (hasKey $machines $machine)) -}}
      {{- $error = printf "machineType: %q is not a machine type of %s; use %s." $machine $name
          (include "common.either" (keys $machines | sortAlpha)) -}}
    {{- end -}}
  {{- end -}}
  {{- if $error -}}
    {{- /* The error has the keys of a slice because `helm lint` continues after a `fail`. */ -}}
    {{- $_ := set .into "resolved" (dict "error" (printf "%s.%s" .key $error) "name" $name "kind" "" "label" "" "topology" ""
        "chipsPerHost" 0 "hosts" 0 "chips" 0) -}}
  {{- else -}}
    {{- $perHost := get $machines $machine | default 1 | int64 -}}
    {{- $of := dict "name" $name "machineType" $machine "topology" $topology "chipsPerHost" $perHost "hosts" $hosts
        "chips" (mul $perHost $hosts) -}}
    {{- $row = omit $row "topologies" "larger" "machineTypes" "hostMemoryGiB" "hostCpus" "defaultMachineType" "dimensions"
        "coresPerChip" -}}
    {{- $_ := set .into "resolved" (mergeOverwrite $of $row) -}}
  {{- end -}}
{{- end -}}

{{- /* common.slice.machineTypes: the machine types that a TPU's `row` lists for the shape `topology`, the default first,
joined by commas; "" if the row does not have the shape. */ -}}
{{- define "common.slice.machineTypes" -}}
  {{- $listed := get (.row.topologies | default dict) .topology -}}
  {{- $larger := .row.larger -}}
  {{- if $listed -}}
    {{- join "," $listed -}}
  {{- else if and $larger (regexMatch "^[1-9][0-9]{0,3}(x[1-9][0-9]{0,3})+$" .topology) -}}
    {{- $fits := eq (len (splitList "x" .topology)) (int .row.dimensions) -}}
    {{- $chips := 1 -}}
    {{- $before := 0 -}}
    {{- range splitList "x" .topology -}}
      {{- $side := int64 . -}}
      {{- if or (mod $side 4) (gt $side (int64 $larger.maxSide)) (and $larger.ordered (lt $side $before)) }}{{ $fits = false }}{{ end -}}
      {{- $chips = mul $chips $side -}}
      {{- $before = $side -}}
    {{- end -}}
    {{- if and $fits (le $chips (mul 64 (int64 $larger.maxCubes))) }}{{ join "," $larger.machineTypes }}{{ end -}}
  {{- end -}}
{{- end -}}

{{- /* common.slice.noTopology: the sentence for a `topology` that the `row` of `name` does not have. */ -}}
{{- define "common.slice.noTopology" -}}
  {{- $shapes := list -}}
  {{- range $shape := keys (.row.topologies | default dict) | sortAlpha -}}
    {{- $chips := 1 -}}
    {{- range splitList "x" $shape }}{{ $chips = mul $chips (int64 .) }}{{ end -}}
    {{- $shapes = append $shapes (printf "%05d %s" $chips $shape) -}}
  {{- end -}}
  {{- $known := regexReplaceAll "(^|, )[0-9]{5} " ($shapes | sortAlpha | join ", ") "${1}" -}}
  {{- $larger := ternary " or a larger one whose sides are multiples of 4" "" (not (not .row.larger)) -}}
  {{- if .topology -}}
    {{- printf "topology: %q is not a topology of %s; use %s%s." .topology .name $known $larger -}}
  {{- else -}}
    {{- printf "topology: a %s slice requires a topology: %s%s." .name $known $larger -}}
  {{- end -}}
{{- end -}}

{{- /* common.either: words as a list in a sentence: a, b or c. */ -}}
{{- define "common.either" -}}
  {{- if gt (len .) 1 }}{{ initial . | join ", " }} or {{ end }}{{ last . -}}
{{- end -}}

{{- /* common.resource: the extended resource of a resolved slice's chips; "" for cpu. */ -}}
{{- define "common.resource" -}}
  {{- ternary (.resource | default "nvidia.com/gpu") (get (dict "tpu" "google.com/tpu") .kind) (eq .kind "gpu") -}}
{{- end -}}

{{- /* common.nodeLabels: set in `into` the labels that nodes with these machines have on GKE, or off GKE the label of the
row. Pods select nodes by them, and flavors match them. The accelerator `cpu` has none, because any machine is suitable. Takes
`accelerator` (the result of common.slice), `machineType` (as in the values, "" for any), `provisioning` and `reservation`.
Renders nothing. */ -}}
{{- define "common.nodeLabels" -}}
  {{- $of := .accelerator -}}
  {{- $tpu := eq $of.kind "tpu" -}}
  {{- range $key, $value := dict
      (ternary "cloud.google.com/gke-tpu-accelerator" ($of.labelKey | default "cloud.google.com/gke-accelerator") $tpu) $of.label
      "cloud.google.com/gke-tpu-topology" (ternary $of.topology "" $tpu)
      "cloud.google.com/gke-spot" (ternary "true" "" (eq .provisioning "spot"))
      "cloud.google.com/gke-flex-start" (ternary "true" "" (eq .provisioning "flex-start"))
      "cloud.google.com/reservation-name" (ternary .reservation "" (eq .provisioning "reservation")) -}}
    {{- if $value }}{{ $_ := set $.into $key $value }}{{ end -}}
  {{- end -}}
  {{- /* Some shapes have several machine types. For GPUs, the number that a pod requests is sufficient. */ -}}
  {{- if and $tpu .machineType }}{{ $_ := set .into "node.kubernetes.io/instance-type" .machineType }}{{ end -}}
{{- end -}}
