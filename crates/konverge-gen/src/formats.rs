//! The formats that Kubernetes knows in the schema of a custom resource definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    JSONSchemaPropsOrStringArray,
};

/// Removes the formats that the API server ignores with a warning, such as `uint32`. The bounds of the numbers stay.
pub fn remove_unknown_formats(definition: &mut CustomResourceDefinition) {
    let schemas = definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()).for_each(clean);
}

fn clean(schema: &mut JSONSchemaProps) {
    if schema.format.as_ref().is_some_and(|format| !is_known(schema.type_.as_deref(), format)) {
        schema.format = None;
    }
    children(schema).into_iter().for_each(clean);
}

/// Whether the API server checks the format in a schema of this type, by the rules of its `GetUnrecognizedFormats`.
fn is_known(of_type: Option<&str>, format: &str) -> bool {
    match of_type {
        None | Some("" | "string") => STRING_FORMATS.contains(&&*format.replace('-', "")),
        Some("integer") => ["int32", "int64"].contains(&format),
        Some("number") => ["float", "double"].contains(&format),
        Some(_) => false,
    }
}

/// The formats of strings, without their hyphens.
const STRING_FORMATS: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// The schemas directly below this one.
fn children(schema: &mut JSONSchemaProps) -> Vec<&mut JSONSchemaProps> {
    let mut all = Vec::new();
    for of in [&mut schema.all_of, &mut schema.any_of, &mut schema.one_of] {
        all.extend(of.iter_mut().flatten());
    }
    for of in [&mut schema.properties, &mut schema.pattern_properties, &mut schema.definitions] {
        all.extend(of.iter_mut().flat_map(|schemas| schemas.values_mut()));
    }
    all.extend(schema.not.as_deref_mut());
    for of in [&mut schema.additional_properties, &mut schema.additional_items] {
        if let Some(JSONSchemaPropsOrBool::Schema(schema)) = of {
            all.push(schema);
        }
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(schema)) => all.push(schema),
        Some(JSONSchemaPropsOrArray::Schemas(schemas)) => all.extend(schemas),
        None => {}
    }
    for dependency in schema.dependencies.iter_mut().flat_map(|dependencies| dependencies.values_mut()) {
        if let JSONSchemaPropsOrStringArray::Schema(schema) = dependency {
            all.push(schema);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cleaned(schema: &Value) -> Value {
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let names = json!({"kind": "Thing", "plural": "things"});
        let spec = json!({"group": "example.io", "scope": "Namespaced", "names": names, "versions": [version]});
        let mut definition: CustomResourceDefinition = serde_json::from_value(json!({"spec": spec})).unwrap();
        remove_unknown_formats(&mut definition);
        let schema = definition.spec.versions[0].schema.take().unwrap().open_api_v3_schema.unwrap();
        serde_json::to_value(schema).unwrap()
    }

    #[test]
    fn only_formats_that_the_api_server_checks_stay() {
        for (of_type, format, is_known) in [
            ("integer", "uint", false),
            ("integer", "uint8", false),
            ("integer", "uint32", false),
            ("integer", "uint64", false),
            ("integer", "int8", false),
            ("integer", "int32", true),
            ("integer", "int64", true),
            ("integer", "date-time", false),
            ("number", "double", true),
            ("number", "float", true),
            ("number", "int32", false),
            ("string", "date-time", true),
            ("string", "k8s-short-name", true),
            ("string", "uuid", true),
            ("string", "partial-date-time", false),
            ("string", "int32", false),
            ("object", "uuid", false),
        ] {
            let mut expected = json!({"type": of_type, "minimum": 0.0});
            let schema = json!({"type": of_type, "minimum": 0.0, "format": format});
            if is_known {
                expected = schema.clone();
            }
            assert_eq!(cleaned(&schema), expected);
        }
        assert_eq!(cleaned(&json!({"format": "email"})), json!({"format": "email"}), "also without a type");
    }

    #[test]
    fn formats_are_removed_at_every_depth() {
        let unsigned = |format: Option<&str>| {
            let mut schema = json!({"type": "integer", "minimum": 0.0});
            if let Some(format) = format {
                schema["format"] = format.into();
            }
            schema
        };
        let schema = |format: Option<&str>| {
            let leaf = unsigned(format);
            json!({
                "type": "object",
                "properties": {"list": {"type": "array", "items": leaf}, "map": {"additionalProperties": leaf}},
                "patternProperties": {"a": leaf},
                "definitions": {"a": leaf},
                "dependencies": {"a": leaf, "b": ["c"]},
                "additionalItems": leaf,
                "items": [leaf],
                "allOf": [leaf],
                "anyOf": [leaf],
                "oneOf": [leaf],
                "not": leaf,
            })
        };
        assert_eq!(cleaned(&schema(Some("uint32"))), schema(None));
        assert_eq!(cleaned(&schema(Some("int64"))), schema(Some("int64")));
    }
}
