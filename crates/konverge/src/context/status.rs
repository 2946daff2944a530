//! The report of a run on its object: conditions, fields of the status, how it ended.

use k8s_openapi::jiff::Timestamp;
use konverge_apply::{
    ApplyError, ConditionStatus, StatusWriter, Writable,
    conditions::{Moment, Reason},
};
use konverge_core::reasons;
use konverge_runtime::object::Object;
use kube::{ResourceExt, core::object::HasStatus};

use super::Context;
use crate::{
    error::Error,
    report::{AnyStatus, Verdict},
};

/// The report of the run so far.
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

impl<K: Object> Context<K> {
    /// Changes the author's own part of the status: `change` gets a copy of the current status. It is written once, when the run is over,
    /// and only if it differs.
    ///
    /// The operator becomes the owner of the fields and conditions that the run changes. Fields and conditions of other controllers are
    /// in the copy to be read, and stay as they are.
    pub fn status(&self, change: impl FnOnce(&mut K::Status))
    where
        K: HasStatus,
        K::Status: 'static,
    {
        self.change_status(|status| {
            if let Some(status) = status.as_any().downcast_mut::<K::Status>() {
                change(status);
            }
        });
    }

    /// Sets a condition of the author's own, such as `BackedUp`. It stays until a run sets it otherwise or
    /// [removes](Self::remove_condition) it. `Ready`, `Reconciling` and `Stalled` follow from how the run ends.
    pub fn condition(
        &self,
        condition_type: &str,
        status: impl Into<ConditionStatus>,
        reason: impl Into<Reason>,
        message: impl AsRef<str>,
    ) {
        let (moment, reason) = (self.moment(), reason.into());
        self.change_status(|all| {
            all.conditions().set(condition_type, status.into(), &reason, message.as_ref(), moment);
        });
    }

    /// Removes a condition that the operator has set. A condition of another controller stays.
    pub fn remove_condition(&self, condition_type: &str) {
        self.change_status(|all| all.conditions().remove(condition_type));
    }

    /// Reports that the run succeeded, with a reason; the default reason is `Reconciled`. While children are not ready the
    /// object is reported as in progress all the same, unless they are [tolerated](crate::Children::tolerate_unready).
    pub fn ready(&self, reason: impl Into<Reason>, message: impl Into<String>) {
        self.said().verdict = Some(Verdict::Ready { reason: reason.into(), message: message.into() });
    }

    /// Reports that the run succeeded, but the object is not ready yet: something else has to happen, and will wake it.
    pub fn progressing(&self, reason: impl Into<Reason>, message: impl Into<String>) {
        self.said().verdict = Some(Verdict::Progressing { reason: reason.into(), message: message.into() });
    }

    /// Writes the status at once, as far as the run has determined it: for runs that take long. Sends nothing if it is unchanged. The end
    /// of the run writes the rest.
    pub async fn write_status(&self) -> Result<(), Error>
    where
        K: Writable,
    {
        let verdict = self.said().verdict();
        self.report_status(verdict.as_ref()).await?;
        Ok(())
    }

    /// Writes the status, with how the run stands if that is known. Returns whether that was news; `None` for a kind whose status
    /// is not the operator's.
    pub(crate) async fn report_status(&self, verdict: Option<&Verdict>) -> Result<Option<bool>, ApplyError>
    where
        K: Writable,
    {
        let moment = self.moment();
        let said = self.change_status(|status| {
            if let Some(verdict) = verdict {
                status.say(verdict, moment);
            }
            status.json()
        });
        let Some(status) = said else { return Ok(None) };
        let object = self.written();
        let status = status.map_err(|source| ApplyError::Encode {
            kind: K::kind(self.kind()).into_owned(),
            name: object.name_any(),
            source,
        })?;
        let applier = self.applier().clone();
        let is_dry_run = applier.is_dry_run();
        let written = StatusWriter::new(applier).update_with(&*object, &status, self.kind()).await?;
        let is_news = written.is_some();
        if is_news && is_dry_run {
            tracing::info!(object = object.name_any(), %status, "dry run: would write the status");
        }
        if let Some(written) = written {
            self.set_written(written);
        }
        Ok(Some(is_news))
    }

    /// Changes the copy of the status; `None` for a kind whose status is not the operator's.
    fn change_status<T>(&self, change: impl FnOnce(&mut dyn AnyStatus) -> T) -> Option<T> {
        let report = self.shared().report.as_ref()?;
        let mut said = self.said();
        let status = said.status.get_or_insert_with(|| (report.begin)(self.object()));
        Some(change(&mut **status))
    }

    fn moment(&self) -> Moment {
        Moment { generation: self.object().meta().generation, now: Timestamp::now() }
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
