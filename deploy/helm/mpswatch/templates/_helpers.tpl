{{- define "mpswatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "mpswatch.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "mpswatch.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "mpswatch.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "mpswatch.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mpswatch.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mpswatch.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: metrics
app.kubernetes.io/part-of: mpswatch
{{ include "mpswatch.selectorLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "mpswatch.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "mpswatch.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "mpswatch.image" -}}
{{- with .Values.image.registry }}{{ . }}/{{ end }}{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}

{{- define "mpswatch.scheme" -}}
{{- if .Values.web.tls }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{/* mpswatch.yml: the user's settings, and those that follow from how the pod is made. */}}
{{- define "mpswatch.config" -}}
{{- $daemon := dict "pipe_directory" .Values.stack.pipeDirectory }}
{{- with .Values.stack.name }}
{{- $_ := set $daemon "name" . }}
{{- end }}
{{- with .Values.stack.logDirectory }}
{{- $_ := set $daemon "log_directory" . }}
{{- end }}
{{- $archive := mergeOverwrite (deepCopy (.Values.config.archive | default dict)) (dict "directory" "/var/lib/mpswatch") }}
{{- /* Always: the container's own /etc/passwd would give other people's names. */}}
{{- $tenants := mergeOverwrite (deepCopy (.Values.config.tenants | default dict)) (dict "host_root" "/host") }}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) (dict "daemons" (list $daemon) "archive" $archive "tenants" $tenants)) }}
{{- end }}

{{/* Where the runtime writes down its containers: folders without mounts of other containers in them. */}}
{{- define "mpswatch.runtimeFiles" -}}
{{- get (dict
  "containerd" "/var/lib/containerd/io.containerd.metadata.v1.bolt"
  "k3s" "/var/lib/rancher/k3s/agent/containerd/io.containerd.metadata.v1.bolt"
  "rke2" "/var/lib/rancher/rke2/agent/containerd/io.containerd.metadata.v1.bolt"
  "k0s" "/var/lib/k0s/containerd/io.containerd.metadata.v1.bolt"
  "cri-o" "/var/lib/containers/storage/overlay-containers"
) . }}
{{- end }}

{{/* Seconds of a duration such as 30s, 1h30m, 250ms or 30. */}}
{{- define "mpswatch.seconds" -}}
{{- $text := toString . }}
{{- if regexMatch "^[0-9.]+$" $text }}{{ $text }}
{{- else }}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 }}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9.]+ *(ms|s|m|h|d)" $text -1 }}
{{- $sum = addf $sum (mulf (float64 (regexFind "[0-9.]+" .)) (get $units (regexFind "(ms|s|m|h|d)$" .))) }}
{{- end }}{{ $sum }}
{{- end }}
{{- end }}

{{/* What the schema cannot compare: two values with each other. */}}
{{- define "mpswatch.checks" -}}
{{- if and .Values.identity.runtime (ne (int .Values.stack.uid) 0) }}
{{- fail (printf "identity.runtime (%s) needs stack.uid 0, not %v: only root may read what a runtime writes down" .Values.identity.runtime .Values.stack.uid) }}
{{- end }}
{{- $cell := float64 (include "mpswatch.seconds" (dig "sweep" "cell_deadline" "30s" .Values.config)) }}
{{- if lt (float64 .Values.terminationGracePeriodSeconds) (addf $cell 30.0) }}
{{- fail (printf "terminationGracePeriodSeconds (%v) must be at least 30 s above config.sweep.cell_deadline (%v s): a measuring client that is killed with work in flight takes a neighbour down" .Values.terminationGracePeriodSeconds $cell) }}
{{- end }}
{{- $mount := printf "%s/" (trimSuffix "/" .Values.stack.mount.path) }}
{{- if not (hasPrefix $mount (printf "%s/" (trimSuffix "/" .Values.stack.pipeDirectory))) }}
{{- fail (printf "stack.pipeDirectory (%s) does not lie in stack.mount.path (%s): the client would run outside MPS" .Values.stack.pipeDirectory .Values.stack.mount.path) }}
{{- end }}
{{- if and .Values.stack.logDirectory (not .Values.stack.logHostPath) (not (hasPrefix $mount (printf "%s/" .Values.stack.logDirectory))) }}
{{- fail (printf "stack.logDirectory (%s) does not lie in stack.mount.path (%s): give stack.logHostPath" .Values.stack.logDirectory .Values.stack.mount.path) }}
{{- end }}
{{- end }}
