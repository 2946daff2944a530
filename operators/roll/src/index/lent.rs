//! Pod templates that somebody else runs pods of: those of Deployments that Argo Rollouts name with `workloadRef`. Such a Rollout has no template that
//! could be changed, and such a Deployment has no pods of its own.

use konverge_workload::WorkloadKind;

use super::{Inner, Known, Work, remove};
use crate::object::WorkloadRef;

impl Inner {
    /// Whose template a workload runs pods of, if that is a Deployment's.
    fn lender(key: &WorkloadRef, known: &Known) -> Option<WorkloadRef> {
        let lender = known.template_of.as_ref().filter(|other| other.kind == WorkloadKind::Deployment.name())?;
        Some(WorkloadRef {
            namespace: key.namespace.clone(),
            kind: WorkloadKind::Deployment,
            name: lender.name.clone(),
        })
    }

    /// A workload runs pods of somebody's template, and stands in some way by now, or does so no more.
    pub(super) fn lend(&mut self, key: &WorkloadRef, before: Option<WorkloadRef>, work: &mut Work) {
        let now = self.workloads.get(key).and_then(|known| Self::lender(key, known));
        if let Some(before) = before.filter(|before| now.as_ref() != Some(before)) {
            remove(&mut self.lent, &before, key);
            self.stirred(&before);
            work.workloads.insert(before);
        }
        if let Some(lender) = now {
            self.lent.entry(lender.clone()).or_default().insert(key.clone());
            self.stirred(&lender);
            work.workloads.insert(lender);
        }
    }

    /// Whose template a workload ran pods of until now.
    pub(super) fn lender_of(&self, key: &WorkloadRef) -> Option<WorkloadRef> {
        Self::lender(key, self.workloads.get(key)?)
    }

    /// Who tells how the pods of a workload's template stand: whoever runs them.
    pub(super) fn runner<'a>(&'a self, key: &WorkloadRef, known: &'a Known) -> &'a Known {
        let runners = self.lent.get(key).filter(|_| known.rollout.empty).into_iter().flatten();
        runners.filter_map(|runner| self.workloads.get(runner)).find(|runner| !runner.rollout.empty).unwrap_or(known)
    }
}
