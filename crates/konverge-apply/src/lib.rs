//! Writing to the cluster: server-side apply, field ownership, events.
