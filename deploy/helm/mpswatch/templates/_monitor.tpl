{{/* One endpoint of a ServiceMonitor or PodMonitor: the settings are the same. Call with the monitor's values and the root. */}}
{{- define "mpswatch.endpoint" -}}
{{- $monitor := index . 0 }}{{ $root := index . 1 -}}
port: metrics
path: /metrics
scheme: {{ include "mpswatch.scheme" $root | lower }}
{{- with $monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with $monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with $monitor.tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $relabelings := $monitor.relabelings }}
{{- with $root.Values.prometheus.cluster }}
{{- $relabelings = append $relabelings (dict "targetLabel" "cluster" "replacement" .) }}
{{- end }}
{{- with $relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
