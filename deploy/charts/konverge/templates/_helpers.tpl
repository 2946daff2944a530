{{- define "konverge.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 43 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 43 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 43 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The values of a part. The chart zopp calls pull operator. Takes root and part. */}}
{{- define "konverge.values" -}}
{{- $values := deepCopy (index .root.Values .part) }}
{{- if and (eq .part "pull") .root.Values.operator }}
{{- $values = mergeOverwrite $values (deepCopy .root.Values.operator) }}
{{- end }}
{{- toYaml $values }}
{{- end }}

{{- /* The parts that are switched on. */}}
{{- define "konverge.parts" -}}
{{- range $part := list "pull" "push" "roll" "manage" "server" }}
{{- $values := include "konverge.values" (dict "root" $ "part" $part) | fromYaml }}
{{- if $values.enabled }}
- {{ $part }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The name of a part's objects. pull's are those of the chart zopp. */}}
{{- define "konverge.partname" -}}
{{- printf "%s-%s" (include "konverge.fullname" .root) (ternary "operator" .part (eq .part "pull")) }}
{{- end }}

{{- define "konverge.component" -}}
{{- ternary "operator" . (eq . "pull") }}
{{- end }}

{{- define "konverge.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ include "konverge.component" .part }}
{{- end }}

{{- define "konverge.labels" -}}
{{ include "konverge.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: konverge
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "konverge.account" -}}
{{- $values := include "konverge.values" . | fromYaml }}
{{- default (include "konverge.partname" .) (default .root.Values.serviceAccount.name $values.serviceAccount.name) }}
{{- end }}

{{- define "konverge.image" -}}
{{- $own := .values.image }}
{{- $all := .root.Values.image }}
{{- $repository := default $all.repository $own.repository }}
{{- $digest := ternary $own.digest $all.digest (ne $own.repository "") }}
{{- if $digest }}
{{- printf "%s@%s" $repository $digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion (default (ternary "" $all.tag (ne $own.repository "")) $own.tag)) }}
{{- end }}
{{- end }}

{{- define "konverge.program" -}}
{{- get (dict "pull" "zopp-operator" "push" "vault-sync-operator" "roll" "vault-rollout-operator" "manage" "openzro-operator" "server" "zopp-server") . }}
{{- end }}

{{- /* The port on which a part answers probes. */}}
{{- define "konverge.healthport" -}}
{{- if eq .part "pull" }}{{ .values.healthCheck.port }}
{{- else if has .part (list "push" "manage") }}8081
{{- else }}8080
{{- end }}
{{- end }}

{{- /* How a part's metrics are secured: with a certificate of a Secret, with one of its own making where a token is asked for, or not. */}}
{{- define "konverge.metricstls" -}}
{{- if eq .part "server" }}
{{- else if .root.Values.metricsTLS.existingSecret }}secret
{{- else if and .values.metricsAuth .root.Values.metricsTLS.selfSigned }}self
{{- end }}
{{- end }}

{{- /* The port of a part's metrics, where they have one of their own. Otherwise they are beside health. */}}
{{- define "konverge.metricsport" -}}
{{- if eq .part "server" }}
{{- else if include "konverge.metricstls" . }}8443
{{- else if has .part (list "push" "manage") }}8080
{{- end }}
{{- end }}

{{- define "konverge.podsecurity" -}}
{{- $defaults := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- toYaml (mergeOverwrite $defaults (deepCopy .Values.podSecurityContext)) }}
{{- end }}

{{- define "konverge.security" -}}
{{- $defaults := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- toYaml (mergeOverwrite $defaults (deepCopy .Values.securityContext)) }}
{{- end }}

{{- /* The scheme of the server of this release. */}}
{{- define "konverge.server.scheme" -}}
{{- ternary "https" "http" .Values.server.tls.enabled }}
{{- end }}

{{- /* Refuses what the server could not start or work with. Takes its values. */}}
{{- define "konverge.server.check" -}}
{{- $events := or .events.databaseUrl .events.existingSecret }}
{{- if eq .database.type "sqlite" }}
{{- if gt (int .replicaCount) 1 }}
{{- fail "server.replicaCount must be 1 with SQLite, which is one file: set server.database.type to postgres for more" }}
{{- end }}
{{- if and (eq .events.backend "postgres") (not $events) }}
{{- fail "server.events.databaseUrl or server.events.existingSecret is required where server.events.backend is postgres and the database is not" }}
{{- end }}
{{- else }}
{{- if not (or .database.postgres.url .database.postgres.existingSecret) }}
{{- fail "server.database.postgres.existingSecret or server.database.postgres.url is required where server.database.type is postgres" }}
{{- end }}
{{- if and (gt (int .replicaCount) 1) (eq .events.backend "memory") }}
{{- fail "server.events.backend must be auto or postgres with several replicas: with memory, watchers miss the changes of other replicas" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The Secret with the addresses that the values give. */}}
{{- define "konverge.server.secret" -}}
{{- printf "%s-server-database" (include "konverge.fullname" .) }}
{{- end }}

{{- /* Where pull finds the zopp server. Takes root and values. */}}
{{- define "konverge.pull.address" -}}
{{- $address := .values.server.address }}
{{- if contains "://" $address }}
{{- $address }}
{{- else if $address }}
{{- printf "%s://%s" (ternary "https" "http" (ne .values.server.tls.existingSecret "")) $address }}
{{- else if .root.Values.server.enabled }}
{{- printf "%s://%s-server.%s.svc:%d" (include "konverge.server.scheme" .root) (include "konverge.fullname" .root) .root.Release.Namespace (int .root.Values.server.service.grpcPort) }}
{{- else }}
{{- fail "pull.server.address is required unless server.enabled: give the address of your zopp server" }}
{{- end }}
{{- end }}

{{- define "konverge.pull.secret" -}}
{{- default (printf "%s-operator-credentials" (include "konverge.fullname" .root)) .values.credentials.existingSecret }}
{{- end }}

{{- /* How the credentials are laid out: file, env, or none. */}}
{{- define "konverge.pull.layout" -}}
{{- $credentials := .values.credentials }}
{{- if .values.secretSourcesOnly }}
{{- "none" }}
{{- else if ne $credentials.layout "auto" }}
{{- $credentials.layout }}
{{- else if $credentials.principal.id }}
{{- "env" }}
{{- else }}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace (include "konverge.pull.secret" .) }}
{{- ternary "env" "file" (and (not (empty $found)) (not (hasKey (default dict $found.data) "config.json"))) }}
{{- end }}
{{- end }}

{{- /* The port of an address. */}}
{{- define "konverge.port" -}}
{{- $url := urlParse . }}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" }}
{{- default (ternary "443" "80" (eq $url.scheme "https")) $port }}
{{- end }}

{{- /* What the templates of rules ask for. */}}
{{- define "konverge.rules.context" -}}
{{- $values := .values }}
kinds: {{ default (list) $values.kinds | toJson }}
metricsAuth: {{ default false $values.metricsAuth }}
vault: {{ and (eq .part "roll") $values.vault.address | empty | not }}
webhooks: {{ and (eq .part "manage") $values.webhook.enabled | empty | not }}
gatewayAPI: {{ and (eq .part "manage") $values.gatewayAPI.enabled | empty | not }}
namespace: {{ $values.watchNamespace | quote }}
{{- end }}
