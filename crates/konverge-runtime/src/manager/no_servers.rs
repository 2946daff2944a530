//! The replacement for the HTTP servers in a build without them.

use futures::future::BoxFuture;

use crate::{checks::Checks, metrics::Metrics};

/// No servers.
#[derive(Default)]
pub(super) struct Servers {}

impl Servers {
    /// Answers nobody.
    #[expect(clippy::unused_self, reason = "the signature is that of the servers")]
    pub(super) fn serve(self, _checks: Checks, _metrics: Metrics) -> Vec<BoxFuture<'static, ()>> {
        Vec::new()
    }
}
