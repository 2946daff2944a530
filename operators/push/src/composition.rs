//! The content that a `VaultPush` makes of Secrets: selected keys, renamed keys and templates. Pure.

use std::collections::{BTreeMap, BTreeSet};

use konverge_text::Template;
use kube::core::Selector;

use crate::{
    content::{Lack, Making, Sources, Target},
    spec::BinaryPolicy,
};

/// The placeholder in a path for the name of each Secret.
pub const SECRET: &str = "{secret}";

/// Describes how the content of paths is made of Secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composition {
    /// Which Secrets.
    pub secrets: Secrets,
    /// Whether each of them has a path of its own.
    pub apart: bool,
    /// Which keys; all if there are none and no templates either.
    pub keys: Vec<KeyChoice>,
    /// The prefix of keys that are not renamed.
    pub prefix: String,
    /// Keys that are made of texts.
    pub templates: BTreeMap<String, Template>,
}

/// Which Secrets of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secrets {
    /// These.
    Named(BTreeSet<String>),
    /// The Secrets whose labels fit. A list shows which ones these are.
    Selected(Selector),
}

/// A key that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChoice {
    /// The Secret of the key. `None` means each Secret.
    pub secret: Option<String>,
    /// The key there.
    pub from: String,
    /// The key in Vault, if it is another one.
    pub to: Option<String>,
}

impl Composition {
    /// The names of the Secrets, as far as they are known.
    pub fn names(&self) -> BTreeSet<&str> {
        match &self.secrets {
            Secrets::Named(names) => names.iter().map(String::as_str).collect(),
            Secrets::Selected(_) => BTreeSet::new(),
        }
    }

    /// The selector of Secrets, if there is one.
    pub fn selector(&self) -> Option<&Selector> {
        match &self.secrets {
            Secrets::Named(_) => None,
            Secrets::Selected(selector) => Some(selector),
        }
    }

    /// The same for these Secrets.
    #[must_use]
    pub fn of(&self, names: BTreeSet<String>) -> Self {
        Self { secrets: Secrets::Named(names), ..self.clone() }
    }

    /// The names of the paths: those of the Secrets, or "" for one that all of them share.
    pub fn targets(&self) -> BTreeSet<&str> {
        if self.apart { self.names() } else { BTreeSet::from([""]) }
    }

    /// The desired content of one target.
    pub fn compose(&self, beneath: &str, sources: &Sources, binary: BinaryPolicy) -> Target {
        let names = if self.apart { BTreeSet::from([beneath]) } else { self.names() };
        self.make(&names, sources, binary).unwrap_or_else(Target::Keep)
    }

    /// One path out of these Secrets.
    fn make(&self, names: &BTreeSet<&str>, sources: &Sources, binary: BinaryPolicy) -> Result<Target, Lack> {
        let data = |name: &str| match sources.get(name) {
            Some(Some(data)) => Ok(data),
            _ => Err(Lack::Secret { name: name.to_owned(), optional: false }),
        };
        let value = |name: &str, key: &str| {
            let data = data(name)?;
            data.get(key).ok_or_else(|| Lack::Key {
                secret: name.to_owned(),
                key: key.to_owned(),
                available: data.keys().cloned().collect(),
            })
        };
        let mut making = Making::new(binary);
        for &name in names {
            if self.keys.is_empty() && self.templates.is_empty() {
                for (key, value) in data(name)? {
                    making.put(&format!("{}{key}", self.prefix), value)?;
                }
            }
            for KeyChoice { secret, from, to } in &self.keys {
                if secret.as_deref().is_none_or(|secret| secret == name) {
                    let key = to.clone().unwrap_or_else(|| format!("{}{from}", self.prefix));
                    making.put(&key, value(name, from)?)?;
                }
            }
        }
        // Where several share a path, each placeholder names its Secret.
        let own = names.first().copied().unwrap_or_default();
        for (key, template) in &self.templates {
            making.fill(key, template, |placeholder| {
                value(placeholder.secret.as_deref().unwrap_or(own), &placeholder.key)
            })?;
        }
        Ok(making.done())
    }
}

#[cfg(test)]
mod tests {
    use konverge_core::SecretValue;

    use super::*;

    fn sources(secrets: &[(&str, &[(&str, &str)])]) -> Sources {
        let fields = |fields: &[(&str, &str)]| {
            fields.iter().map(|(key, value)| ((*key).to_owned(), SecretValue::from((*value).to_owned()))).collect()
        };
        secrets.iter().map(|(name, data)| ((*name).to_owned(), Some(fields(data)))).collect()
    }

    fn named(names: &[&str], apart: bool) -> Composition {
        Composition {
            secrets: Secrets::Named(names.iter().map(|&name| name.to_owned()).collect()),
            apart,
            keys: vec![],
            prefix: String::new(),
            templates: BTreeMap::new(),
        }
    }

    fn key(secret: Option<&str>, from: &str, to: Option<&str>) -> KeyChoice {
        KeyChoice { secret: secret.map(str::to_owned), from: from.to_owned(), to: to.map(str::to_owned) }
    }

    fn template(key: &str, text: &str) -> BTreeMap<String, Template> {
        BTreeMap::from([(key.to_owned(), text.parse().unwrap())])
    }

    fn shown(composition: &Composition, sources: &Sources) -> BTreeMap<String, Result<Vec<String>, Lack>> {
        let text = |target| match target {
            Target::Keep(lack) => Err(lack),
            Target::Content(made) => {
                let field = |(key, field): (&str, &konverge_vault::Field)| {
                    format!("{key}={}", String::from_utf8_lossy(field.bytes()))
                };
                Ok(made.content.iter().map(field).collect())
            }
        };
        let target = |path: &str| text(composition.compose(path, sources, BinaryPolicy::Base64));
        composition.targets().into_iter().map(|path| (path.to_owned(), target(path))).collect()
    }

    #[test]
    fn keys_are_taken_renamed_and_written_into_templates() {
        let sources = sources(&[("db", &[("user", "u"), ("password", "p")]), ("api", &[("token", "t")])]);
        let both = |change: &dyn Fn(&mut Composition)| {
            let mut composition = named(&["db", "api"], false);
            change(&mut composition);
            shown(&composition, &sources).remove("").unwrap().unwrap()
        };
        let renamed = both(&|all| {
            all.keys = vec![key(Some("db"), "password", Some("PASS")), key(Some("api"), "token", None)];
            all.prefix = "x_".to_owned();
        });
        assert_eq!(renamed, ["PASS=p", "x_token=t"], "what is renamed has no prefix");
        let written = both(&|all| all.templates = template("url", "${db/user}:${db/password}@${api/token}"));
        assert_eq!(written, ["url=u:p@t"], "templates alone take no other key along");
        let apart = shown(&Composition { prefix: "p_".to_owned(), ..named(&["db", "api"], true) }, &sources);
        assert_eq!(apart["db"].as_ref().unwrap(), &["p_password=p", "p_user=u"]);
        assert_eq!(apart["api"].as_ref().unwrap(), &["p_token=t"]);
        let own = Composition { templates: template("t", "${user}!"), ..named(&["db"], true) };
        assert_eq!(shown(&own, &sources)["db"].as_ref().unwrap(), &["t=u!"]);
    }

    #[test]
    fn what_is_missing_keeps_its_path_and_no_other() {
        let sources = sources(&[("db", &[("user", "u")]), ("api", &[("token", "t")])]);
        let lack = |name: &str, key: &str, has: &str| {
            Err(Lack::Key { secret: name.to_owned(), key: key.to_owned(), available: vec![has.to_owned()] })
        };
        let chosen = Composition { keys: vec![key(None, "user", None)], ..named(&["db", "api"], true) };
        assert_eq!(shown(&chosen, &sources)["api"], lack("api", "user", "token"));
        assert_eq!(shown(&chosen, &sources)["db"].as_ref().unwrap(), &["user=u"]);
        let half = Composition { templates: template("t", "${user}${nothing}"), ..named(&["db"], false) };
        assert_eq!(shown(&half, &sources)[""], lack("db", "nothing", "user"), "never half a template");
        let gone = named(&["gone"], true);
        assert_eq!(shown(&gone, &sources)["gone"], Err(Lack::Secret { name: "gone".to_owned(), optional: false }));
    }
}
