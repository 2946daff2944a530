//! The objects that a controller is about.

use std::sync::Arc;

/// Whether a controller is about an object. It leaves all others alone.
pub(crate) type Only<K> = Arc<dyn Fn(&K) -> bool + Send + Sync>;
