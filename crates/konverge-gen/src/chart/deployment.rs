//! The program in a cluster: its Deployment, and what stands around its pods.
//!
//! A pod keeps to the Pod Security Standard "restricted" whatever the values are: they cannot change its security context.

use std::fmt::Write;

use serde_json::Value;

use super::template::when;

const HEADER: &str = "# Generated; change the code instead.\n";

fn filled(program: &str, template: &str) -> String {
    format!("{HEADER}{}", template.replace("PROGRAM", program))
}

/// The Deployment. Besides that of health and metrics, its pods have the ports that Services among `others` lead to.
pub(super) fn template(program: &str, others: &[Value]) -> String {
    let mut ports = String::new();
    let services = others.iter().filter(|object| object["kind"] == "Service");
    for port in services.filter_map(|service| service["spec"]["ports"].as_array()).flatten() {
        if let (Some(name), Some(number)) = (port["name"].as_str(), port["targetPort"].as_u64()) {
            // Writing to a string cannot fail.
            let _ = write!(ports, "\n        - name: {name}\n          containerPort: {number}");
        }
    }
    filled(program, &DEPLOYMENT.replace("\nFURTHER_PORTS", &ports))
}

/// The Service that metrics are scraped through.
pub(super) fn service(program: &str) -> String {
    filled(program, SERVICE)
}

pub(super) fn disruption_budget(program: &str) -> String {
    // With one replica, a budget would keep its node from being drained.
    when("and .Values.podDisruptionBudget.enabled (gt (int .Values.replicas) 1)", &filled(program, BUDGET))
}

pub(super) fn service_monitor(program: &str) -> String {
    when(".Values.serviceMonitor.enabled", &filled(program, MONITOR))
}

const DEPLOYMENT: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: PROGRAM
  namespace: {{ .Release.Namespace | quote }}
  labels:
    app.kubernetes.io/name: PROGRAM
spec:
  replicas: {{ .Values.replicas }}
  selector:
    matchLabels:
      app.kubernetes.io/name: PROGRAM
  template:
    metadata:
      labels:
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        app.kubernetes.io/name: PROGRAM
      {{- with .Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: PROGRAM
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
      securityContext:
        runAsNonRoot: true
        seccompProfile:
          type: RuntimeDefault
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      containers:
      - name: operator
        {{- $image := .Values.image }}
        {{- if $image.digest }}
        image: {{ printf "%s@%s" $image.repository $image.digest | quote }}
        {{- else }}
        image: {{ printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) | quote }}
        {{- end }}
        imagePullPolicy: {{ $image.pullPolicy }}
        args:
        - --leader-election
        - --log-format={{ .Values.logFormat }}
        {{- range .Values.args }}
        - {{ . | quote }}
        {{- end }}
        env:
        - name: OPERATOR_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: http
          containerPort: 8080
FURTHER_PORTS
        livenessProbe:
          httpGet:
            path: /healthz
            port: http
        readinessProbe:
          httpGet:
            path: /readyz
            port: http
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop:
            - ALL
        resources:
          {{- toYaml .Values.resources | nindent 10 }}
"#;

const SERVICE: &str = r"apiVersion: v1
kind: Service
metadata:
  name: PROGRAM-metrics
  namespace: {{ .Release.Namespace | quote }}
  labels:
    app.kubernetes.io/name: PROGRAM
    app.kubernetes.io/component: metrics
spec:
  selector:
    app.kubernetes.io/name: PROGRAM
  ports:
  - name: http
    port: 8080
    targetPort: http
";

const BUDGET: &str = r"apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: PROGRAM
  namespace: {{ .Release.Namespace | quote }}
  labels:
    app.kubernetes.io/name: PROGRAM
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: PROGRAM
";

const MONITOR: &str = r"apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: PROGRAM
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- with .Values.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    app.kubernetes.io/name: PROGRAM
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: PROGRAM
      app.kubernetes.io/component: metrics
  endpoints:
  - port: http
    path: /metrics
    interval: {{ .Values.serviceMonitor.interval | quote }}
";
