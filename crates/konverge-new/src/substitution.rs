//! Puts the names of a new operator where the template has its own.

use kube::core::{ApiResource, GroupVersionKind};

/// The names of an operator, each with the word that stands for it in the template.
#[derive(Debug, Clone)]
pub struct Names {
    pairs: Vec<(&'static str, String)>,
}

impl Names {
    /// The names that follow from these. `checkout` is where Konverge is.
    pub fn new(name: &str, kind: &str, group: &str, checkout: &str) -> Self {
        let plural = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", kind)).plural;
        let pairs = vec![
            ("konverge-template", name.to_owned()),
            ("konverge_template", name.replace('-', "_")),
            ("CHECKOUT", checkout.to_owned()),
            ("greetings", plural),
            ("greeting", kind.to_ascii_lowercase()),
            ("Greeting", kind.to_owned()),
            ("example.io", group.to_owned()),
        ];
        Self { pairs }
    }

    /// Replaces the words of the template in one pass, so that a name which looks like one of those words stays as it is.
    pub fn put_into(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            if let Some((word, name)) = self.pairs.iter().find(|(word, _)| rest.starts_with(word)) {
                replaced.push_str(name);
                rest = &rest[word.len()..];
            } else {
                replaced.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
        replaced
    }
}

/// The words of a source: runs of letters, digits and `_`.
pub fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_gives_way_once() {
        let names = Names::new("greeting-bot", "Proxy", "greetings.example.io", "/konverge");
        for (text, expected) in [
            ("konverge-template", "greeting-bot"),
            ("use konverge_template::{Greeting, GreetingSpec};", "use greeting_bot::{Proxy, ProxySpec};"),
            ("kubectl get greetings", "kubectl get proxies"),
            ("apiVersion: example.io/v1alpha1", "apiVersion: greetings.example.io/v1alpha1"),
            ("cd CHECKOUT — é", "cd /konverge — é"),
            ("konverge-testkit", "konverge-testkit"),
        ] {
            assert_eq!(names.put_into(text), expected);
        }
    }

    #[test]
    fn words_of_a_source() {
        assert_eq!(identifiers("a::b_c(<D1>, \"e\")").collect::<Vec<_>>(), ["a", "b_c", "D1", "e"]);
    }
}
