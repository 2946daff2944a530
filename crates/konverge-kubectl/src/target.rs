//! The target of a verb, as typed. Pure.

use std::fmt;

use crate::{Detail, Examined, Failure, Kind};

/// A kind, and one object of it or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct One {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// Returns the distinct kinds of all jobs. A kind is read as whole objects if one of the jobs needs that.
pub(crate) fn kinds(jobs: &[Box<dyn Examined>]) -> Vec<Kind> {
    let mut found: Vec<Kind> = Vec::new();
    for kind in jobs.iter().flat_map(|job| job.kinds()) {
        match found.iter_mut().find(|known| known.is(&kind)) {
            Some(known) if matches!(kind.detail, Detail::Whole) => known.detail = Detail::Whole,
            Some(_) => {}
            None => found.push(kind),
        }
    }
    found
}

impl Target {
    /// Reads `TYPE/NAME`, `TYPE NAME`, or `TYPE` alone.
    pub(crate) fn parse(kinds: &[Kind], words: &[String]) -> Result<Self, Failure> {
        let (kind, name) = match words {
            [word] => word.split_once('/').map_or((&**word, None), |(kind, name)| (kind, Some(name))),
            [kind, name] if !kind.contains('/') && !name.contains('/') => (&**kind, Some(&**name)),
            _ => {
                return Err(Failure::Usage(format!(
                    "{:?} does not name an object; write TYPE/NAME, such as deployment/web",
                    words.join(" ")
                )));
            }
        };
        let known = kinds.iter().find(|known| known.is_called(kind)).ok_or_else(|| {
            let all: Vec<String> = kinds.iter().map(Kind::singular).collect();
            Failure::Usage(format!("no job works on {kind:?}; the known types are {}", all.join(", ")))
        })?;
        if let Some(name) = name.filter(|name| !is_name(name)) {
            return Err(Failure::Usage(format!(
                "{name:?} is not a valid name of a {}; write TYPE/NAME, such as {}/web",
                known.singular(),
                known.singular()
            )));
        }
        Ok(Self { kind: known.clone(), name: name.map(str::to_owned) })
    }

    /// Returns the object, or an error if the target is a whole kind.
    pub(crate) fn one(self) -> Result<One, Failure> {
        let kind = self.kind;
        match self.name {
            Some(name) => Ok(One { kind, name }),
            None => Err(Failure::Usage(format!("which {}? write {}/NAME", kind.singular(), kind.singular()))),
        }
    }
}

/// The characters that are valid in an address; the API server checks the rest.
fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&name.len()) && name.bytes().all(letter) && name != "." && name != ".."
}

/// `deployment/web`.
impl fmt::Display for One {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.kind.singular(), self.name)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};

    use super::*;

    fn kind(group: &str, name: &str, plural: &str, short: &'static [&'static str]) -> Kind {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", name), plural);
        Kind { short, ..Kind::namespaced(resource, Detail::Metadata) }
    }

    fn parse(text: &str) -> Result<(String, Option<String>), String> {
        let kinds = [kind("apps", "Deployment", "deployments", &["deploy"]), kind("", "Secret", "secrets", &[])];
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let target = Target::parse(&kinds, &words).map_err(|failure| failure.to_string())?;
        Ok((target.kind.resource.kind, target.name))
    }

    #[test]
    fn what_kubectl_takes_is_taken() {
        for (text, kind, name) in [
            ("deployment/web", "Deployment", Some("web")),
            ("deployments/web", "Deployment", Some("web")),
            ("deploy/web", "Deployment", Some("web")),
            ("Deployment/web.v2", "Deployment", Some("web.v2")),
            ("deployments.apps/web", "Deployment", Some("web")),
            ("deployments.v1.apps/web", "Deployment", Some("web")),
            ("deploy web", "Deployment", Some("web")),
            ("deploy", "Deployment", None),
            ("secret/db", "Secret", Some("db")),
            ("secrets.v1./db", "Secret", Some("db")),
        ] {
            assert_eq!(parse(text), Ok((kind.to_owned(), name.map(str::to_owned))), "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused_with_what_to_write() {
        for (text, says) in [
            ("pod/web", "the known types are deployment, secret"),
            ("deployments.batch/web", "no job works on \"deployments.batch\""),
            ("web", "no job works on \"web\""),
            ("/web", "no job works on \"\""),
            ("deploy/", "is not a valid name of a deployment"),
            ("deploy/a/b", "is not a valid name of a deployment"),
            ("deploy/..", "is not a valid name of a deployment"),
            ("deploy/Web", "is not a valid name of a deployment"),
            ("deploy/web other", "does not name an object"),
            ("deploy/web secret/db", "does not name an object"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
