//! Figures of several turns, by framework, in milliseconds or bytes.

use super::field::Framework;

/// The samples of each.
#[derive(Debug, Default)]
pub(crate) struct Turns([Vec<f64>; 3]);

impl Turns {
    pub(crate) fn of(&mut self, framework: Framework) -> &mut Vec<f64> {
        let [konverge, kube_runtime, koprs] = &mut self.0;
        match framework {
            Framework::Konverge => konverge,
            Framework::KubeRuntime => kube_runtime,
            Framework::Koprs => koprs,
        }
    }
}
