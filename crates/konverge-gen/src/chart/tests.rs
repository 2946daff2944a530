//! The files of a chart as text. The crate `konverge` tests with Helm how Helm renders them.

use serde_json::{Value, json};

use super::{Chart, NAMESPACE, template, values};

fn definition(
    namespace: Option<&str>,
) -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "tests.example.io" },
        "spec": {
            "group": "example.io", "scope": "Namespaced", "versions": [],
            "names": { "kind": "Test", "plural": "tests" },
        },
    });
    if let Some(namespace) = namespace {
        definition["spec"]["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": { "service": { "name": "tester", "namespace": namespace } },
            },
        });
    }
    serde_json::from_value(definition).unwrap()
}

#[test]
fn the_namespace_is_that_of_the_release_and_no_text_is_an_action() {
    let object = json!({
        "metadata": { "namespace": NAMESPACE },
        "host": format!("tester.{NAMESPACE}.svc"),
        "summary": "{{ $labels.check }} fails",
    });
    let text = template::of("test.yaml", &[object]).unwrap();
    assert!(text.contains("  namespace: {{ .Release.Namespace | quote }}\n"), "{text}");
    assert!(text.contains("host: tester.{{ .Release.Namespace }}.svc\n"), "{text}");
    assert!(text.contains(r#"{{ "{{" }} $labels.check }} fails"#), "{text}");
    assert!(!text.contains(NAMESPACE), "{text}");
}

#[test]
fn a_definition_that_names_the_namespace_is_a_template_and_stays_with_its_objects() {
    let chart =
        |crd| Chart { program: "tester", version: "1.2.3", crds: vec![crd], ..Chart::default() }.files().unwrap();
    let plain = chart(definition(None));
    assert!(plain.get("crds/crds.yaml").is_some() && plain.get("templates/crds.yaml").is_none());
    assert!(plain.get("templates/NOTES.txt").unwrap().contains("helm show crds"));
    let converted = chart(definition(Some(NAMESPACE)));
    assert!(converted.get("crds/crds.yaml").is_none());
    assert!(!converted.get("templates/NOTES.txt").unwrap().contains("helm show crds"));
    let template = converted.get("templates/crds.yaml").unwrap();
    assert!(template.contains("helm.sh/resource-policy: keep"), "{template}");
    assert!(template.contains("namespace: {{ .Release.Namespace | quote }}"), "{template}");
}

#[test]
fn pods_have_the_ports_that_services_lead_to() {
    let service = json!({
        "kind": "Service",
        "spec": { "ports": [{ "name": "webhooks", "port": 443, "targetPort": 9443 }] },
    });
    let deployment = |others| {
        let chart = Chart { program: "tester", version: "1.2.3", others, ..Chart::default() };
        chart.files().unwrap().get("templates/deployment.yaml").unwrap().to_owned()
    };
    let without = deployment(Vec::new());
    assert!(!without.contains("webhooks") && !without.contains("FURTHER_PORTS"), "{without}");
    assert!(deployment(vec![service]).contains("        - name: webhooks\n          containerPort: 9443\n"));
}

/// The members of a value that the schema describes one by one are those of the schema.
fn same_members(values: &Value, schema: &Value, path: &str) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let values = values.as_object().unwrap_or_else(|| panic!("{path} is no object"));
    assert_eq!(schema["additionalProperties"], false, "{path}");
    let described: Vec<_> = properties.keys().filter(|key| *key != "global").collect();
    let mut named: Vec<_> = values.keys().collect();
    named.sort();
    assert_eq!(named, described, "{path}");
    for (key, value) in values {
        same_members(value, &properties[key], &format!("{path}.{key}"));
    }
}

#[test]
fn the_schema_describes_each_value_and_no_other() {
    let values: Value = serde_saphyr::from_str(&values::text("tester")).unwrap();
    let schema: Value = serde_json::from_str(&values::schema()).unwrap();
    same_members(&values, &schema, "values");
}
