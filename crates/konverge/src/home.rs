//! Where a program is in the cluster.

/// The identity of a program in the cluster.
#[derive(Debug, Clone, Copy)]
pub struct Home<'a> {
    /// Its name, which is that of its service account, its Service and its configurations.
    pub program: &'a str,
    /// The namespace that it runs in.
    pub namespace: &'a str,
    /// The URL that its webhooks are called at, if that is not its Service.
    #[cfg(feature = "admission")]
    pub(crate) webhook_url: Option<&'a str>,
}
