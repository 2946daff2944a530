//! From bytes to [`ConfigFile`], by hand rather than by derive: a derived error quotes what it found, which may be a key.

use std::{collections::BTreeMap, path::Path};

use konverge_zopp_crypto::export::SALT_LENGTH;
use serde_json::{Map, Value, error::Category};
use zeroize::Zeroizing;

use super::{ConfigFile, FileError, KeyProtection, Principal};

const TEXT: &str = "a text is expected";
const TEXT_OR_NULL: &str = "a text or null is expected";

/// One object of the file and where it is.
struct Fields<'a> {
    file: &'a Path,
    prefix: String,
    map: Map<String, Value>,
}

impl Fields<'_> {
    fn error(&self, field: &str, expected: &'static str) -> FileError {
        FileError::Shape { file: self.file.to_owned(), field: format!("{}{field}", self.prefix), expected }
    }

    fn text(&mut self, field: &str) -> Result<String, FileError> {
        match self.map.remove(field) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(self.error(field, TEXT)),
        }
    }

    fn optional_text(&mut self, field: &str) -> Result<OptionalText, FileError> {
        match self.map.remove(field) {
            None => Ok(OptionalText::Absent),
            Some(Value::Null) => Ok(OptionalText::Null),
            Some(Value::String(text)) => Ok(OptionalText::Text(text)),
            Some(_) => Err(self.error(field, TEXT_OR_NULL)),
        }
    }
}

enum OptionalText {
    Absent,
    Null,
    Text(String),
}

impl OptionalText {
    fn into_option(self) -> Option<String> {
        match self {
            Self::Absent | Self::Null => None,
            Self::Text(text) => Some(text),
        }
    }
}

pub(super) fn parse(content: &[u8], file: &Path) -> Result<ConfigFile, FileError> {
    let value: Value = serde_json::from_slice(content).map_err(|error| FileError::NotJson {
        file: file.to_owned(),
        what: if error.classify() == Category::Eof { "it ends too early" } else { "unexpected character" },
        line: error.line(),
        column: error.column(),
    })?;
    let Value::Object(map) = value else {
        let expected = "an object with \"principals\" is expected";
        return Err(FileError::Shape { file: file.to_owned(), field: "top level".to_owned(), expected });
    };
    let mut top = Fields { file, prefix: String::new(), map };
    // The identity that the first generation states once for all principals.
    let user_id = top.optional_text("user_id")?.into_option().filter(|text| !text.is_empty());
    let email = top.optional_text("email")?.into_option().filter(|text| !text.is_empty());
    let current_principal = top.optional_text("current_principal")?.into_option();
    let Some(Value::Array(principals)) = top.map.remove("principals") else {
        return Err(top.error("principals", "a list is expected"));
    };
    // A pin that cannot be read must not count as none.
    let servers = match top.map.remove("servers") {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(value) => serde_json::from_value(value)
            .map_err(|_| top.error("servers", "addresses with what zopp remembers of each are expected"))?,
    };
    let protection = match top.map.remove("key_protection") {
        None | Some(Value::Null) => None,
        Some(value) => Some(protection(&value).ok_or_else(|| {
            top.error("key_protection", "an object with a \"salt\" of 16 bytes in hexadecimal is expected")
        })?),
    };
    let principals = principals
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            let prefix = format!("principals[{index}]");
            let Value::Object(map) = value else {
                let expected = "an object is expected";
                return Err(FileError::Shape { file: file.to_owned(), field: prefix, expected });
            };
            principal(Fields { file, prefix: format!("{prefix}."), map }, user_id.as_ref(), email.as_ref())
        })
        .collect::<Result<_, _>>()?;
    Ok(ConfigFile { principals, current_principal, servers, protection, other: top.map })
}

fn protection(value: &Value) -> Option<KeyProtection> {
    let mut salt = [0; SALT_LENGTH];
    hex::decode_to_slice(value.get("salt")?.as_str()?, &mut salt).ok()?;
    Some(KeyProtection { salt })
}

fn principal(
    mut fields: Fields<'_>,
    inherited_user_id: Option<&String>,
    inherited_email: Option<&String>,
) -> Result<Principal, FileError> {
    let private_key = Zeroizing::new(fields.text("private_key")?);
    let x25519_private_key = fields.optional_text("x25519_private_key")?.into_option().map(Zeroizing::new);
    let (user_id, email) = (fields.optional_text("user_id")?, fields.optional_text("email")?);
    // An explicit null marks a service principal; only a file that does not say leaves it to the top level.
    let (user_id, email) = match (user_id, email) {
        (OptionalText::Absent, OptionalText::Absent) => (inherited_user_id.cloned(), inherited_email.cloned()),
        (user_id, email) => (user_id.into_option(), email.into_option()),
    };
    Ok(Principal {
        id: fields.text("id")?,
        name: fields.text("name")?,
        user_id,
        email,
        private_key,
        public_key: fields.text("public_key")?,
        x25519_private_key,
        x25519_public_key: fields.optional_text("x25519_public_key")?.into_option(),
        other: fields.map,
    })
}
