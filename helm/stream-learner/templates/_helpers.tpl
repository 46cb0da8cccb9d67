{{/*
What the objects share: names, labels, the settings of a role, the configuration file.

Most helpers take a dictionary `at`: root (the chart's context), key and model (a model's name here, and its values),
role, settings (of the role, for this model).
*/}}

{{/* A name of at most 52 characters, from a list whose first item is the root: longer ones end in a checksum. The
controllers add up to 11 characters for pods and revisions, and 63 are allowed. */}}
{{- define "stream-learner.name" -}}
{{- $root := first . -}}
{{- $chart := default $root.Chart.Name $root.Values.nameOverride -}}
{{- $release := $root.Release.Name -}}
{{- $base := default (contains $chart $release | ternary $release (printf "%s-%s" $release $chart)) $root.Values.fullnameOverride -}}
{{- $name := prepend (rest .) $base | join "-" -}}
{{- if gt (len $name) 52 -}}
{{- printf "%s-%s" ($name | trunc 43 | trimSuffix "-") ($name | sha256sum | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end -}}

{{/* The name of a role's object. */}}
{{- define "stream-learner.roleName" -}}
{{- include "stream-learner.name" (list .root .key .role) -}}
{{- end -}}

{{/* What never changes for an object: selectors are immutable. */}}
{{- define "stream-learner.selectorLabels" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride | default .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .role }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .key }}
stream-learner/model: {{ . }}
{{- end }}
{{- end -}}

{{- define "stream-learner.labels" -}}
{{ include "stream-learner.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: stream-learner
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with include "stream-learner.commonLabels" .root | fromYaml }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels that values give to every object and pod. Selectors have none of them: they may change. */}}
{{- define "stream-learner.commonLabels" -}}
{{- toYaml (merge dict (.Values.commonLabels | default dict) (.Values.global | default dict | dig "labels" dict | default dict)) -}}
{{- end -}}

{{/* The annotations of an object's metadata, from a list of the root and mappings: of two that say the same, the first
one counts. Nothing where there are none. */}}
{{- define "stream-learner.annotations" -}}
{{- $found := dict -}}
{{- range append (rest .) ((first .).Values.commonAnnotations) -}}
{{- $found = merge $found (. | default dict) -}}
{{- end -}}
{{- with $found }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* The image. A registry takes the place of the one that the repository begins with. */}}
{{- define "stream-learner.image" -}}
{{- $repository := .Values.image.repository -}}
{{- with .Values.global | default dict | dig "imageRegistry" "" | default .Values.image.registry -}}
{{- $first := splitList "/" $repository | first -}}
{{- if and (contains "/" $repository) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) -}}
{{- $repository = trimPrefix (printf "%s/" $first) $repository -}}
{{- end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository -}}
{{- end -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ $repository }}@{{ .digest }}
{{- else -}}
{{ $repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Secrets for the registry: those of all charts, which may be names alone, and those of this one. */}}
{{- define "stream-learner.pullSecrets" -}}
{{- $found := list -}}
{{- range concat (.Values.global | default dict | dig "imagePullSecrets" list | default list) (.Values.imagePullSecrets | default list) -}}
{{- $found = append $found (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- toYaml (uniq $found) -}}
{{- end -}}

{{- define "stream-learner.serviceAccount" -}}
{{- $role := .account | default .role -}}
{{- get .root.Values.serviceAccounts.names $role | default (ternary (include "stream-learner.name" (list .root $role)) "default" .root.Values.serviceAccounts.create) -}}
{{- end -}}

{{/* Two mappings as one, from a list of both: mappings are merged, anything else of the second one wins, also null,
false and 0. */}}
{{- define "stream-learner.merged" -}}
{{- $merged := deepCopy (index . 0 | default dict) -}}
{{- range $name, $value := index . 1 -}}
{{- $before := get $merged $name -}}
{{- if and (kindIs "map" $value) (kindIs "map" $before) -}}
{{- $value = include "stream-learner.merged" (list $before $value) | fromYaml -}}
{{- end -}}
{{- $_ := set $merged $name $value -}}
{{- end -}}
{{- toYaml $merged -}}
{{- end -}}

{{/* The settings of a role for a model, from a list of root, the model's values, role; with `pod` and `secrets` whole. */}}
{{- define "stream-learner.settings" -}}
{{- $root := index . 0 -}}
{{- $role := index . 2 -}}
{{- $settings := include "stream-learner.merged" (list (get $root.Values $role) (get (index . 1) $role | default dict)) | fromYaml -}}
{{- $_ := set $settings "pod" (include "stream-learner.merged" (list $root.Values.pod $settings.pod) | fromYaml) -}}
{{- if kindIs "invalid" (get $settings "secrets") -}}
{{- $_ := set $settings "secrets" $root.Values.secrets -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* The model's name in Kafka. */}}
{{- define "stream-learner.modelName" -}}
{{- .model.model | default .key -}}
{{- end -}}

{{/* The configuration of a model as given: the shared one, and the model's own over it. */}}
{{- define "stream-learner.givenConfig" -}}
{{- include "stream-learner.merged" (list .root.Values.config (.model.config | default dict)) -}}
{{- end -}}

{{/* The configuration file of a model: what is given, and what the chart knows better. */}}
{{- define "stream-learner.config" -}}
{{- $values := .root.Values -}}
{{- $given := include "stream-learner.givenConfig" . | fromYaml -}}
{{- $joiner := include "stream-learner.settings" (list .root .model "joiner") | fromYaml -}}
{{- $learner := include "stream-learner.settings" (list .root .model "learner") | fromYaml -}}
{{- $scorer := include "stream-learner.settings" (list .root .model "scorer") | fromYaml -}}
{{- $derived := dict
  "join" (dict "buffer" (include "stream-learner.bufferOf" (list (printf "joiner of models.%s" .key) $joiner.resources $joiner.bufferPercent 1)))
  "learner" (dict "buffer" (include "stream-learner.bufferOf" (list (printf "learner of models.%s" .key) $learner.resources $learner.bufferPercent 1)))
  "telemetry" (dict "log_format" "json") -}}
{{- if $scorer.copies.enabled -}}
{{- $_ := set $derived "scorer" (dict "state_dir" "/var/lib/stream-learner") -}}
{{- end -}}
{{- $serve := dict "port" 8080 -}}
{{- if $scorer.grpc.enabled -}}
{{- $_ := set $serve "grpc_port" 9000 -}}
{{- end -}}
{{- if $scorer.tls.secretName -}}
{{- $_ := set $serve "tls_certificate" "/run/secrets/serve-tls/tls.crt" -}}
{{- $_ := set $serve "tls_key" "/run/secrets/serve-tls/tls.key" -}}
{{- end -}}
{{- if $scorer.token.secretName -}}
{{- $_ := set $serve "token" (dict "file" (printf "/run/secrets/serve-token/%s" $scorer.token.key)) -}}
{{- end -}}
{{- $model := include "stream-learner.modelName" . -}}
{{- if not (or (get $values.kafka "bootstrap.servers") (get $values.kafka "metadata.broker.list")) -}}
{{- fail "kafka.bootstrap.servers is missing, for example kafka:9092" -}}
{{- end -}}
{{- range list "impressions" "clicks" -}}
{{- if not (dig "input" . "topic" "" $given) -}}
{{- fail (printf "models.%s.config.input.%s.topic is missing, in the model's configuration and in the shared one" $.key .) -}}
{{- end -}}
{{- end -}}
{{- $telemetry := dict "http_port" 9464 -}}
{{- if $values.monitoring.token.secretName -}}
{{- $_ := set $telemetry "token" (dict "file" (printf "/run/secrets/telemetry-token/%s" $values.monitoring.token.key)) -}}
{{- end -}}
{{- $owned := dict
  "model" $model
  "kafka" $values.kafka
  "learner" (dict "state_dir" (printf "/var/lib/stream-learner/%s" $model))
  "serve" $serve
  "telemetry" $telemetry -}}
{{- $config := include "stream-learner.merged" (list $derived $given) | fromYaml -}}
{{- include "stream-learner.merged" (list $config $owned) -}}
{{- end -}}

{{- define "stream-learner.configMap" -}}
data:
  config.yaml: |
    {{- include "stream-learner.config" . | nindent 4 }}
{{- end -}}

{{/* The names that a model's scorers answer under, as a list. */}}
{{- define "stream-learner.servedNames" -}}
{{- $config := include "stream-learner.givenConfig" . | fromYaml -}}
{{- $names := concat (dig "serve" "models" list $config) (dig "serve" "aliases" list $config) -}}
{{- $alone := dig "scorer" "alias" "" $config | default (include "stream-learner.modelName" .) -}}
{{- toYaml ($names | default (list $alone)) -}}
{{- end -}}

{{/* Annotations of what must be there before a hook's Job; Helm deletes it when all hooks have succeeded. */}}
{{- define "stream-learner.hookBefore" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: "-10"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* How far a join is behind beyond what its stream explains: one that lags or is silent is no reason for more joiners.
Takes the selector of the series. */}}
{{- define "stream-learner.unexplainedLag" -}}
{{- $lag := printf "stream_learner_joiner_lag_beyond_window_seconds{%s}" . -}}
{{ $lag }} - (stream_learner_joiner_stream_lag_seconds{ {{- . -}} } + stream_learner_joiner_windows_wait_seconds{ {{- . -}} } or {{ $lag }} * 0) - (stream_learner_joiner_click_delay_seconds{ {{- . -}} } or {{ $lag }} * 0)
{{- end -}}
