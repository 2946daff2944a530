//! The reasons of conditions and events that this job has of its own.

konverge::reasons! {
    /// Why an object is as it is.
    pub enum Why {
        /// The spec says something that openZro cannot have; the message names the field
        InvalidSpec,
        /// Something that openZro needs is not given yet, so nothing exists there; the message names it
        Incomplete,
        /// Another object of the same kind stands for the same group, and this one shares it
        Shared,
        /// The object refers to another one that is not there or not ready
        Dependency,
        /// There is no Secret of the name in spec.secretKeyRef
        SecretNotExists,
        /// The Secret has no such key
        SecretKeyNotExists,
        /// The Secret has no setup key, which is a UUID
        InvalidSetupKey,
        /// The object still has dependents, which the message names
        InUse,
        /// An object of that name exists and belongs to somebody else
        NotOurs,
        /// Pods of the routing peers are not available
        WaitingForPods,
    }
}
