{{/*
The pod of every role. `at` has, beside what _helpers.tpl says: args; env (a list, the role's own); ports (name to
number); grace (seconds); startup (seconds, where there are probes); and where needed preStop (seconds), claim (name of
the state's volume claim, "template" where the StatefulSet makes it, "none" for a temporary volume), mounts (Secrets of
the role's own: name to Secret), config (name of the ConfigMap), spread, restartPolicy.
*/}}

{{- define "stream-learner.pod" -}}
{{- $pod := .settings.pod -}}
metadata:
  annotations:
    checksum/config: {{ include "stream-learner.config" . | sha256sum }}
    {{- with $pod.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "stream-learner.selectorLabels" . | nindent 4 }}
    {{- with $pod.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "stream-learner.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .restartPolicy }}
  restartPolicy: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .grace }}
  securityContext:
    {{- include "stream-learner.podSecurity" .root | nindent 4 }}
  containers:
    {{- include "stream-learner.container" . | nindent 4 }}
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
  {{- if .spread }}
  {{- include "stream-learner.spread" . | nindent 2 }}
  {{- end }}
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
  args:
    {{- toYaml .args | nindent 4 }}
  {{- with include "stream-learner.env" . | fromYamlArray }}
  env:
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
  {{- with .preStop }}
  lifecycle:
    preStop:
      exec:
        command: [sleep, {{ toString . | quote }}]
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

{{/* /readyz: the role can do its work, a scorer has a whole version. /healthz: its loop turns. Both are
asked on a port of their own, without a certificate; `monitoring.token` guards the metrics there, and no probe. */}}
{{- define "stream-learner.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: telemetry}
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
