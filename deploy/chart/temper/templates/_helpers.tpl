{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Labels of every object. */}}
{{- define "temper.labels" -}}
app.kubernetes.io/name: temper-agent
app.kubernetes.io/part-of: temper
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* The agent's configuration; takes root and mode. */}}
{{- define "temper.config" -}}
mode: {{ .mode }}
{{- with .root.Values }}
critical: {{ int64 .critical }}
background: {{ int64 .background }}
lend: {{ .lend }}
cpuMax: {{ .cpuMax }}
reservedCPUs: {{ .reservedCPUs | quote }}
deadMan: {{ .deadMan }}
settle: {{ .settle }}
{{- end }}
{{- end }}
