//! The report of a run so far.

use konverge_apply::conditions::Reason;
use konverge_core::reasons;

use crate::report::{AnyStatus, Verdict};

/// The verdict and the status of a run so far.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) status: Option<Box<dyn AnyStatus>>,
    pub(crate) verdict: Option<Verdict>,
    /// Which children are not ready, in words; `None` if all are.
    pub(crate) unready_children: Option<String>,
    /// Whether the run has applied its children.
    pub(crate) has_applied_children: bool,
}

impl Said {
    /// How the run stands. An object whose children are not ready is not ready, whatever its author says.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        match (&self.verdict, &self.unready_children) {
            (Some(progressing @ Verdict::Progressing { .. }), _) => Some(progressing.clone()),
            (_, Some(message)) => Some(Verdict::Progressing {
                reason: const { Reason::new(reasons::WAITING_FOR_CHILDREN) },
                message: message.clone(),
            }),
            (said, None) => said.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_with_unready_children_is_never_called_ready() {
        let ready = Verdict::Ready { reason: Reason::new("Done"), message: String::new() };
        let waits = Verdict::Progressing { reason: Reason::new("Waits"), message: "for a certificate".to_owned() };
        let children = Verdict::Progressing {
            reason: Reason::new(reasons::WAITING_FOR_CHILDREN),
            message: "Deployment shop/web is in progress".to_owned(),
        };
        let table = [
            (None, false, None),
            (None, true, Some(&children)),
            (Some(&ready), false, Some(&ready)),
            (Some(&ready), true, Some(&children)),
            (Some(&waits), false, Some(&waits)),
            (Some(&waits), true, Some(&waits)),
        ];
        for (verdict, is_waiting, expected) in table {
            let unready_children = is_waiting.then(|| "Deployment shop/web is in progress".to_owned());
            let said = Said { verdict: verdict.cloned(), unready_children, ..Said::default() };
            assert_eq!(said.verdict().as_ref(), expected, "{said:?}");
        }
    }
}
