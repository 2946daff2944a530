//! The decision of a webhook about a request.

use std::collections::BTreeMap;

use kube::core::response::{Status, StatusCause, StatusDetails, StatusSummary};

/// The API server cuts longer warnings itself, and drops one with a control character altogether.
const WARNING_CHARACTERS: usize = 256;

/// Whether a request may go on, and what its sender is told.
///
/// ```
/// use konverge_admission::Verdict;
///
/// let verdict = Verdict::deny("a shop needs a size")
///     .code(422)
///     .reason("Invalid")
///     .cause("spec.size", "must be at least 1")
///     .warning("spec.colour is going away")
///     .audit("rule", "size");
/// assert!(!verdict.is_allowed());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a verdict counts only when it is returned"]
pub struct Verdict {
    denial: Option<Denial>,
    warnings: Vec<String>,
    audit_annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Denial {
    message: String,
    code: u16,
    reason: String,
    causes: Vec<(String, String)>,
}

impl Verdict {
    /// The request may go on.
    pub fn allow() -> Self {
        Self::default()
    }

    /// The request is refused with 403 `Forbidden`, unless [`code`](Self::code) and [`reason`](Self::reason) say otherwise. The
    /// sender reads the message.
    pub fn deny(message: impl Into<String>) -> Self {
        let denial = Denial { message: message.into(), code: 403, reason: "Forbidden".to_owned(), causes: Vec::new() };
        Self { denial: Some(denial), ..Self::default() }
    }

    /// Refuses with 422 `Invalid` if there is any fault, each a field and what is wrong with it; else allows.
    ///
    /// ```
    /// use konverge_admission::Verdict;
    ///
    /// assert!(Verdict::unless([] as [(&str, &str); 0]).is_allowed());
    /// let verdict = Verdict::unless([("spec.size", "must be at least 1"), ("spec.name", "is too long")]);
    /// assert_eq!(verdict.message(), Some("spec.size: must be at least 1, spec.name: is too long"));
    /// ```
    pub fn unless<F: Into<String>, M: Into<String>>(faults: impl IntoIterator<Item = (F, M)>) -> Self {
        let causes: Vec<_> = faults.into_iter().map(|(field, message)| (field.into(), message.into())).collect();
        if causes.is_empty() {
            return Self::allow();
        }
        let message =
            causes.iter().map(|(field, message)| format!("{field}: {message}")).collect::<Vec<_>>().join(", ");
        Self { denial: Some(Denial { message, code: 422, reason: "Invalid".to_owned(), causes }), ..Self::default() }
    }

    /// The HTTP status of a refusal. Anything but 400 to 599 would not be one, and becomes 403. Means nothing when allowed.
    pub fn code(mut self, code: u16) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.code = if (400..600).contains(&code) { code } else { 403 };
        }
        self
    }

    /// The one-word reason of a refusal, such as `Invalid`. Means nothing when allowed.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.reason = reason.into();
        }
        self
    }

    /// Adds a field, such as `spec.size`, and what is wrong with it, to a refusal. Means nothing when allowed.
    pub fn cause(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.causes.push((field.into(), message.into()));
        }
        self
    }

    /// Adds a warning that the sender sees whether refused or not. Control characters become spaces, and what is beyond 256
    /// characters is cut: the API server would drop it.
    pub fn warning(mut self, warning: impl AsRef<str>) -> Self {
        self.warnings.push(warning_text(warning.as_ref()));
        self
    }

    /// Adds a line to the audit log of the cluster, under `<name of the webhook>/<key>`. Not for secrets.
    pub fn audit(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit_annotations.insert(key.into(), value.into());
        self
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// Returns the message for the sender of a refused request.
    pub fn message(&self) -> Option<&str> {
        self.denial.as_ref().map(|denial| denial.message.as_str())
    }

    /// The warnings, as they are sent.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The annotations for the audit log.
    pub fn audit_annotations(&self) -> &BTreeMap<String, String> {
        &self.audit_annotations
    }

    /// The refusal as the API server passes it on.
    pub fn status(&self) -> Option<Status> {
        let denial = self.denial.as_ref()?;
        let causes = denial.causes.iter().map(|(field, message)| StatusCause {
            reason: "FieldValueInvalid".to_owned(),
            message: message.clone(),
            field: field.clone(),
        });
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.collect(),
            retry_after_seconds: 0,
        };
        Some(Status {
            status: Some(StatusSummary::Failure),
            code: denial.code,
            message: denial.message.clone(),
            metadata: None,
            reason: denial.reason.clone(),
            details: (!denial.causes.is_empty()).then_some(details),
        })
    }
}

fn warning_text(text: &str) -> String {
    let printable = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    if text.chars().count() <= WARNING_CHARACTERS {
        printable.collect()
    } else {
        printable.take(WARNING_CHARACTERS - 1).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_status_that_the_api_server_understands() {
        let table = [
            (Verdict::allow(), None),
            (Verdict::allow().code(500).reason("Odd").cause("spec", "odd").warning("w"), None),
            (Verdict::deny("no"), Some((403, "Forbidden", 0))),
            (Verdict::deny("no").code(409).reason("Conflict"), Some((409, "Conflict", 0))),
            (Verdict::deny("no").code(200), Some((403, "Forbidden", 0))),
            (Verdict::deny("no").code(700), Some((403, "Forbidden", 0))),
            (Verdict::unless([("spec.a", "b"), ("spec.c", "d")]), Some((422, "Invalid", 2))),
        ];
        for (verdict, expected) in table {
            let status = verdict.status();
            let seen = status.as_ref().map(|status| {
                let causes = status.details.as_ref().map_or(0, |details| details.causes.len());
                (status.code, status.reason.as_str(), causes)
            });
            assert_eq!(seen, expected, "{verdict:?}");
            assert_eq!(verdict.is_allowed(), expected.is_none());
        }
    }

    #[test]
    fn a_refusal_may_have_warnings() {
        let verdict = Verdict::deny("no").warning("first").warning("second");
        assert_eq!((verdict.is_allowed(), verdict.warnings()), (false, &["first".to_owned(), "second".to_owned()][..]));
    }

    #[test]
    fn a_warning_fits_into_its_header() {
        assert_eq!(warning_text("two\nlines\u{7f}"), "two lines ");
        assert_eq!(warning_text(&"ä".repeat(256)), "ä".repeat(256));
        let cut = warning_text(&"ä".repeat(257));
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (256, true));
    }
}
