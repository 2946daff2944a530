//! The keys of a Secret that are made of the sources' keys: texts, files and credentials of registries. Pure.

use std::{
    borrow::{Borrow, Cow},
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    str,
};

use konverge_core::{SecretValue, allow};
use konverge_text::{
    FileError, FileFormat, Placeholder, Template,
    docker_config::{self, Registry},
};

/// The keys that a Secret gets in place of those of its sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretTemplate {
    /// From the key of the Secret to its making.
    pub outputs: BTreeMap<String, Output>,
    /// Whether the Secret has the sources' keys, too. Of two keys with one name, that of the template counts.
    pub keeps_source_keys: bool,
}

/// The making of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A text with values in it.
    Text(Template),
    /// A file of the keys that these patterns choose, in their order. No pattern chooses all keys.
    File {
        /// The format of the file.
        format: FileFormat,
        /// The patterns.
        keys: Vec<String>,
    },
    /// Credentials of registries.
    Registries(Vec<RegistryTemplate>),
}

/// The credentials of one registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryTemplate {
    /// The host.
    pub server: Template,
    /// The name of the account.
    pub username: Template,
    /// The password or token.
    pub password: Template,
}

/// The keys of all sources, under their names in the Secret.
#[derive(Default)]
pub struct SourceKeys<'a> {
    /// The keys with a value.
    pub values: BTreeMap<Cow<'a, str>, &'a SecretValue>,
    /// The keys that a source has given before and cannot give now.
    pub withheld: BTreeSet<String>,
}

/// A value that a Secret is to hold.
pub enum Held<'a> {
    /// The value of a source or of the Secret.
    Found(&'a SecretValue),
    /// A value that the template made.
    Made(SecretValue),
}

impl Held<'_> {
    /// Returns the value.
    pub fn value(&self) -> &SecretValue {
        match self {
            Self::Found(value) => value,
            Self::Made(value) => value,
        }
    }
}

impl Borrow<SecretValue> for Held<'_> {
    fn borrow(&self) -> &SecretValue {
        self.value()
    }
}

/// The reason why a key cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unmade {
    /// A key that it needs is withheld.
    #[error("the source of {0:?} gives nothing now")]
    Withheld(String),
    /// A key that it needs does not exist.
    #[error("no source has the key {0:?}")]
    Lacking(String),
    /// The format cannot hold a value.
    #[error(transparent)]
    File(#[from] FileError),
    /// A part of the credentials of a registry is not text.
    #[error("the {0} of a registry is not UTF-8 text")]
    NotText(&'static str),
    /// It does not fit into the Secret.
    #[error("it is larger than the rest of a Secret")]
    TooLarge,
}

/// The keys that a template made.
pub struct Rendered<'a> {
    /// The keys with their values.
    pub data: BTreeMap<Cow<'a, str>, Held<'a>>,
    /// The keys that cannot be made, and why. They have the value that the Secret holds, if it holds one.
    pub unmade: Vec<(String, Unmade)>,
    /// Whether a key can neither be made nor is in the Secret.
    pub is_incomplete: bool,
}

impl SecretTemplate {
    /// Makes all keys, of at most `limit` bytes together. `held` returns the value that the Secret holds under a key.
    pub fn render<'a>(
        &self,
        sources: SourceKeys<'a>,
        limit: usize,
        held: impl Fn(&str) -> Option<&'a SecretValue>,
    ) -> Rendered<'a> {
        let mut rendered = Rendered { data: BTreeMap::new(), unmade: Vec::new(), is_incomplete: false };
        let mut room = limit;
        for (key, output) in &self.outputs {
            let value = match output.make(&sources, room) {
                Ok(value) => Held::Made(value),
                Err(cause) => {
                    rendered.unmade.push((key.clone(), cause));
                    let Some(value) = held(key) else {
                        rendered.is_incomplete = true;
                        continue;
                    };
                    Held::Found(value)
                }
            };
            room = room.saturating_sub(value.value().len());
            rendered.data.insert(Cow::Owned(key.clone()), value);
        }
        if self.keeps_source_keys {
            let withheld = sources.withheld.into_iter();
            let withheld = withheld.filter_map(|name| held(&name).map(|value| (Cow::Owned(name), value)));
            for (name, value) in sources.values.into_iter().chain(withheld) {
                if let Entry::Vacant(free) = rendered.data.entry(name) {
                    free.insert(Held::Found(value));
                }
            }
        }
        rendered
    }
}

impl Output {
    fn make(&self, sources: &SourceKeys<'_>, limit: usize) -> Result<SecretValue, Unmade> {
        match self {
            Self::Text(template) => sources.fill(template, limit),
            Self::File { format, keys } => {
                let chosen = sources.choose(keys)?;
                if chosen.iter().map(|(_, value)| value.len()).sum::<usize>() > limit {
                    return Err(Unmade::TooLarge);
                }
                Ok(format.write(&chosen)?)
            }
            Self::Registries(registries) => {
                let fill = |registry: &RegistryTemplate| {
                    let fill = |template| sources.fill(template, limit);
                    Ok::<_, Unmade>([fill(&registry.server)?, fill(&registry.username)?, fill(&registry.password)?])
                };
                let filled: Vec<_> = registries.iter().map(fill).collect::<Result<_, _>>()?;
                let registries = filled.iter().map(|[server, username, password]| {
                    Ok::<_, Unmade>(Registry {
                        server: text("server", server)?,
                        username: text("username", username)?,
                        password: text("password", password)?,
                    })
                });
                Ok(docker_config::format(&registries.collect::<Result<Vec<_>, _>>()?))
            }
        }
    }
}

fn text<'a>(what: &'static str, value: &'a SecretValue) -> Result<&'a str, Unmade> {
    str::from_utf8(value.expose()).map_err(|_| Unmade::NotText(what))
}

impl SourceKeys<'_> {
    fn get(&self, name: &str) -> Result<&SecretValue, Unmade> {
        match self.values.get(name) {
            Some(value) => Ok(value),
            None if self.withheld.contains(name) => Err(Unmade::Withheld(name.to_owned())),
            None => Err(Unmade::Lacking(name.to_owned())),
        }
    }

    fn fill(&self, template: &Template, limit: usize) -> Result<SecretValue, Unmade> {
        let get = |placeholder: &Placeholder| self.get(&placeholder.key);
        // A template may repeat a value thousands of times.
        let length = template.length(|placeholder| get(placeholder).map(SecretValue::len))?;
        if length > limit {
            return Err(Unmade::TooLarge);
        }
        template.fill(length, get)
    }

    /// Returns the keys that the patterns choose, each once.
    fn choose(&self, patterns: &[String]) -> Result<Vec<(&str, &SecretValue)>, Unmade> {
        let all = ["*".to_owned()];
        let (mut chosen, mut names): (Vec<(&str, &SecretValue)>, _) = (Vec::new(), BTreeSet::new());
        for pattern in if patterns.is_empty() { &all } else { patterns } {
            if !pattern.contains('*') {
                self.get(pattern)?;
            }
            let is_chosen = |name: &str| allow::matches(pattern, name);
            if let Some(name) = self.withheld.iter().find(|name| is_chosen(name)) {
                return Err(Unmade::Withheld(name.clone()));
            }
            for (name, value) in self.values.iter().filter(|(name, _)| is_chosen(name)) {
                if names.insert(&**name) {
                    chosen.push((name, value));
                }
            }
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests;
