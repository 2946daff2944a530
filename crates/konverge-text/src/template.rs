//! Texts with values of Secrets in them: `${key}` or `${secret/key}` is a value, `$$` a dollar. Nothing else: no logic, no functions. Pure.

use std::{borrow::Borrow, str::FromStr};

use konverge_core::SecretValue;
use zeroize::Zeroizing;

/// A template that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(Placeholder),
}

/// A placeholder of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// The Secret, if it is named.
    pub secret: Option<String>,
    /// The key.
    pub key: String,
}

/// The text is no template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A dollar before something else.
    #[error("a $ stands before {{key}} or {{secret/key}}; for a dollar write $$")]
    Dollar,
    /// No end.
    #[error("a ${{ has no }} behind it")]
    Open,
    /// A name that no key of a Secret has.
    #[error("between ${{ and }} there must be a key of a Secret, or its name, a slash and a key")]
    Key,
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            parts.push(Part::Text(before.to_owned()));
            if let Some(after) = after.strip_prefix('$') {
                parts.push(Part::Text("$".to_owned()));
                rest = after;
                continue;
            }
            let (named, after) =
                after.strip_prefix('{').ok_or(TemplateError::Dollar)?.split_once('}').ok_or(TemplateError::Open)?;
            parts.push(Part::Value(Placeholder::parse(named)?));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        Ok(Self(parts))
    }
}

impl Placeholder {
    fn parse(named: &str) -> Result<Self, TemplateError> {
        let (secret, key) = named.split_once('/').map_or((None, named), |(secret, key)| (Some(secret), key));
        let is_name = |name: &str| {
            let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            !name.is_empty() && name.bytes().all(good)
        };
        if !is_name(key) || !secret.is_none_or(is_name) {
            return Err(TemplateError::Key);
        }
        Ok(Self { secret: secret.map(str::to_owned), key: key.to_owned() })
    }
}

impl Template {
    /// The longest text that a custom resource may have, in characters.
    pub const LONGEST: u32 = 16384;

    /// The syntax as a regular expression, for the API server.
    pub const PATTERN: &str = r"^([^$]|\$\$|\$\{([-._a-zA-Z0-9]+/)?[-._a-zA-Z0-9]+\})*$";

    /// The syntax without the names of Secrets.
    pub const PATTERN_OF_KEYS: &str = r"^([^$]|\$\$|\$\{[-._a-zA-Z0-9]+\})*$";

    /// Returns the placeholders, in their order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|part| match part {
            Part::Value(placeholder) => Some(placeholder),
            Part::Text(_) => None,
        })
    }

    /// Returns the length of the text with its values, whose lengths `find` returns. Copies nothing, because a template may repeat a value thousands
    /// of times.
    pub fn length<E>(&self, mut find: impl FnMut(&Placeholder) -> Result<usize, E>) -> Result<usize, E> {
        self.0.iter().try_fold(0_usize, |length, part| {
            Ok(length.saturating_add(match part {
                Part::Text(text) => text.len(),
                Part::Value(placeholder) => find(placeholder)?,
            }))
        })
    }

    /// The text of this [length](Self::length) with its values, which `find` has; an error of that is all there is then, and no part of the text.
    pub fn fill<V: Borrow<SecretValue>, E>(
        &self,
        length: usize,
        mut find: impl FnMut(&Placeholder) -> Result<V, E>,
    ) -> Result<SecretValue, E> {
        // At its final size from the beginning, so that growing leaves no copy behind; and wiped if it stays a part.
        let mut filled = Zeroizing::new(Vec::with_capacity(length));
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.extend_from_slice(text.as_bytes()),
                Part::Value(placeholder) => filled.extend_from_slice(find(placeholder)?.borrow().expose()),
            }
        }
        Ok(SecretValue::new(std::mem::take(&mut *filled)))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn filled(template: &str) -> String {
        let template: Template = template.parse().unwrap();
        let find = |value: &Placeholder| {
            let text = format!("<{}:{}>", value.secret.as_deref().unwrap_or("-"), value.key);
            Ok::<_, Infallible>(SecretValue::from(text))
        };
        let length = template.length(|value| find(value).map(|text| text.len())).unwrap();
        let filled = String::from_utf8(template.fill(length, find).unwrap().expose().to_vec()).unwrap();
        assert_eq!(filled.len(), length, "{template:?}");
        filled
    }

    #[test]
    fn what_is_written_and_what_comes_of_it() {
        for (template, expected) in [
            ("", ""),
            ("plain {text} }", "plain {text} }"),
            ("${user}", "<-:user>"),
            ("postgres://${user}:${db-1/pass.word}@db", "postgres://<-:user>:<db-1:pass.word>@db"),
            ("$$", "$"),
            ("$${user}", "${user}"),
            ("$$$$${a}$$", "$$<-:a>$"),
            ("${a}${b}", "<-:a><-:b>"),
        ] {
            assert_eq!(filled(template), expected, "{template}");
        }
    }

    #[test]
    fn what_is_no_template() {
        for (text, error) in [
            ("$", TemplateError::Dollar),
            ("$user", TemplateError::Dollar),
            ("$$$", TemplateError::Dollar),
            ("${user", TemplateError::Open),
            ("${}", TemplateError::Key),
            ("${/a}", TemplateError::Key),
            ("${a/}", TemplateError::Key),
            ("${a/b/c}", TemplateError::Key),
            ("${a b}", TemplateError::Key),
            ("${${a}}", TemplateError::Key),
        ] {
            assert_eq!(text.parse::<Template>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_value_that_is_missing_leaves_nothing_behind() {
        let template: Template = "${a}${b}".parse().unwrap();
        let find = |value: &Placeholder| match &*value.key {
            "a" => Ok(SecretValue::from("x".to_owned())),
            key => Err(key.to_owned()),
        };
        assert_eq!(template.fill(2, find).err().as_deref(), Some("b"));
    }

    proptest! {
        /// Values are never read as a template, and a text whose dollars are doubled is itself.
        #[test]
        fn a_text_with_doubled_dollars_is_itself(text in "[$a-c{}/]{0,12}") {
            prop_assert_eq!(filled(&text.replace('$', "$$")), text);
        }
    }
}
