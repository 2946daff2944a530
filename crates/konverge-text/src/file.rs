//! Whole files of several values.

use std::{fmt, str};

use konverge_core::SecretValue;
use serde::{Deserialize, Serialize};

use crate::{dotenv, json, pem, properties};

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFormat {
    /// Lines like `KEY=value`, as far as all readers agree on them; see [`dotenv`].
    Dotenv,
    /// One JSON object of texts.
    #[serde(rename = "JSON")]
    Json,
    /// A properties file of Java, in ASCII.
    Properties,
    /// Certificates and keys in PEM, one after the other.
    #[serde(rename = "PEM")]
    Pem,
}

/// A value that a format cannot hold. Names the key only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Dotenv cannot hold it.
    #[error(transparent)]
    Dotenv(#[from] dotenv::FormatError),
    /// The value is not text.
    #[error("the value of {key:?} is not UTF-8 text, which {format} needs")]
    NotText {
        /// The key.
        key: String,
        /// The format.
        format: FileFormat,
    },
    /// The value is not in PEM.
    #[error("the value of {key:?} has no block of PEM (-----BEGIN …-----) and is no JSON list of such blocks")]
    NotPem {
        /// The key.
        key: String,
    },
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dotenv => "Dotenv",
            Self::Json => "JSON",
            Self::Properties => "Properties",
            Self::Pem => "PEM",
        })
    }
}

impl FileFormat {
    /// Writes the values in the given order.
    ///
    /// # Errors
    /// [`FileError`] for the first value that the format cannot hold.
    pub fn write<'a>(self, values: &[(&'a str, &'a SecretValue)]) -> Result<SecretValue, FileError> {
        let text = |(key, value): &(&'a str, &'a SecretValue)| match str::from_utf8(value.expose()) {
            Ok(text) => Ok((*key, text)),
            Err(_) => Err(FileError::NotText { key: (*key).to_owned(), format: self }),
        };
        let texts: Vec<_> = values.iter().map(text).collect::<Result<_, _>>()?;
        match self {
            Self::Dotenv => {
                let mut text = dotenv::format(texts.into_iter().map(|(key, text)| (key, text.as_bytes())))?;
                Ok(SecretValue::from(std::mem::take(&mut *text)))
            }
            Self::Json => Ok(json::object(&texts)),
            Self::Properties => Ok(properties::format(&texts)),
            Self::Pem => pem::join(&texts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----";

    fn written(format: FileFormat, values: &[(&str, &str)]) -> Result<String, String> {
        let values: Vec<_> = values.iter().map(|(key, value)| (*key, SecretValue::from((*value).to_owned()))).collect();
        let values: Vec<_> = values.iter().map(|(key, value)| (*key, value)).collect();
        let written = format.write(&values).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(written.expose().to_vec()).unwrap())
    }

    #[test]
    fn each_format_has_the_values_in_their_order() {
        for (format, values, expected) in [
            (FileFormat::Dotenv, &[("B", "it's"), ("A", "1")][..], "B=\"it's\"\nA=1"),
            (FileFormat::Json, &[("b", "a \"b\"\n"), ("a", "é")], r#"{"b":"a \"b\"\n","a":"é"}"#),
            (FileFormat::Json, &[], "{}"),
            (FileFormat::Properties, &[("b c", " x"), ("a", "1=2")], "b\\ c=\\ x\na=1=2\n"),
            (FileFormat::Properties, &[("é", "\u{1f600}\n\\")], "\\u00e9=\\ud83d\\ude00\\n\\\\\n"),
            (FileFormat::Properties, &[("#a", "")], "\\#a=\n"),
        ] {
            assert_eq!(written(format, values).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn pem_has_one_block_after_the_other() {
        let list = serde_json::to_string(&[BLOCK, BLOCK]).unwrap();
        for values in [
            &[("a", BLOCK), ("b", BLOCK), ("c", BLOCK)][..],
            &[("a", &format!("{BLOCK}\n\n{BLOCK}\n")), ("b", BLOCK)],
            &[("a", BLOCK), ("b", &list)],
        ] {
            assert_eq!(written(FileFormat::Pem, values), Ok(format!("{BLOCK}\n").repeat(3)), "{values:?}");
        }
    }

    #[test]
    fn a_value_that_a_format_cannot_hold_is_named_by_its_key() {
        for (format, value, cause) in [
            (FileFormat::Dotenv, "a\rb", "the value of \"K\" cannot be written"),
            (FileFormat::Pem, "hunter2", "the value of \"K\" has no block of PEM"),
            (FileFormat::Pem, "[\"hunter2\"]", "the value of \"K\" has no block of PEM"),
        ] {
            let error = written(format, &[("K", value)]).unwrap_err();
            assert!(error.contains(cause) && !error.contains("hunter2"), "{error}");
        }
        let bytes = SecretValue::new(vec![0xff]);
        for format in [FileFormat::Dotenv, FileFormat::Json, FileFormat::Properties, FileFormat::Pem] {
            let error = format.write(&[("K", &bytes)]).err().unwrap().to_string();
            assert_eq!(error, format!("the value of \"K\" is not UTF-8 text, which {format} needs"));
        }
    }
}
