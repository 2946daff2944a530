{{- define "konverge.args.pull" }}
{{- if .values.secretSourcesOnly }}
- --secret-sources-only
{{- else }}
- {{ printf "--server=%s" (include "konverge.pull.address" .) | quote }}
{{- if eq (include "konverge.pull.layout" .) "file" }}
- --credentials=/etc/zopp/config.json
{{- end }}
{{- if .values.server.tls.existingSecret }}
- --tls-ca-cert=/etc/zopp-tls/ca.crt
{{- end }}
{{- range $workspace, $fingerprint := .values.workspaceFingerprints }}
- {{ printf "--workspace-fingerprint=%s=%s" $workspace $fingerprint | quote }}
{{- end }}
- --trust-first-key={{ .values.trustFirstKey | default false }}
{{- end }}
{{- range .values.allow }}
- {{ printf "--allow=%s" . | quote }}
{{- end }}
{{- with .values.watchNamespace }}
- {{ printf "--namespace=%s" . | quote }}
{{- end }}
- --health-probe-bind-address=0.0.0.0:{{ .values.healthCheck.port }}
{{- include "konverge.args.metrics" . }}
- --leader-elect
- --log-format={{ .root.Values.logFormat }}
{{- end }}

{{- define "konverge.args.push" }}
- {{ printf "--vault-addr=%s" (required "push.vault.address is required: give the address of Vault, such as https://vault.example.com:8200" .values.vault.address) | quote }}
- {{ printf "--vault-role=%s" .values.vault.role | quote }}
- {{ printf "--vault-auth-path=%s" .values.vault.authPath | quote }}
- {{ printf "--kinds=%s" (join "," .values.kinds) | quote }}
{{- range .values.allowPath }}
- {{ printf "--allow-path=%s" . | quote }}
{{- end }}
- --existing={{ .values.existing }}
{{- with .values.clusterName }}
- {{ printf "--cluster-name=%s" . | quote }}
{{- end }}
{{- with .values.watchNamespace }}
- {{ printf "--namespace=%s" . | quote }}
{{- end }}
- --health-probe-bind-address=:8081
{{- include "konverge.args.metrics" . }}
- --leader-elect
- --log-format={{ .root.Values.logFormat }}
{{- end }}

{{- define "konverge.args.roll" }}
{{- with .values.vault }}
{{- if .address }}
- {{ printf "--vault-addr=%s" .address | quote }}
- {{ printf "--vault-role=%s" .role | quote }}
- {{ printf "--vault-auth-path=%s" .authPath | quote }}
- --vault-auth-method=kubernetes
{{- range .allowPath }}
- {{ printf "--allow-path=%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}
- {{ printf "--kinds=%s" (join "," .values.kinds) | quote }}
{{- with .values.watchNamespace }}
- {{ printf "--namespace=%s" . | quote }}
{{- end }}
- --health-probe-bind-address=:8080
{{- include "konverge.args.metrics" . }}
- --leader-elect
- --log-format={{ .root.Values.logFormat }}
{{- end }}

{{- define "konverge.args.manage" }}
- {{ printf "--openzro-management-url=%s" (required "manage.managementURL is required: give the address of openZro's management server, such as https://openzro.example.com" .values.managementURL) | quote }}
- {{ printf "--openzro-api-key-file=/etc/openzro/%s" .values.openzroAPI.keyFromSecret.key | quote }}
{{- range .values.accounts }}
- {{ printf "--account=%s=/etc/openzro-accounts/%s/%s%s" .namespace .namespace (default "OZ_API_KEY" .key) (ternary "" (printf ",%s" .managementURL) (empty .managementURL)) | quote }}
{{- end }}
{{- range .values.allow }}
- {{ printf "--allow=%s" . | quote }}
{{- end }}
{{- range .values.privilegedNamespaces }}
- {{ printf "--privileged-namespace=%s" . | quote }}
{{- end }}
{{- with .values.routingClientImage }}
- {{ printf "--openzro-client-image=%s" . | quote }}
{{- end }}
- {{ printf "--cluster-name=%s" .values.cluster.name | quote }}
- {{ printf "--cluster-dns=%s" .values.cluster.dns | quote }}
- --namespaced-networks={{ .values.ingress.namespacedNetworks }}
- --allow-automatic-policy-creation={{ .values.ingress.allowAutomaticPolicyCreation }}
{{- $labels := list }}
{{- range $name, $value := .values.general.labels }}
{{- $labels = append $labels (printf "%s=%s" $name $value) }}
{{- end }}
{{- with $labels }}
- {{ printf "--default-labels=%s" (join "," .) | quote }}
{{- end }}
- --gateway-api-enabled={{ .values.gatewayAPI.enabled }}
- --enable-webhooks={{ .values.webhook.enabled }}
{{- if .values.webhook.clientCASecret }}
- --webhook-client-ca=/etc/webhook-client/ca.crt
{{- end }}
- {{ printf "--runtime-namespace=%s" .root.Release.Namespace | quote }}
- --health-probe-bind-address=:8081
{{- include "konverge.args.metrics" . }}
- --leader-elect
- --zap-encoder={{ ternary "json" "console" (eq .root.Values.logFormat "json") }}
{{- end }}

{{- define "konverge.args.metrics" }}
{{- with include "konverge.metricsport" . }}
- --metrics-bind-address=:{{ . }}
{{- end }}
{{- if .root.Values.metricsTLS.existingSecret }}
- --metrics-cert-file=/etc/metrics-tls/tls.crt
- --metrics-key-file=/etc/metrics-tls/tls.key
{{- else if include "konverge.metricstls" . }}
- --metrics-tls
{{- end }}
- --enable-metrics-auth={{ .values.metricsAuth }}
{{- end }}

{{- define "konverge.args.server" }}
- serve
- --addr=0.0.0.0:50051
- --health-addr=0.0.0.0:8080
{{- if .values.tls.enabled }}
- --tls-cert=/etc/zopp/tls/tls.crt
- --tls-key=/etc/zopp/tls/tls.key
{{- if .values.tls.clientCA }}
- --tls-client-ca=/etc/zopp/tls/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{- define "konverge.env" }}
{{- if and (or (eq .part "push") (eq .part "roll")) .values.vault.caSecret }}
- name: VAULT_CACERT
  value: /etc/vault-tls/ca.crt
{{- end }}
{{- if eq .part "server" }}
- name: DATABASE_URL
{{- if eq .values.database.type "sqlite" }}
  value: {{ printf "sqlite://%s?mode=rwc" .values.database.sqlite.path | quote }}
{{- else }}
{{- with .values.database.postgres }}
  valueFrom:
    secretKeyRef:
      name: {{ default (include "konverge.server.secret" $.root) .existingSecret }}
      key: {{ ternary .existingSecretKey "DATABASE_URL" (ne .existingSecret "") }}
{{- end }}
{{- end }}
- name: ZOPP_EVENTS_BACKEND
  value: {{ .values.events.backend | quote }}
{{- with .values.events }}
{{- if or .databaseUrl .existingSecret }}
- name: ZOPP_EVENTS_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ default (include "konverge.server.secret" $.root) .existingSecret }}
      key: {{ ternary .existingSecretKey "EVENTS_DATABASE_URL" (ne .existingSecret "") }}
{{- end }}
{{- end }}
{{- end }}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "konverge.volumes" }}
{{- if eq .part "pull" }}
{{- if eq (include "konverge.pull.layout" .) "file" }}
- name: credentials
  secret:
    secretName: {{ include "konverge.pull.secret" . }}
    defaultMode: 288
{{- end }}
{{- if and .values.server.tls.existingSecret (not .values.secretSourcesOnly) }}
- name: tls
  secret:
    secretName: {{ .values.server.tls.existingSecret }}
    items: [{ key: ca.crt, path: ca.crt }]
{{- end }}
{{- else if eq .part "server" }}
{{- if eq .values.database.type "sqlite" }}
- name: data
{{- if .values.database.sqlite.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ include "konverge.fullname" .root }}-server-data
{{- else }}
  emptyDir: {}
{{- end }}
{{- end }}
- name: tmp
  emptyDir: {}
{{- if .values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ default (printf "%s-server-tls" (include "konverge.fullname" .root)) .values.tls.existingSecret }}
    defaultMode: 288
{{- end }}
{{- else if eq .part "manage" }}
- name: token
  secret:
    secretName: {{ .values.openzroAPI.keyFromSecret.name }}
    defaultMode: 288
{{- range .values.accounts }}
- name: account-{{ .namespace }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 288
{{- end }}
{{- with .values.webhook.clientCASecret }}
- name: webhook-client
  secret:
    secretName: {{ . }}
    items: [{ key: ca.crt, path: ca.crt }]
{{- end }}
{{- else if .values.vault.caSecret }}
- name: vault-tls
  secret:
    secretName: {{ .values.vault.caSecret }}
    items: [{ key: ca.crt, path: ca.crt }]
{{- end }}
{{- if and .root.Values.metricsTLS.existingSecret (ne .part "server") }}
- name: metrics-tls
  secret:
    secretName: {{ .root.Values.metricsTLS.existingSecret }}
    items: [{ key: tls.crt, path: tls.crt }, { key: tls.key, path: tls.key }]
    defaultMode: 288
{{- end }}
{{- end }}

{{- define "konverge.mounts" }}
{{- if eq .part "pull" }}
{{- if eq (include "konverge.pull.layout" .) "file" }}
- name: credentials
  mountPath: /etc/zopp
  readOnly: true
{{- end }}
{{- if and .values.server.tls.existingSecret (not .values.secretSourcesOnly) }}
- name: tls
  mountPath: /etc/zopp-tls
  readOnly: true
{{- end }}
{{- else if eq .part "server" }}
{{- if eq .values.database.type "sqlite" }}
- name: data
  mountPath: {{ dir .values.database.sqlite.path }}
{{- end }}
- name: tmp
  mountPath: /tmp
{{- if .values.tls.enabled }}
- name: tls
  mountPath: /etc/zopp/tls
  readOnly: true
{{- end }}
{{- else if eq .part "manage" }}
- name: token
  mountPath: /etc/openzro
  readOnly: true
{{- range .values.accounts }}
- name: account-{{ .namespace }}
  mountPath: /etc/openzro-accounts/{{ .namespace }}
  readOnly: true
{{- end }}
{{- if .values.webhook.clientCASecret }}
- name: webhook-client
  mountPath: /etc/webhook-client
  readOnly: true
{{- end }}
{{- else if .values.vault.caSecret }}
- name: vault-tls
  mountPath: /etc/vault-tls
  readOnly: true
{{- end }}
{{- if and .root.Values.metricsTLS.existingSecret (ne .part "server") }}
- name: metrics-tls
  mountPath: /etc/metrics-tls
  readOnly: true
{{- end }}
{{- end }}

{{- define "konverge.ports" }}
{{- if eq .part "server" }}
- name: grpc
  containerPort: 50051
{{- end }}
{{- with include "konverge.metricsport" . }}
- name: metrics
  containerPort: {{ . }}
{{- end }}
{{- if and (eq .part "manage") .values.webhook.enabled }}
- name: webhooks
  containerPort: 9443
{{- end }}
- name: http
  containerPort: {{ include "konverge.healthport" . }}
{{- end }}
