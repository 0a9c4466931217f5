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
{{- define "end-gates-selector" -}}
app.kubernetes.io/name: manciple-end-gates
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "end-gates" -}}
{{ include "end-gates-selector" . }}
{{- if .Values.labels }}
{{ toYaml .Values.labels }}
{{- end }}
{{- end }}
