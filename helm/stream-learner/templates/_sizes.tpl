{{/*
Quantities of Kubernetes and durations of the configuration, as numbers.
*/}}

{{/* Bytes of a quantity, such as 2Gi, 1500M, 1.5Gi or a number. */}}
{{- define "stream-learner.bytes" -}}
{{- if not (kindIs "string" .) -}}
{{- int64 . -}}
{{- else -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $unit := trimPrefix $number . -}}
{{- if or (not $number) (not (hasKey $units $unit)) -}}
{{- fail (printf "%s is no amount of memory: write it like 2Gi or 1500Mi" .) -}}
{{- end -}}
{{- mulf (float64 $number) (get $units $unit) | floor | int64 -}}
{{- end -}}
{{- end -}}

{{/* Seconds of a duration such as 1h30m or 500ms, rounded up. */}}
{{- define "stream-learner.seconds" -}}
{{- $seconds := 0.0 -}}
{{- $units := dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h|d)" (toString .) -1 -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $seconds = addf $seconds (mulf (float64 $number) (get $units (trimPrefix $number .))) -}}
{{- end -}}
{{- $seconds | ceil | int64 -}}
{{- end -}}

{{/* A setting that is so many per cent of the memory limit, in whole MiB, from a list of whose limit it is (for
messages), resources, per cent, and among how many it is shared. */}}
{{- define "stream-learner.bufferOf" -}}
{{- $limit := dig "limits" "memory" "" (index . 1) -}}
{{- if not $limit -}}
{{- fail (printf "%s.resources.limits.memory is missing: buffers are derived from it" (first .)) -}}
{{- end -}}
{{- $bytes := include "stream-learner.bytes" $limit | int64 -}}
{{- if lt $bytes 536870912 -}}
{{- fail (printf "%s: a memory limit of %v is too little: a role without any data takes 200Mi, and 512Mi is the least that leaves room for some" (first .) $limit) -}}
{{- end -}}
{{- if gt (include "stream-learner.bytes" (dig "requests" "memory" $limit (index . 1)) | int64) $bytes -}}
{{- fail (printf "%s: resources.requests.memory is above resources.limits.memory (%v)" (first .) $limit) -}}
{{- end -}}
{{- printf "%dMiB" (div (mul $bytes (int64 (index . 2))) (mul 104857600 (int64 (index . 3))) | max 16) -}}
{{- end -}}

{{- /* How many seconds a role has to end: as many as were given, and what shutdown_timeout needs. Takes what a pod does. */}}
{{- define "stream-learner.grace" -}}
{{- $config := include "stream-learner.givenConfig" . | fromYaml -}}
{{- $timeout := include "stream-learner.seconds" (dig "shutdown_timeout" "1m" $config) | int64 -}}
{{- max .settings.terminationGracePeriodSeconds (add $timeout 15) -}}
{{- end }}
