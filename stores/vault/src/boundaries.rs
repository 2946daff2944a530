//! Which namespaces' objects may name which secrets. Pure.
//!
//! Without boundaries, a user who may write an object could choose any path that the operator's role reaches. Rules are compared with the
//! [`Location`] that a path leads to, spelled as in Vault's policies. Another spelling of the same secret does not bypass them.
//!
//! The grammar is not that of `konverge_core::allow`, because a rule must read like the path in a policy: `*` is a whole segment, and the values of
//! an object fill no more than one.

use std::{fmt, str::FromStr};

use crate::Location;

/// The owner of the object, as far as rules need to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The operator's cluster, if it has one.
    pub cluster: Option<&'a str>,
}

/// One permission: `<namespace>=<path>`, such as `team-a=secret/data/team-a/*` or `*=secret/data/{namespace}/*`.
///
/// The path is that of the data in Vault's API, with `data/` behind a mount of KV version 2 and with the prefix of the cluster if there
/// is one. `{namespace}`, `{name}` and `{cluster}` stand for what the object has, and never for more than one segment or for
/// nothing. `*` is one segment, and at the end one or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// `None` is every namespace.
    namespace: Option<String>,
    segments: Vec<Segment>,
    /// Whether the path goes on behind the segments.
    beneath: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Any,
    Text(String),
    /// A value between two texts.
    Value(String, Value, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Namespace,
    Name,
    Cluster,
}

/// The text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no rule of the form <namespace>=<path>, such as *=secret/data/{{namespace}}/*: {why}")]
pub struct RuleError {
    text: String,
    why: RuleFault,
}

/// The reason why a rule is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// There is no `=`.
    #[error("it has no =")]
    NoPath,
    /// No namespace can have that name.
    #[error("before = there must be the name of a namespace, or * for all")]
    Namespace,
    /// Two slashes in a row, one at an end, `.` or `..`.
    #[error("the path has an empty segment, `.` or `..`, which no path in Vault has")]
    Segment,
    /// `*` beside other letters.
    #[error("* stands for whole segments; write it alone between slashes")]
    Star,
    /// Braces around something unknown, or around nothing.
    #[error("in braces there can be namespace, name and cluster")]
    Braces,
    /// Two values without a slash between.
    #[error(
        "two values in one segment cannot be told apart, and another namespace could have the same; put a slash between"
    )]
    TwoValues,
}

/// Whether any rule lets an object at `place` name what is there; without rules everything is allowed, as it was with the originals.
pub fn is_allowed(rules: &[Rule], place: &Place<'_>, location: &Location) -> bool {
    rules.is_empty() || rules.iter().any(|rule| rule.permits(place, location))
}

impl Rule {
    /// Returns the beginning of all paths that the rule allows in this cluster: the segments that no object changes. It is empty if there is none.
    /// Returns `None` if the rule allows no path, because it names the cluster and that has no name.
    pub fn beginning(&self, cluster: Option<&str>) -> Option<String> {
        let is_of_cluster = |segment: &Segment| matches!(segment, Segment::Value(_, Value::Cluster, _));
        if cluster.is_none() && self.segments.iter().any(is_of_cluster) {
            return None;
        }
        let fixed = |segment: &Segment| match segment {
            Segment::Text(text) => Some(text.clone()),
            Segment::Value(before, Value::Cluster, after) => Some(format!("{before}{}{after}", cluster?)),
            Segment::Any | Segment::Value(..) => None,
        };
        let last = if self.beneath { self.segments.len() } else { self.segments.len().saturating_sub(1) };
        Some(self.segments[..last].iter().map_while(fixed).collect::<Vec<_>>().join("/"))
    }

    fn permits(&self, place: &Place<'_>, location: &Location) -> bool {
        if self.namespace.as_ref().is_some_and(|namespace| namespace != place.namespace) {
            return false;
        }
        let path = location.to_string();
        let mut rest = path.split('/');
        let fits = self.segments.iter().all(|segment| rest.next().is_some_and(|text| segment.fits(text, place)));
        fits && rest.next().is_some() == self.beneath
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, RuleFault> {
        if matches!(text.trim(), "" | "." | "..") {
            return Err(RuleFault::Segment);
        }
        if text == "*" {
            return Ok(Self::Any);
        }
        if text.contains('*') {
            return Err(RuleFault::Star);
        }
        let Some((before, rest)) = text.split_once('{') else {
            return if text.contains('}') { Err(RuleFault::Braces) } else { Ok(Self::Text(text.to_owned())) };
        };
        let (value, after) = rest.split_once('}').ok_or(RuleFault::Braces)?;
        let value = match value {
            "namespace" => Value::Namespace,
            "name" => Value::Name,
            "cluster" => Value::Cluster,
            _ => return Err(RuleFault::Braces),
        };
        if before.contains('}') {
            return Err(RuleFault::Braces);
        }
        if after.contains(['{', '}']) {
            return Err(if after.contains('{') { RuleFault::TwoValues } else { RuleFault::Braces });
        }
        Ok(Self::Value(before.to_owned(), value, after.to_owned()))
    }

    /// Values are compared letter by letter and never read as a pattern.
    fn fits(&self, text: &str, place: &Place<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::Text(expected) => expected == text,
            Self::Value(before, value, after) => {
                let value = value.of(place);
                let between = text.strip_prefix(before.as_str()).and_then(|text| text.strip_suffix(after.as_str()));
                !value.is_empty() && between == Some(value)
            }
        }
    }
}

impl Value {
    fn of<'a>(self, place: &Place<'a>) -> &'a str {
        match self {
            Self::Namespace => place.namespace,
            Self::Name => place.name,
            Self::Cluster => place.cluster.unwrap_or_default(),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Name => "name",
            Self::Cluster => "cluster",
        }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse(text).map_err(|why| RuleError { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<Rule, RuleFault> {
    let (namespace, path) = text.split_once('=').ok_or(RuleFault::NoPath)?;
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if namespace != "*" && (namespace.is_empty() || !namespace.bytes().all(letter)) {
        return Err(RuleFault::Namespace);
    }
    let mut segments = path.split('/').map(Segment::parse).collect::<Result<Vec<_>, _>>()?;
    let beneath = segments.last() == Some(&Segment::Any);
    if beneath {
        segments.pop();
    }
    Ok(Rule { namespace: (namespace != "*").then(|| namespace.to_owned()), segments, beneath })
}

/// As it was written.
impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}=", self.namespace.as_deref().unwrap_or("*"))?;
        let end = self.beneath.then_some(&Segment::Any);
        for (index, segment) in self.segments.iter().chain(end).enumerate() {
            let slash = if index == 0 { "" } else { "/" };
            write!(formatter, "{slash}{segment}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("*"),
            Self::Text(text) => formatter.write_str(text),
            Self::Value(before, value, after) => write!(formatter, "{before}{{{}}}{after}", value.word()),
        }
    }
}

impl RuleError {
    /// The reason.
    pub fn fault(&self) -> RuleFault {
        self.why
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{KvVersion, Mount, SecretPath};

    const PLACE: Place<'static> = Place { namespace: "team-a", name: "web", cluster: Some("one") };

    fn location(mount: &str, version: KvVersion, path: &str) -> Location {
        Mount::new(mount, version).location(&SecretPath::parse(path).unwrap()).unwrap()
    }

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_beginning_of_what_a_rule_allows() {
        for (rule, cluster, expected) in [
            ("*=secret/data/{namespace}/*", None, Some("secret/data")),
            ("team-a=secret/data/team-a/*", None, Some("secret/data/team-a")),
            ("team-a=secret/data/x", None, Some("secret/data")),
            ("*=clusters/{cluster}/secret/data/*", Some("one"), Some("clusters/one/secret/data")),
            ("*=clusters/{cluster}/secret/data/*", None, None),
            ("*=secret/data/{namespace}/{cluster}", None, None),
            ("team-a=*", None, Some("")),
        ] {
            assert_eq!(rules(&[rule])[0].beginning(cluster).as_deref(), expected, "{rule}");
        }
    }

    #[test]
    fn paths_and_templates() {
        for (rule, path, expected) in [
            ("team-a=secret/data/x", "secret/data/x", true),
            ("team-a=secret/data/x", "secret/data/x/y", false),
            ("team-a=secret/data/x", "secret/data/xy", false),
            ("team-b=secret/data/x", "secret/data/x", false),
            ("*=secret/data/x", "secret/data/x", true),
            ("*=secret/data/{namespace}/*", "secret/data/team-a/x", true),
            ("*=secret/data/{namespace}/*", "secret/data/team-a/x/y", true),
            ("*=secret/data/{namespace}/*", "secret/data/team-a", false),
            ("*=secret/data/{namespace}/*", "secret/data/team-b/x", false),
            ("*=secret/data/{namespace}/*", "secret/data/team-ab/x", false),
            ("*=secret/data/{namespace}/*", "secret/data/TEAM-A/x", false),
            ("*=secret/data/{namespace}/{name}", "secret/data/team-a/web", true),
            ("*=secret/data/{namespace}/{name}", "secret/data/team-a/db", false),
            ("*=secret/data/{cluster}-apps/*", "secret/data/one-apps/x", true),
            ("*=secret/data/x-{namespace}-y/z", "secret/data/x-team-a-y/z", true),
            ("*=secret/data/x-{namespace}-y/z", "secret/data/x-team-a-y-y/z", false),
            ("*=secret/data/*/{name}", "secret/data/anything/web", true),
            ("*=secret/data/*/{name}", "secret/data/any/thing/web", false),
            ("*=secret/data/*/*/x", "secret/data/a/b/x", true),
            ("*=secret/data/*/*/x", "secret/data/a/x", false),
            ("team-a=*", "secret/data/x", true),
            ("team-a=*/*", "secret/data/x", true),
            ("team-a=secret/x", "secret/data/x", false),
        ] {
            let allowed = is_allowed(&rules(&[rule]), &PLACE, &location("secret", KvVersion::Two, path));
            assert_eq!(allowed, expected, "{rule} on {path}");
        }
    }

    #[test]
    fn rules_are_a_union_and_none_allow_all() {
        let there = location("secret", KvVersion::Two, "secret/data/shared/x");
        for (texts, expected) in [
            (&[][..], true),
            (&["*=secret/data/{namespace}/*"], false),
            (&["*=secret/data/{namespace}/*", "team-a=secret/data/shared/*"], true),
            (&["team-b=secret/data/shared/*"], false),
        ] {
            assert_eq!(is_allowed(&rules(texts), &PLACE, &there), expected, "{texts:?}");
        }
    }

    #[test]
    fn another_spelling_of_the_same_secret_is_no_way_around() {
        let team = rules(&["*=secret/data/{namespace}/*"]);
        for (path, expected) in [
            ("secret/team-a/x", true),
            ("secret/data/team-a/x", true),
            ("secret/team-b/x", false),
            ("secret/data/team-b/x", false),
            ("secret/data/data/team-a/x", false),
        ] {
            assert_eq!(is_allowed(&team, &PLACE, &location("secret", KvVersion::Two, path)), expected, "{path}");
        }
        // On an engine of version 1, `data` is a folder like any other.
        let old = rules(&["*=old/{namespace}/*"]);
        assert!(is_allowed(&old, &PLACE, &location("old", KvVersion::One, "old/team-a/x")));
        assert!(!is_allowed(&old, &PLACE, &location("old", KvVersion::One, "old/data/team-a/x")));
    }

    #[test]
    fn a_value_is_no_pattern() {
        let rule = rules(&["*=secret/data/{cluster}/*"]);
        for (cluster, path, expected) in [
            ("*", "secret/data/x/y", false),
            ("*", "secret/data/*/y", true),
            ("{namespace}", "secret/data/team-a/y", false),
            ("a/b", "secret/data/a/b/c", false),
            ("", "secret/data/x/y", false),
        ] {
            let place = Place { cluster: Some(cluster), ..PLACE };
            let allowed = is_allowed(&rule, &place, &location("secret", KvVersion::Two, path));
            assert_eq!(allowed, expected, "{cluster:?} on {path}");
        }
        let nothing = Place { cluster: None, ..PLACE };
        let prefixed = rules(&["*=secret/data/x{cluster}/*"]);
        assert!(!is_allowed(&prefixed, &nothing, &location("secret", KvVersion::Two, "secret/data/x/y")));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        use RuleFault::{Braces, Namespace, NoPath, Star, TwoValues};
        for (text, fault) in [
            ("", NoPath),
            ("secret/data/x", NoPath),
            ("=secret/data/x", Namespace),
            ("team-*=secret/data/x", Namespace),
            ("Team=secret/data/x", Namespace),
            ("a=", RuleFault::Segment),
            ("a=/secret/x", RuleFault::Segment),
            ("a=secret/x/", RuleFault::Segment),
            ("a=secret/../x", RuleFault::Segment),
            ("a=secret/ /x", RuleFault::Segment),
            ("a=secret/x*", Star),
            ("a=secret/**", Star),
            ("a=secret/*{name}", Star),
            ("a=secret/{team}/x", Braces),
            ("a=secret/{}/x", Braces),
            ("a=secret/{name", Braces),
            ("a=secret/name}", Braces),
            ("a=secret/}{name}", Braces),
            ("a=secret/{name}}", Braces),
            ("a=secret/{namespace}-{name}", TwoValues),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert_eq!(error.fault(), fault, "{text}");
            assert!(error.to_string().contains("*=secret/data/{namespace}/*"), "{error}");
        }
    }

    const SEGMENT: &str = "[ab*{}.-]{1,3}|data|\\{namespace\\}";

    proptest! {
        /// No object names anything but what is beneath the folder of its own namespace, whatever its path, name and cluster are.
        #[test]
        fn nothing_outside_of_a_namespaces_folder_is_allowed(
            namespace in "[ab*{}/.-]{0,3}",
            name in "[ab*/]{0,3}",
            cluster in "[ab*/]{0,3}",
            segments in proptest::collection::vec(SEGMENT, 1..5),
        ) {
            let rule = rules(&["*=secret/data/{namespace}/*"]);
            let Ok(path) = SecretPath::parse(&format!("secret/{}", segments.join("/"))) else { return Ok(()) };
            let Ok(there) = Mount::new("secret", KvVersion::Two).location(&path) else { return Ok(()) };
            let place = Place { namespace: &namespace, name: &name, cluster: Some(&cluster) };
            let folder = format!("secret/data/{namespace}/");
            let inside = !namespace.is_empty() && !namespace.contains('/') && there.to_string().starts_with(&folder);
            prop_assert_eq!(is_allowed(&rule, &place, &there), inside, "{}", there);
        }

        #[test]
        fn a_rule_reads_as_it_was_written(text in "(\\*|[ab-]{1,3})=([ab]{1,2}|\\*|x\\{name\\}|\\{cluster\\}y)(/([ab]{1,2}|\\*|\\{namespace\\})){0,3}") {
            let rule: Rule = text.parse().unwrap();
            prop_assert_eq!(rule.to_string(), text);
        }
    }
}
