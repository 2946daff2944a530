{{- /* Generated; change the code instead. */ -}}
{{- define "konverge.rules.pull.all.cluster" }}
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["list"]
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get","list","watch","create","patch","delete"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create","patch"]
- apiGroups: ["konverge.dev"]
  resources: ["clustersecretsources","secretpulls","secretsources"]
  verbs: ["list","watch"]
- apiGroups: ["konverge.dev"]
  resources: ["clustersecretsources/status","secretpulls/status","secretsources/status"]
  verbs: ["patch"]
- apiGroups: ["zopp.dev"]
  resources: ["zoppsecretsyncs"]
  verbs: ["list","watch"]
- apiGroups: ["zopp.dev"]
  resources: ["zoppsecretsyncs/status"]
  verbs: ["patch"]
{{- if .metricsAuth }}
- apiGroups: ["authentication.k8s.io"]
  resources: ["tokenreviews"]
  verbs: ["create"]
- apiGroups: ["authorization.k8s.io"]
  resources: ["subjectaccessreviews"]
  verbs: ["create"]
{{- end }}
{{- end }}
{{- define "konverge.rules.pull.all.watched" }}
{{- end }}
{{- define "konverge.rules.pull.all.home" }}
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["create"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  resourceNames: ["zopp-operator"]
  verbs: ["get","patch"]
{{- end }}
{{- define "konverge.rules.push.all.cluster" }}
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["get"]
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get","list","watch"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create","patch"]
{{- if has "deployments" .kinds }}
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "statefulsets" .kinds }}
- apiGroups: ["apps"]
  resources: ["statefulsets"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "daemonsets" .kinds }}
- apiGroups: ["apps"]
  resources: ["daemonsets"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "cronjobs" .kinds }}
- apiGroups: ["batch"]
  resources: ["cronjobs"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "jobs" .kinds }}
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "rollouts" .kinds }}
- apiGroups: ["argoproj.io"]
  resources: ["rollouts"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "secrets" .kinds }}
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["patch"]
{{- end }}
{{- if has "vaultpushes" .kinds }}
- apiGroups: ["konverge.dev"]
  resources: ["vaultpushes"]
  verbs: ["get","list","watch","patch"]
- apiGroups: ["konverge.dev"]
  resources: ["vaultpushes/status"]
  verbs: ["patch"]
{{- end }}
{{- if .metricsAuth }}
- apiGroups: ["authentication.k8s.io"]
  resources: ["tokenreviews"]
  verbs: ["create"]
- apiGroups: ["authorization.k8s.io"]
  resources: ["subjectaccessreviews"]
  verbs: ["create"]
{{- end }}
{{- end }}
{{- define "konverge.rules.push.all.watched" }}
{{- end }}
{{- define "konverge.rules.push.all.home" }}
- apiGroups: [""]
  resources: ["configmaps"]
  verbs: ["create"]
- apiGroups: [""]
  resources: ["configmaps"]
  resourceNames: ["vault-sync-operator-orphans"]
  verbs: ["get","patch"]
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["create","delete"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["create"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  resourceNames: ["vault-sync-operator.io"]
  verbs: ["get","patch"]
{{- end }}
{{- define "konverge.rules.roll.all.cluster" }}
- apiGroups: [""]
  resources: ["configmaps","secrets"]
  verbs: ["get","list","watch"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create","patch"]
- apiGroups: ["secrets-store.csi.x-k8s.io"]
  resources: ["secretproviderclasses"]
  verbs: ["list","watch"]
{{- if has "deployments" .kinds }}
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "statefulsets" .kinds }}
- apiGroups: ["apps"]
  resources: ["statefulsets"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "daemonsets" .kinds }}
- apiGroups: ["apps"]
  resources: ["daemonsets"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "cronjobs" .kinds }}
- apiGroups: ["batch"]
  resources: ["cronjobs"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "rollouts" .kinds }}
- apiGroups: ["argoproj.io"]
  resources: ["rollouts"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if .vault }}
- apiGroups: ["konverge.dev"]
  resources: ["vaultrollouts"]
  verbs: ["list","watch"]
- apiGroups: ["konverge.dev"]
  resources: ["vaultrollouts/status"]
  verbs: ["patch"]
- apiGroups: ["stable.example.com"]
  resources: ["vaultsyncstatus"]
  verbs: ["get","list","watch","patch"]
- apiGroups: ["stable.example.com"]
  resources: ["vaultsyncstatus/status"]
  verbs: ["patch"]
{{- end }}
{{- if .metricsAuth }}
- apiGroups: ["authentication.k8s.io"]
  resources: ["tokenreviews"]
  verbs: ["create"]
- apiGroups: ["authorization.k8s.io"]
  resources: ["subjectaccessreviews"]
  verbs: ["create"]
{{- end }}
{{- end }}
{{- define "konverge.rules.roll.all.watched" }}
{{- end }}
{{- define "konverge.rules.roll.all.home" }}
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["create"]
- apiGroups: [""]
  resources: ["secrets"]
  resourceNames: ["vault-rollout-operator-digest-key"]
  verbs: ["get"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["create"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  resourceNames: ["vault-rollout-operator"]
  verbs: ["get","patch"]
{{- end }}
{{- define "konverge.rules.manage.all.cluster" }}
{{- if .webhooks }}
- apiGroups: ["admissionregistration.k8s.io"]
  resources: ["mutatingwebhookconfigurations"]
  resourceNames: ["openzro-operator"]
  verbs: ["get","list","watch","patch"]
- apiGroups: ["admissionregistration.k8s.io"]
  resources: ["validatingwebhookconfigurations"]
  resourceNames: ["openzro-operator"]
  verbs: ["get","list","watch","patch"]
- apiGroups: ["openzro.io"]
  resources: ["sidecarprofiles"]
  verbs: ["list","watch"]
{{- end }}
{{- if .gatewayAPI }}
- apiGroups: ["gateway.networking.k8s.io"]
  resources: ["gatewayclasses","gateways","httproutes","tcproutes"]
  verbs: ["list","watch","patch"]
- apiGroups: ["gateway.networking.k8s.io"]
  resources: ["gatewayclasses/status","gateways/status","httproutes/status","tcproutes/status"]
  verbs: ["patch"]
- apiGroups: ["openzro.io"]
  resources: ["networkresources"]
  verbs: ["create","update","delete"]
{{- end }}
{{- if .metricsAuth }}
- apiGroups: ["authentication.k8s.io"]
  resources: ["tokenreviews"]
  verbs: ["create"]
- apiGroups: ["authorization.k8s.io"]
  resources: ["subjectaccessreviews"]
  verbs: ["create"]
{{- end }}
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["get"]
- apiGroups: [""]
  resources: ["namespaces"]
  resourceNames: ["kube-system"]
  verbs: ["get"]
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get","list","watch","create","patch"]
- apiGroups: [""]
  resources: ["services"]
  verbs: ["list","watch","patch"]
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["get","list","watch","create","patch"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create","patch"]
- apiGroups: ["openzro.io"]
  resources: ["groups","ozgroups","ozpolicies","setupkeys"]
  verbs: ["list","watch","create","patch","delete"]
- apiGroups: ["openzro.io"]
  resources: ["groups/status","networkresources/status","networkrouters/status","ozgroups/status","ozpolicies/status","ozresources/status","ozroutingpeers/status","ozsetupkeys/status","setupkeys/status"]
  verbs: ["patch"]
- apiGroups: ["openzro.io"]
  resources: ["networkresources","networkrouters","ozsetupkeys"]
  verbs: ["list","watch","patch"]
- apiGroups: ["openzro.io"]
  resources: ["ozresources"]
  verbs: ["list","watch","create","update","patch","delete"]
- apiGroups: ["openzro.io"]
  resources: ["ozroutingpeers"]
  verbs: ["list","watch","create","patch"]
- apiGroups: ["policy"]
  resources: ["poddisruptionbudgets"]
  verbs: ["get","create","patch"]
{{- end }}
{{- define "konverge.rules.manage.all.watched" }}
{{- end }}
{{- define "konverge.rules.manage.all.home" }}
{{- if .webhooks }}
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["create"]
- apiGroups: [""]
  resources: ["secrets"]
  resourceNames: ["openzro-operator-webhook-certificates"]
  verbs: ["get","list","watch","patch"]
{{- end }}
- apiGroups: [""]
  resources: ["configmaps"]
  verbs: ["create"]
- apiGroups: [""]
  resources: ["configmaps"]
  resourceNames: ["openzro-operator-deletions"]
  verbs: ["get","patch"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["get","create","patch"]
{{- end }}
{{- define "konverge.rules.pull.one.cluster" }}
{{- if .metricsAuth }}
- apiGroups: ["authentication.k8s.io"]
  resources: ["tokenreviews"]
  verbs: ["create"]
- apiGroups: ["authorization.k8s.io"]
  resources: ["subjectaccessreviews"]
  verbs: ["create"]
{{- end }}
{{- end }}
{{- define "konverge.rules.pull.one.watched" }}
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get","list","watch","create","patch","delete"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create","patch"]
- apiGroups: ["konverge.dev"]
  resources: ["secretpulls","secretsources"]
  verbs: ["list","watch"]
- apiGroups: ["konverge.dev"]
  resources: ["secretpulls/status","secretsources/status"]
  verbs: ["patch"]
- apiGroups: ["zopp.dev"]
  resources: ["zoppsecretsyncs"]
  verbs: ["list","watch"]
- apiGroups: ["zopp.dev"]
  resources: ["zoppsecretsyncs/status"]
  verbs: ["patch"]
{{- end }}
{{- define "konverge.rules.pull.one.home" }}
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["create"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  resourceNames: ["zopp-operator"]
  verbs: ["get","patch"]
{{- end }}
{{- define "konverge.rules.push.one.cluster" }}
- apiGroups: [""]
  resources: ["namespaces"]
  resourceNames: ["kube-system"]
  verbs: ["get"]
- apiGroups: [""]
  resources: ["namespaces"]
  resourceNames: [{{ .namespace | quote }}]
  verbs: ["get"]
{{- if .metricsAuth }}
- apiGroups: ["authentication.k8s.io"]
  resources: ["tokenreviews"]
  verbs: ["create"]
- apiGroups: ["authorization.k8s.io"]
  resources: ["subjectaccessreviews"]
  verbs: ["create"]
{{- end }}
{{- end }}
{{- define "konverge.rules.push.one.watched" }}
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get","list","watch"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create","patch"]
{{- if has "deployments" .kinds }}
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "statefulsets" .kinds }}
- apiGroups: ["apps"]
  resources: ["statefulsets"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "daemonsets" .kinds }}
- apiGroups: ["apps"]
  resources: ["daemonsets"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "cronjobs" .kinds }}
- apiGroups: ["batch"]
  resources: ["cronjobs"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "jobs" .kinds }}
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "rollouts" .kinds }}
- apiGroups: ["argoproj.io"]
  resources: ["rollouts"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "secrets" .kinds }}
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["patch"]
{{- end }}
{{- if has "vaultpushes" .kinds }}
- apiGroups: ["konverge.dev"]
  resources: ["vaultpushes"]
  verbs: ["get","list","watch","patch"]
- apiGroups: ["konverge.dev"]
  resources: ["vaultpushes/status"]
  verbs: ["patch"]
{{- end }}
{{- end }}
{{- define "konverge.rules.push.one.home" }}
- apiGroups: [""]
  resources: ["configmaps"]
  verbs: ["create"]
- apiGroups: [""]
  resources: ["configmaps"]
  resourceNames: ["vault-sync-operator-orphans"]
  verbs: ["get","patch"]
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["list","create","delete"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["create"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  resourceNames: ["vault-sync-operator.io"]
  verbs: ["get","patch"]
{{- end }}
{{- define "konverge.rules.roll.one.cluster" }}
{{- if .metricsAuth }}
- apiGroups: ["authentication.k8s.io"]
  resources: ["tokenreviews"]
  verbs: ["create"]
- apiGroups: ["authorization.k8s.io"]
  resources: ["subjectaccessreviews"]
  verbs: ["create"]
{{- end }}
{{- end }}
{{- define "konverge.rules.roll.one.watched" }}
- apiGroups: [""]
  resources: ["configmaps","secrets"]
  verbs: ["get","list","watch"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create","patch"]
- apiGroups: ["secrets-store.csi.x-k8s.io"]
  resources: ["secretproviderclasses"]
  verbs: ["list","watch"]
{{- if has "deployments" .kinds }}
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "statefulsets" .kinds }}
- apiGroups: ["apps"]
  resources: ["statefulsets"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "daemonsets" .kinds }}
- apiGroups: ["apps"]
  resources: ["daemonsets"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "cronjobs" .kinds }}
- apiGroups: ["batch"]
  resources: ["cronjobs"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if has "rollouts" .kinds }}
- apiGroups: ["argoproj.io"]
  resources: ["rollouts"]
  verbs: ["get","list","watch","patch"]
{{- end }}
{{- if .vault }}
- apiGroups: ["konverge.dev"]
  resources: ["vaultrollouts"]
  verbs: ["list","watch"]
- apiGroups: ["konverge.dev"]
  resources: ["vaultrollouts/status"]
  verbs: ["patch"]
- apiGroups: ["stable.example.com"]
  resources: ["vaultsyncstatus"]
  verbs: ["get","list","watch","patch"]
- apiGroups: ["stable.example.com"]
  resources: ["vaultsyncstatus/status"]
  verbs: ["patch"]
{{- end }}
{{- end }}
{{- define "konverge.rules.roll.one.home" }}
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["create"]
- apiGroups: [""]
  resources: ["secrets"]
  resourceNames: ["vault-rollout-operator-digest-key"]
  verbs: ["get"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["create"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  resourceNames: ["vault-rollout-operator"]
  verbs: ["get","patch"]
{{- end }}
