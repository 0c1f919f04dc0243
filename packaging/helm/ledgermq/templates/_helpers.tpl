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

{{/*
Refuses another number of members for a group that exists: they are fixed when it is bootstrapped.
The list that its members run with is in their ConfigMap; after an uninstall only volumes are left.
Where `lookup` finds nothing (helm template, tools that only render) the members check it
themselves: one with another list ends with exit code 78.
*/}}
{{- define "ledgermq.checkMembers" -}}
{{- $root := .root -}}{{- $group := .group -}}
{{- $name := printf "%s-%s" $root.Release.Name $group.name -}}
{{- $namespace := $root.Release.Namespace -}}
{{- $settings := lookup "v1" "ConfigMap" $namespace $name | default dict -}}
{{- $peers := dig "data" "broker.conf" "" $settings | regexFind "(?m)^dLegerPeers=.*$" -}}
{{- $existing := 0 -}}{{- $hint := "" -}}
{{- if $peers -}}
{{- $existing = len (splitList ";" $peers) -}}
{{- else if lookup "v1" "PersistentVolumeClaim" $namespace (printf "data-%s-0" $name) -}}
{{- range $i := until 7 -}}
{{- if lookup "v1" "PersistentVolumeClaim" $namespace (printf "data-%s-%d" $name $i) -}}
{{- $existing = add1 $existing -}}
{{- end -}}
{{- end -}}
{{- $hint = printf "; its volumes data-%s-N are still there: delete them to lose its messages and create the group anew" $name -}}
{{- end -}}
{{- if and $existing (ne (int $existing) (int $group.members)) -}}
{{- fail (printf "cannot change the members of group %s from %d to %d: a group keeps the members that it was created with (key groups[%s].members); set it to %d again, and add another group for more capacity%s" $group.name (int $existing) (int $group.members) $group.name (int $existing) $hint) -}}
{{- end -}}
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
