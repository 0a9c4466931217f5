{{- define "selector" -}}
app.kubernetes.io/name: manciple-mirror
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "labels" -}}
{{ include "selector" . }}
{{- if .Values.labels }}
{{ toYaml .Values.labels }}
{{- end }}
{{- end }}
