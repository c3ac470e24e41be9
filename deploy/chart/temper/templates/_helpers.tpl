{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Labels of every object. */}}
{{- define "temper.labels" -}}
app.kubernetes.io/name: temper-agent
app.kubernetes.io/part-of: temper
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/*
Fails on values with which the agent would not start; takes the values. The schema
has seen to their form; what the agent takes is in internal/config/agent.go.
*/}}
{{- define "temper.check" -}}
{{- if gt (int64 .background) (int64 .critical) -}}
{{- fail (printf "background is %d and critical %d: a pod could be both" (int64 .background) (int64 .critical)) -}}
{{- end -}}
{{- range regexFindAll "[0-9]+(-[0-9]+)?" .reservedCPUs -1 -}}
{{- $ends := splitList "-" . -}}
{{- if gt (atoi (first $ends)) (atoi (last $ends)) -}}
{{- fail (printf "reservedCPUs: range %s runs backwards" .) -}}
{{- else if gt (atoi (last $ends)) 8191 -}}
{{- fail (printf "reservedCPUs: CPU %s is above 8191, the highest a kernel can have" (last $ends)) -}}
{{- end -}}
{{- end -}}
{{- include "temper.between" (list "deadMan" .deadMan 2.0 600.0) -}}
{{- include "temper.between" (list "settle" .settle 0.0 600.0) -}}
{{- end }}

{{/* Fails unless a duration is in its range; takes its name, itself, least and most seconds. */}}
{{- define "temper.between" -}}
{{- $seconds := 0.0 -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" (index . 1) -1 -}}
{{- $seconds = addf $seconds (mulf (regexFind "[0-9.]+" .) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- if or (lt $seconds (index . 2)) (gt $seconds (index . 3)) -}}
{{- fail (printf "%s: %s is not between %vs and %vs" (index . 0) (index . 1) (index . 2) (index . 3)) -}}
{{- end -}}
{{- end }}

{{/* The agent's configuration; takes root and mode. */}}
{{- define "temper.config" -}}
{{- include "temper.check" .root.Values -}}
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
