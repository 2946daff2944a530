//! Pod templates that somebody else runs pods of: those of Deployments that Argo Rollouts name with `workloadRef`. Such a Rollout has no template that
//! could be changed, and such a Deployment has no pods of its own.

use konverge_workload::WorkloadKind;

use super::{Inner, Known, Work};
use crate::object::WorkloadRef;

impl Inner {
    /// The Deployment whose pod template a workload runs.
    fn template_owner(key: &WorkloadRef, known: &Known) -> Option<WorkloadRef> {
        let owner = known.template_of.as_ref().filter(|other| other.kind == WorkloadKind::Deployment.name())?;
        Some(WorkloadRef { namespace: key.namespace.clone(), kind: WorkloadKind::Deployment, name: owner.name.clone() })
    }

    /// Sets whose pod template a workload runs. The status of its pods is that of the template owner, so that one is looked at.
    pub(super) fn set_template_ref(&mut self, key: &WorkloadRef, work: &mut Work) {
        let owner = self.workloads.get(key).and_then(|known| Self::template_owner(key, known));
        let changes = self.template_refs.set(key, owner.clone().map(|owner| (owner, ())));
        for owner in changes.removed.iter().map(|owner| (**owner).clone()).chain(owner) {
            self.stirred(&owner);
            work.workloads.insert(owner);
        }
    }

    /// Who tells how the pods of a workload's template stand: whoever runs them.
    pub(super) fn runner<'a>(&'a self, key: &WorkloadRef, known: &'a Known) -> &'a Known {
        let runners = Some(self.template_refs.referrers(key)).filter(|_| known.rollout.empty).into_iter().flatten();
        runners.filter_map(|runner| self.workloads.get(runner)).find(|runner| !runner.rollout.empty).unwrap_or(known)
    }
}
