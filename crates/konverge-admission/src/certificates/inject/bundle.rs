//! What has to change in an object so that it knows the authorities: pure.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// Why there is nothing to change, although the object does not know the authorities.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    Elsewhere,
    NoConversion,
}

/// A declared configuration that knows the authorities.
pub(super) fn with_bundle(mut declared: Value, bundle: &str) -> Value {
    let encoded = STANDARD.encode(bundle);
    for webhook in declared.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        webhook["clientConfig"]["caBundle"] = encoded.clone().into();
    }
    declared
}

/// What makes the webhooks of a configuration know the authorities. Webhooks that call another service are left alone.
pub(super) fn webhooks(object: &Value, bundle: &str, service: (&str, &str)) -> Result<Vec<Value>, Unfit> {
    let encoded = STANDARD.encode(bundle);
    let (mut operations, mut ours) = (Vec::new(), false);
    for (index, webhook) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
        let config = &webhook["clientConfig"];
        if !is_ours(config, service) {
            continue;
        }
        ours = true;
        if config["caBundle"] != encoded.as_str() {
            // The order may have changed since it was read.
            operations
                .push(json!({ "op": "test", "path": format!("/webhooks/{index}/name"), "value": webhook["name"] }));
            operations.push(
                json!({ "op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": encoded }),
            );
        }
    }
    if ours { Ok(operations) } else { Err(Unfit::Elsewhere) }
}

/// What makes the conversion of a definition know the authorities.
pub(super) fn conversion(object: &Value, bundle: &str, service: (&str, &str)) -> Result<Vec<Value>, Unfit> {
    let encoded = STANDARD.encode(bundle);
    let conversion = &object["spec"]["conversion"];
    let config = &conversion["webhook"]["clientConfig"];
    if conversion["strategy"] != "Webhook" || !config.is_object() {
        return Err(Unfit::NoConversion);
    }
    if !is_ours(config, service) {
        return Err(Unfit::Elsewhere);
    }
    if config["caBundle"] == encoded.as_str() {
        return Ok(Vec::new());
    }
    let path = "/spec/conversion/webhook/clientConfig/caBundle";
    Ok(vec![
        json!({ "op": "test", "path": "/spec/conversion/strategy", "value": "Webhook" }),
        json!({ "op": "add", "path": path, "value": encoded }),
    ])
}

/// A URL may be anybody's, and was declared to be ours.
fn is_ours(config: &Value, (namespace, name): (&str, &str)) -> bool {
    let service = &config["service"];
    service.is_null() || (service["namespace"] == namespace && service["name"] == name)
}

#[cfg(test)]
mod tests {
    use json_patch::Patch as Operations;

    use super::*;

    const OURS: (&str, &str) = ("shop", "hooks");

    fn webhook(name: &str, service: &str, bundle: Option<&str>) -> Value {
        let mut webhook =
            json!({ "name": name, "clientConfig": { "service": { "namespace": "shop", "name": service } } });
        if let Some(bundle) = bundle {
            webhook["clientConfig"]["caBundle"] = STANDARD.encode(bundle).into();
        }
        webhook
    }

    #[test]
    fn only_our_webhooks_with_another_bundle_are_told() {
        let all = json!({ "webhooks": [
            webhook("a", "hooks", None),
            webhook("b", "theirs", None),
            webhook("c", "hooks", Some("old")),
            webhook("d", "hooks", Some("new")),
            { "name": "e", "clientConfig": { "url": "https://127.0.0.1" } },
        ] });
        let operations = webhooks(&all, "new", OURS).unwrap();
        let mut patched = all.clone();
        json_patch::patch(&mut patched, &serde_json::from_value::<Operations>(json!(operations)).unwrap()).unwrap();
        let bundles: Vec<_> =
            (0..5).map(|index| patched["webhooks"][index]["clientConfig"]["caBundle"].clone()).collect();
        let new = json!(STANDARD.encode("new"));
        assert_eq!(bundles, [new.clone(), Value::Null, new.clone(), new.clone(), new]);
        assert_eq!(operations.len(), 6, "two for each that changes");
        assert_eq!(webhooks(&patched, "new", OURS), Ok(vec![]));
        assert_eq!(
            webhooks(&json!({ "webhooks": [webhook("b", "theirs", None)] }), "new", OURS),
            Err(Unfit::Elsewhere)
        );
        assert_eq!(webhooks(&json!({}), "new", OURS), Err(Unfit::Elsewhere));
    }

    #[test]
    fn a_conversion_is_told_if_it_is_ours() {
        let definition = |strategy: &str, config: Value| json!({ "spec": { "conversion": { "strategy": strategy, "webhook": { "clientConfig": config } } } });
        let service = |name: &str| json!({ "service": { "namespace": "shop", "name": name } });
        let table = [
            (definition("Webhook", service("hooks")), Ok(2)),
            (definition("Webhook", json!({ "url": "https://a" })), Ok(2)),
            (definition("Webhook", json!({ "url": "https://a", "caBundle": STANDARD.encode("new") })), Ok(0)),
            (definition("Webhook", service("theirs")), Err(Unfit::Elsewhere)),
            (definition("None", Value::Null), Err(Unfit::NoConversion)),
            (json!({ "spec": {} }), Err(Unfit::NoConversion)),
        ];
        for (object, expected) in table {
            assert_eq!(conversion(&object, "new", OURS).map(|operations| operations.len()), expected, "{object}");
        }
    }
}
