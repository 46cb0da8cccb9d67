{{/*
The pod of every role. `at` has, beside what _helpers.tpl says: args; env (a list, the role's own); ports (name to
number); grace (seconds); startup (seconds, where there are probes); and where needed preStop (seconds), claim (name of
the state's volume claim, "template" where the StatefulSet makes it, "none" for a temporary volume), mounts (Secrets of
the role's own: name to Secret), config (name of the ConfigMap), spread, restartPolicy, command (instead of the
image's), account (role whose ServiceAccount it has).
*/}}

{{- define "stream-learner.pod" -}}
{{- $pod := .settings.pod -}}
metadata:
  annotations:
    checksum/config: {{ include "stream-learner.config" . | sha256sum }}
    {{- with include "stream-learner.secretVersions" . | fromYaml }}
    checksum/secrets: {{ toJson . | sha256sum }}
    {{- end }}
    {{- with $pod.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "stream-learner.selectorLabels" . | nindent 4 }}
    {{- with merge dict ($pod.labels | default dict) (include "stream-learner.commonLabels" .root | fromYaml) }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "stream-learner.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with include "stream-learner.pullSecrets" .root | fromYamlArray }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .restartPolicy }}
  restartPolicy: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .grace }}
  securityContext:
    {{- include "stream-learner.podSecurity" .root | nindent 4 }}
  {{- with $pod.extraInitContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    {{- include "stream-learner.container" . | nindent 4 }}
    {{- with $pod.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "stream-learner.volumes" . | nindent 4 }}
  {{- with $pod.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $pod.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $pod.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $pod.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $pod.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $pod.schedulerName }}
  schedulerName: {{ . }}
  {{- end }}
  {{- with $pod.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with $pod.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $pod.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $pod.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml $pod.topologySpreadConstraints | nindent 4 }}
  {{- else if .spread }}
  {{- include "stream-learner.spread" . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The versions that values give to Secrets which pods take variables from: such pods are replaced with the version. */}}
{{- define "stream-learner.secretVersions" -}}
{{- $versions := dict -}}
{{- range .settings.secrets -}}
{{- if .version -}}
{{- $_ := set $versions .secretName (toString .version) -}}
{{- end -}}
{{- end -}}
{{- toYaml $versions -}}
{{- end -}}

{{/* What the restricted Pod Security Standard asks of a pod, and the user. */}}
{{- define "stream-learner.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.podSecurity }}
{{- if not (kindIs "invalid" .user) }}
runAsUser: {{ int64 .user }}
{{- end }}
{{- if not (kindIs "invalid" .group) }}
runAsGroup: {{ int64 .group }}
{{- end }}
{{- if not (kindIs "invalid" .fsGroup) }}
fsGroup: {{ int64 .fsGroup }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "stream-learner.container" -}}
- name: {{ .role }}
  image: {{ include "stream-learner.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  {{- with .command }}
  command:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  args:
    {{- toYaml .args | nindent 4 }}
  {{- with include "stream-learner.env" . | fromYamlArray }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .settings.pod.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .ports }}
  ports:
    {{- range $name, $port := . }}
    - name: {{ $name }}
      containerPort: {{ $port }}
    {{- end }}
  {{- end }}
  {{- if .startup }}
  {{- include "stream-learner.probes" . | nindent 2 }}
  {{- end }}
  {{- with include "stream-learner.lifecycle" . | fromYaml }}
  lifecycle:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    {{- toYaml .settings.resources | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
  volumeMounts:
    - name: config
      mountPath: /etc/stream-learner
      readOnly: true
    - name: tmp
      mountPath: /tmp
    {{- if .claim }}
    - name: state
      mountPath: /var/lib/stream-learner
    {{- end }}
    {{- range $name, $_ := include "stream-learner.mounts" . | fromYaml }}
    - name: {{ $name }}
      mountPath: /run/secrets/{{ $name }}
      readOnly: true
    {{- end }}
    {{- range $index, $secret := .settings.secrets }}
    {{- with $secret.mountPath }}
    - name: secret-{{ $index }}
      mountPath: {{ . }}
      readOnly: true
    {{- end }}
    {{- end }}
    {{- with .settings.pod.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "stream-learner.env" -}}
{{- $env := .env | default list -}}
{{- range .settings.secrets -}}
{{- $secretName := .secretName -}}
{{- range $variable, $key := .env -}}
{{- $reference := dict "secretKeyRef" (dict "name" $secretName "key" $key) -}}
{{- $env = append $env (dict "name" $variable "valueFrom" $reference) -}}
{{- end -}}
{{- end -}}
{{- toYaml (concat $env .settings.pod.extraEnv) -}}
{{- end -}}

{{/* What happens at the start and the end of a container: what `pod.lifecycle` says, else the sleep of `preStop`. */}}
{{- define "stream-learner.lifecycle" -}}
{{- $sleep := dict -}}
{{- with .preStop -}}
{{- $sleep = dict "preStop" (dict "exec" (dict "command" (list "sleep" (toString .)))) -}}
{{- end -}}
{{- $given := .settings.pod.lifecycle | default dict -}}
{{- toYaml (merge dict $given (hasKey $given "preStop" | ternary dict $sleep)) -}}
{{- end -}}

{{/* /healthz: the process has started, and its loop turns. /readyz: the role can do its work, a scorer has a whole
version. Startup asks only for the first: nothing is gained by restarting what loads, waits for brokers, for a first
version, or for a decision. Both are asked on a port of their own, without a certificate; `monitoring.token` guards the
metrics there, and no probe. */}}
{{- define "stream-learner.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: telemetry}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: {{ divf .startup 5 | ceil | int64 }}
readinessProbe:
  httpGet: {path: /readyz, port: telemetry}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /healthz, port: telemetry}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/* The Secrets that a container mounts beside `secrets`: its own, and the token of /metrics where it answers there. */}}
{{- define "stream-learner.mounts" -}}
{{- $mounts := .mounts | default dict -}}
{{- $token := .root.Values.monitoring.token.secretName -}}
{{- if and $token (hasKey (.ports | default dict) "telemetry") -}}
{{- $mounts = merge (dict "telemetry-token" $token) $mounts -}}
{{- end -}}
{{- toYaml $mounts -}}
{{- end -}}

{{- define "stream-learner.volumes" -}}
- name: config
  configMap:
    name: {{ .config | default (include "stream-learner.name" (list .root .key)) }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- if eq (.claim | default "template") "none" }}
- name: state
  emptyDir: {}
{{- else if ne (.claim | default "template") "template" }}
- name: state
  persistentVolumeClaim:
    claimName: {{ .claim }}
{{- end }}
{{- range $name, $secret := include "stream-learner.mounts" . | fromYaml }}
- name: {{ $name }}
  secret:
    secretName: {{ $secret }}
    defaultMode: 0440
{{- end }}
{{- range $index, $secret := .settings.secrets }}
{{- if $secret.mountPath }}
- name: secret-{{ $index }}
  secret:
    secretName: {{ $secret.secretName }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- with .settings.pod.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "stream-learner.spread" -}}
{{- $at := . -}}
{{- $spread := .root.Values.topologySpread -}}
{{- if or (ne $spread.zone "Off") (ne $spread.host "Off") -}}
topologySpreadConstraints:
  {{- range $key, $when := dict "topology.kubernetes.io/zone" $spread.zone "kubernetes.io/hostname" $spread.host }}
  {{- if ne $when "Off" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: {{ $when }}
    labelSelector:
      matchLabels:
        {{- include "stream-learner.selectorLabels" $at | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* What of a workload's specification values may say, from the settings of the role. */}}
{{- define "stream-learner.workloadSpec" -}}
{{- if not (kindIs "invalid" .revisionHistoryLimit) }}
  revisionHistoryLimit: {{ int64 .revisionHistoryLimit }}
{{- end }}
{{- with .minReadySeconds }}
  minReadySeconds: {{ int64 . }}
{{- end }}
{{- end -}}

{{/* What of a Job's specification values may say, from the settings of the role. */}}
{{- define "stream-learner.jobSpec" -}}
backoffLimit: {{ int64 .backoffLimit }}
{{- with .activeDeadlineSeconds }}
activeDeadlineSeconds: {{ int64 . }}
{{- end }}
{{- if not (kindIs "invalid" .ttlSecondsAfterFinished) }}
ttlSecondsAfterFinished: {{ int64 .ttlSecondsAfterFinished }}
{{- end }}
{{- end -}}
