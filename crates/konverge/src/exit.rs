//! Exit codes: what ended a program, for those who restart it.

use konverge_runtime::manager::RunError;

use crate::start_error::StartError;

pub(crate) const FAILED: u8 = 1;
#[cfg(any(feature = "serve", feature = "admission", test))]
const BIND: u8 = 3;
const LEASE_LOST: u8 = 4;
const TASK: u8 = 5;
const NOT_IN_TIME: u8 = 6;
const ABORTED: u8 = 7;
const NOT_SYNCED: u8 = 8;

/// All of them, for the reference.
#[cfg(any(feature = "generate", test))]
pub(crate) const CODES: &[(&str, &str)] = &[
    ("0", "Told to stop by a signal, and did; or everything was generated"),
    ("1", "Could not start: a bad kubeconfig, lease times that contradict each other, a part that could not be set up"),
    ("2", "The command line was not understood"),
    ("3", "The address for health and metrics, or for webhooks, could not be had"),
    ("4", "The lease was lost, so what was under way was dropped; another replica may lead"),
    ("5", "Something that has to run for ever ended or panicked"),
    ("6", "Stopping took longer than the grace period, so what was left was dropped"),
    ("7", "A second signal asked to stop at once"),
    ("8", "The caches were not complete within --cache-sync-timeout; the message names them"),
];

impl StartError {
    /// The exit code of a program that ends with this error. The generated reference has a table of them.
    pub fn exit_code(&self) -> u8 {
        match self {
            #[cfg(feature = "serve")]
            Self::Bind(_) => BIND,
            #[cfg(feature = "admission")]
            Self::Part { source, .. } if is_taken_address(&**source) => BIND,
            Self::Run(error) => run(error),
            _ => FAILED,
        }
    }
}

#[cfg(feature = "admission")]
fn is_taken_address(source: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    use konverge_admission::server::BindError;
    matches!(source.downcast_ref(), Some(BindError::Address { .. }))
}

fn run(error: &RunError) -> u8 {
    match error {
        RunError::LeaseLost(_) => LEASE_LOST,
        RunError::TaskEnded { .. } | RunError::TaskPanicked { .. } => TASK,
        RunError::NotInTime { .. } => NOT_IN_TIME,
        RunError::Aborted => ABORTED,
        RunError::NotSynced { .. } => NOT_SYNCED,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use super::*;

    #[test]
    fn each_end_has_a_code_of_its_own_that_the_reference_has() {
        let ended = |name: &'static str| RunError::TaskEnded { name: name.into() };
        let table = [
            (StartError::Threads(io::Error::other("none")), 1),
            (StartError::NeedsFinalizer { controller: "test".to_owned() }, 1),
            (RunError::Signals(io::Error::other("none")).into(), 1),
            (ended("watch").into(), 5),
            (RunError::TaskPanicked { name: "watch".into(), message: String::new() }.into(), 5),
            (RunError::NotInTime { grace: Duration::ZERO }.into(), 6),
            (RunError::Aborted.into(), 7),
            (RunError::NotSynced { limit: Duration::ZERO, missing: String::new() }.into(), 8),
        ];
        for (error, code) in table {
            assert_eq!(error.exit_code(), code, "{error}");
            assert!(CODES.iter().any(|(known, _)| *known == code.to_string()), "{code}");
        }
        assert_eq!([BIND, LEASE_LOST], [3, 4]);
    }
}
