//! The pause before an object is looked at again.

use std::time::Duration;

/// How soon an object is looked at again that waits for another one. A change of that one mostly wakes it before.
pub(super) const LOOK_AGAIN: Duration = Duration::from_mins(1);
