//! `spec.template`: the keys of the Secret that are made of the sources' keys.

use std::collections::BTreeMap;

use konverge_text::{FileFormat, Template, docker_config};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    plan::is_valid_key,
    template::{Output, RegistryTemplate, SecretTemplate},
};

/// Keys that are made of the sources' keys. The Secret gets these keys and not those of the sources.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.data) || has(self.files) || has(self.registries)")
    .message("give data, files or registries"))]
#[x_kube(validation = Rule::new("!has(self.data) || !has(self.files) || self.files.all(file, !(file.key in self.data))")
    .message("a key is in data and in files; remove one of them"))]
#[x_kube(validation = Rule::new("!has(self.registries) || ((!has(self.data) || !('.dockerconfigjson' in self.data)) && (!has(self.files) || !self.files.exists(file, file.key == '.dockerconfigjson')))")
    .message("registries make the key .dockerconfigjson; remove it from data and files"))]
pub struct TemplateSpec {
    /// From the key of the Secret to its text. ${key} stands for the value of a source's key, by its name after renaming, and $$ for a dollar. There are
    /// no functions and no conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "texts")]
    pub data: Option<BTreeMap<String, String>>,
    /// Whole files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into()]))]
    pub files: Option<Vec<FileSpec>>,
    /// Credentials of container registries, which become the key .dockerconfigjson. spec.target.type is then kubernetes.io/dockerconfigjson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["server".into()]))]
    pub registries: Option<Vec<RegistrySpec>>,
    /// Whether the Secret has the sources' keys, too.
    #[serde(default)]
    pub keep_source_keys: bool,
}

/// A file that is made of several keys.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSpec {
    /// The key of the Secret, such as config.json.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
    /// The format. Dotenv: lines like KEY=value that shells and libraries read alike. JSON: one object of texts. Properties: Java's properties. PEM:
    /// certificates and keys one after the other.
    #[schemars(schema_with = "format")]
    pub format: FileFormat,
    /// The sources' keys in it, in this order, by their names after renaming. * stands for any run of characters. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub keys: Vec<String>,
}

/// The credentials of a container registry. In each field, ${key} stands for the value of a source's key.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistrySpec {
    /// The host as images name it, such as ghcr.io or registry.example.com:5000.
    #[schemars(schema_with = "text")]
    pub server: String,
    /// The name of the account.
    #[schemars(schema_with = "text")]
    pub username: String,
    /// The password or token.
    #[schemars(schema_with = "text")]
    pub password: String,
}

fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": Template::LONGEST, "pattern": Template::PATTERN_OF_KEYS })
}

fn texts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": Template::LONGEST, "pattern": Template::PATTERN_OF_KEYS },
    })
}

fn format(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Dotenv", "JSON", "Properties", "PEM"] })
}

impl TemplateSpec {
    /// Reads the template.
    ///
    /// # Errors
    /// The field that cannot be used, and why.
    pub(super) fn read(&self) -> Result<SecretTemplate, String> {
        let mut outputs = BTreeMap::new();
        let mut add = |field: &str, key: &str, output| {
            if !is_valid_key(key) {
                return Err(format!("spec.template.{field}: no Secret can have the key {key:?}"));
            }
            match outputs.insert(key.to_owned(), output) {
                None => Ok(()),
                Some(_) => Err(format!("spec.template.{field}: the key {key:?} is made twice; remove one of the two")),
            }
        };
        for (key, text) in self.data.iter().flatten() {
            add("data", key, Output::Text(parse(&format!("data[{key}]"), text)?))?;
        }
        for FileSpec { key, format, keys } in self.files.iter().flatten() {
            add("files", key, Output::File { format: *format, keys: keys.clone() })?;
        }
        if let Some(registries) = &self.registries {
            let registries = registries.iter().enumerate().map(|(number, registry)| registry.read(number));
            add("registries", docker_config::KEY, Output::Registries(registries.collect::<Result<_, _>>()?))?;
        }
        Ok(SecretTemplate { outputs, keeps_source_keys: self.keep_source_keys })
    }
}

impl RegistrySpec {
    fn read(&self, number: usize) -> Result<RegistryTemplate, String> {
        let parse = |field: &str, text: &str| parse(&format!("registries[{number}].{field}"), text);
        Ok(RegistryTemplate {
            server: parse("server", &self.server)?,
            username: parse("username", &self.username)?,
            password: parse("password", &self.password)?,
        })
    }
}

/// Reads the text of a field of the template.
fn parse(field: &str, text: &str) -> Result<Template, String> {
    let template: Template = text.parse().map_err(|error| format!("spec.template.{field}: {error}"))?;
    if let Some(secret) = template.placeholders().find_map(|placeholder| placeholder.secret.as_ref()) {
        return Err(format!(
            "spec.template.{field}: ${{{secret}/…}} names another Secret; write ${{key}} with a key of a source"
        ));
    }
    Ok(template)
}
