//! The targets of this machine.

use konverge_openzro_testing::{Account, Double};
use konverge_testkit_stores::{OpenZroAccount, OpenZroServer};

/// The double, or the real server.
pub(crate) enum Target {
    Double(Double),
    Server(&'static OpenZroServer),
}

impl Target {
    /// The double, and the real server if this machine has one. A server that cannot be started fails the test.
    pub(crate) async fn all() -> Vec<Self> {
        let mut targets = vec![Self::double().await];
        match OpenZroServer::shared().await.unwrap() {
            Some(server) => targets.push(Self::Server(server)),
            None => eprintln!("this machine has no openZro server: only the verified double is asked"),
        }
        targets
    }

    pub(crate) async fn double() -> Self {
        Self::Double(Double::start().await.unwrap())
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Double(_) => "double",
            Self::Server(_) => "server",
        }
    }

    pub(crate) fn url(&self) -> &str {
        match self {
            Self::Double(double) => double.url(),
            Self::Server(_) => OpenZroServer::URL,
        }
    }

    pub(crate) fn account(&self) -> Account {
        match self {
            Self::Double(double) => double.account(),
            Self::Server(server) => {
                let OpenZroAccount { id, tokens } = server.account();
                Account { id, tokens }
            }
        }
    }
}
