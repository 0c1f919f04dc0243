{{- define "ledgermq.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "ledgermq.labels" -}}
app.kubernetes.io/name: ledgermq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "ledgermq.selector" -}}
app.kubernetes.io/name: ledgermq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Each name server by its own name: clients and brokers know all of them. */}}
{{- define "ledgermq.nameServers" -}}
{{- $names := list -}}
{{- range $i := until (int .Values.nameServer.replicas) -}}
{{- $names = append $names (printf "%s-namesrv-%d.%s-namesrv.%s.svc:9876" $.Release.Name $i $.Release.Name $.Release.Namespace) -}}
{{- end -}}
{{ join ";" $names }}
{{- end }}

{{/* Members by name, which is looked up at each connect: addresses of pods change. */}}
{{- define "ledgermq.peers" -}}
{{- $root := .root -}}{{- $group := .group -}}
{{- $peers := list -}}
{{- range $i := until (int $group.members) -}}
{{- $peers = append $peers (printf "n%d-%s-%s-%d.%s-%s.%s.svc:40911" $i $root.Release.Name $group.name $i $root.Release.Name $group.name $root.Release.Namespace) -}}
{{- end -}}
{{ join ";" $peers }}
{{- end }}

{{- define "ledgermq.secretName" -}}
{{ .Values.groupSecret.existingSecret | default (printf "%s-group-secret" .Release.Name) }}
{{- end }}

{{- define "ledgermq.tokenSecretName" -}}
{{ .Values.groupSecret.existingTokenSecret | default .Values.groupSecret.existingSecret | default (printf "%s-http-token" .Release.Name) }}
{{- end }}

{{/* Who reaches the ports of clients. */}}
{{- define "ledgermq.clients" -}}
{{- with .Values.networkPolicy.clients -}}
from:
  - podSelector:
      matchLabels:
        {{- include "ledgermq.selector" $ | nindent 8 }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ledgermq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "ledgermq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
