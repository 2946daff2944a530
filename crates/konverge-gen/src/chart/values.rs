//! The values of a chart, and their schema.

use serde_json::{Value, json};

/// `values.yaml`.
pub(super) fn text(program: &str) -> String {
    format!(
        r#"# Generated; change the code instead. Set your own values with --set or --values.

image:
  # Registry and name of the image.
  repository: {program}
  # Default: the version of the chart.
  tag: ""
  # A digest such as sha256:…; it takes precedence over the tag.
  digest: ""
  pullPolicy: IfNotPresent
# Names of Secrets, each as name: NAME.
imagePullSecrets: []

# One replica leads; the others stand by with warm caches.
replicas: 2
# Further flags of the program; see its reference.
args: []
# Further variables, as in a pod.
env: []
# One of text and json.
logFormat: json

resources:
  requests:
    cpu: 10m
    memory: 32Mi
  limits:
    memory: 128Mi

podLabels: {{}}
podAnnotations: {{}}
nodeSelector: {{}}
tolerations: []
affinity: {{}}
topologySpreadConstraints: []
priorityClassName: ""
# More than --grace-period, which is 30 seconds by default.
terminationGracePeriodSeconds: 40

podDisruptionBudget:
  enabled: true

# For clusters with the Prometheus operator.
serviceMonitor:
  enabled: false
  interval: 30s
  labels: {{}}
alerts:
  enabled: false
"#
    )
}

/// `values.schema.json`. Unknown values are refused, so a misspelt one does not go unnoticed.
pub(super) fn schema() -> String {
    let text = json!({ "type": "string" });
    let switch = json!({ "type": "boolean" });
    let free = json!({ "type": "object" });
    let list = |items: Value| json!({ "type": "array", "items": items });
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let schema = closed(&json!({
        "image": closed(&json!({
            "repository": { "type": "string", "minLength": 1 },
            "tag": text,
            "digest": { "type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$" },
            "pullPolicy": { "enum": ["Always", "IfNotPresent", "Never"] },
        })),
        "imagePullSecrets": list(free.clone()),
        "replicas": { "type": "integer", "minimum": 0 },
        "args": list(text.clone()),
        "env": list(free.clone()),
        "logFormat": { "enum": ["text", "json"] },
        "resources": free,
        "podLabels": texts,
        "podAnnotations": texts,
        "nodeSelector": texts,
        "tolerations": list(free.clone()),
        "affinity": free,
        "topologySpreadConstraints": list(free.clone()),
        "priorityClassName": text,
        "terminationGracePeriodSeconds": { "type": "integer", "minimum": 1 },
        "podDisruptionBudget": closed(&json!({ "enabled": switch })),
        "serviceMonitor": closed(&json!({ "enabled": switch, "interval": text, "labels": texts })),
        "alerts": closed(&json!({ "enabled": switch })),
        // Of a chart that has this one as a part.
        "global": free,
    }));
    let mut schema = schema;
    schema["$schema"] = "https://json-schema.org/draft-07/schema#".into();
    // A value of JSON is always text.
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

fn closed(properties: &Value) -> Value {
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}
