//! The changes that make an object know the authorities and call the right place. Pure.

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

/// The patch that publishes the authorities to the webhooks of a configuration. Webhooks that call another service are left alone.
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

/// The operations that make the webhooks of a configuration call the URL or Service that `declared` names for them, if it is now the other of
/// the two. Empty if there are none: an apply does the rest.
pub(super) fn relocation(found: &Value, declared: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    for (index, webhook) in found["webhooks"].as_array().into_iter().flatten().enumerate() {
        let mut all_declared = declared["webhooks"].as_array().into_iter().flatten();
        let Some(declared) = all_declared.find(|declared| declared["name"] == webhook["name"]) else { continue };
        let (from, to) = (&webhook["clientConfig"], &declared["clientConfig"]);
        let path = format!("/webhooks/{index}");
        let removal = removal_of_other_place(&format!("{path}/clientConfig"), from, to);
        if !removal.is_empty() {
            // The order may have changed since it was read.
            operations.push(json!({ "op": "test", "path": format!("{path}/name"), "value": webhook["name"] }));
            operations.extend(removal);
            operations.extend(additions(&format!("{path}/clientConfig"), from, to));
        }
    }
    operations
}

/// The operations that make the conversion of a definition know the authorities, and call `url` if there is one.
pub(super) fn conversion(
    object: &Value,
    bundle: &str,
    service: (&str, &str),
    url: Option<&str>,
) -> Result<Vec<Value>, Unfit> {
    const PATH: &str = "/spec/conversion/webhook/clientConfig";
    let conversion = &object["spec"]["conversion"];
    let config = &conversion["webhook"]["clientConfig"];
    if conversion["strategy"] != "Webhook" || !config.is_object() {
        return Err(Unfit::NoConversion);
    }
    let mut wanted = json!({ "caBundle": STANDARD.encode(bundle) });
    let mut operations = Vec::new();
    match url {
        Some(url) => {
            wanted["url"] = url.into();
            operations = removal_of_other_place(PATH, config, &wanted);
        }
        None if !is_ours(config, service) => return Err(Unfit::Elsewhere),
        None => {}
    }
    operations.extend(additions(PATH, config, &wanted));
    if !operations.is_empty() {
        operations.insert(0, json!({ "op": "test", "path": "/spec/conversion/strategy", "value": "Webhook" }));
    }
    Ok(operations)
}

/// The operations that remove the Service or URL that the client configuration at `path` names and `wanted` does not. They fail if it has
/// changed meanwhile.
fn removal_of_other_place(path: &str, found: &Value, wanted: &Value) -> Vec<Value> {
    let others = ["service", "url"].into_iter().filter(|field| !found[*field].is_null() && wanted[*field].is_null());
    let operations = others.flat_map(|field| {
        let path = format!("{path}/{field}");
        [json!({ "op": "test", "path": path, "value": found[field] }), json!({ "op": "remove", "path": path })]
    });
    operations.collect()
}

/// The operations that give the client configuration at `path` what `wanted` has.
fn additions(path: &str, found: &Value, wanted: &Value) -> Vec<Value> {
    let wanted = wanted.as_object().into_iter().flatten().filter(|(field, value)| found[field.as_str()] != **value);
    wanted.map(|(field, value)| json!({ "op": "add", "path": format!("{path}/{field}"), "value": value })).collect()
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
            assert_eq!(conversion(&object, "new", OURS, None).map(|operations| operations.len()), expected, "{object}");
        }
    }

    fn patched(mut object: Value, operations: Vec<Value>) -> Result<Value, json_patch::PatchError> {
        let operations = serde_json::from_value::<Operations>(Value::Array(operations)).unwrap();
        json_patch::patch(&mut object, &operations).map(|()| object)
    }

    #[test]
    fn a_conversion_is_moved_to_its_url() {
        let definition = |config: Value| json!({ "spec": { "conversion": { "strategy": "Webhook", "webhook": { "clientConfig": config } } } });
        let service = |name: &str| json!({ "namespace": "shop", "name": name, "path": "/convert" });
        let there = definition(json!({ "url": "https://a/convert", "caBundle": STANDARD.encode("new") }));
        for config in [
            json!({ "service": service("hooks") }),
            json!({ "service": service("hooks"), "caBundle": STANDARD.encode("old") }),
            json!({ "service": service("theirs"), "caBundle": STANDARD.encode("new") }),
            json!({ "url": "https://b/convert", "caBundle": STANDARD.encode("new") }),
            json!({ "url": "https://a/convert" }),
        ] {
            let before = definition(config);
            let operations = conversion(&before, "new", OURS, Some("https://a/convert")).unwrap();
            assert_eq!(patched(before, operations).unwrap(), there);
        }
        assert_eq!(conversion(&there, "new", OURS, Some("https://a/convert")), Ok(vec![]));
        let none = json!({ "spec": { "conversion": { "strategy": "None" } } });
        assert_eq!(conversion(&none, "new", OURS, Some("https://a/convert")), Err(Unfit::NoConversion));

        // Changed since it was read.
        let before = definition(json!({ "service": service("hooks") }));
        let operations = conversion(&before, "new", OURS, Some("https://a/convert")).unwrap();
        assert!(patched(definition(json!({ "service": service("theirs") })), operations).is_err());
    }

    #[test]
    fn declared_webhooks_move_between_a_service_and_a_url() {
        let at_url = |name: &str, bundle: &str| json!({ "name": name, "clientConfig": { "url": "https://a/x", "caBundle": STANDARD.encode(bundle) } });
        let declared = json!({ "webhooks": [at_url("a", "new"), at_url("b", "new"), at_url("c", "new")] });
        let found = json!({ "webhooks": [
            webhook("foreign", "hooks", None),
            webhook("b", "hooks", Some("old")),
            at_url("c", "old"),
            webhook("a", "theirs", None),
        ] });
        let operations = relocation(&found, &declared);
        let moved = patched(found.clone(), operations.clone()).unwrap();
        let expected = json!({ "webhooks": [
            webhook("foreign", "hooks", None),
            at_url("b", "new"),
            at_url("c", "old"),
            at_url("a", "new"),
        ] });
        assert_eq!(moved, expected);
        assert_eq!(relocation(&moved, &declared), [Value::Null; 0], "the apply does the rest");

        let back = json!({ "webhooks": [webhook("a", "hooks", Some("new"))] });
        let returned = patched(moved.clone(), relocation(&moved, &back)).unwrap();
        assert_eq!(returned["webhooks"][3], back["webhooks"][0]);

        // Changed since it was read: another order, another Service.
        let mut reordered = found.clone();
        reordered["webhooks"].as_array_mut().unwrap().swap(1, 3);
        assert!(patched(reordered, operations.clone()).is_err());
        let mut other = found;
        other["webhooks"][1] = webhook("b", "theirs", Some("old"));
        assert!(patched(other, operations).is_err());
    }
}
