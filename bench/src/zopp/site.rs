//! A server with one user, who owns workspace `acme` with project `backend`; and that user's clients.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use konverge_e2e::{Server, User};
use konverge_testkit::RunDirectory;
use konverge_testkit_stores::{PublishedZopp, PublishedZoppServer};
use konverge_zopp_client::{Client, ClientConfig, Connection, EnvironmentName, Identity, Profile};
use konverge_zopp_proto::{ListSecretsRequest, UpsertSecretRequest};
use konverge_zopp_testing::postgres_database;
use tonic::transport::Channel;

/// Limits that a load from one principal on one machine would reach; they are in force, and far away.
const FLAGS: [&str; 12] = [
    "--max-changes",
    "1000000",
    "--max-reads",
    "100000000",
    "--max-answer-bytes",
    "1000000000",
    "--max-requests",
    "2000",
    "--max-connections-per-address",
    "800",
    "--max-watches",
    "5000",
];

/// The size of a value.
const VALUE_BYTES: usize = 100;

/// Connections that fill an environment.
const FILLERS: usize = 8;

/// Where a server keeps its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

impl fmt::Display for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        })
    }
}

enum Program {
    Ours(Server),
    Theirs(PublishedZoppServer),
}

/// A server and its user.
pub(crate) struct Site {
    program: Program,
    /// The user of our command line, whichever server it is.
    pub(crate) user: User,
    /// The address of the database, for another server on the same one.
    pub(crate) database: Option<String>,
    profile: Profile,
    run: RunDirectory,
}

impl Site {
    pub(crate) async fn ours(database: Database) -> Result<Self> {
        Self::ours_with(database, &FLAGS).await
    }

    /// A server that keeps to the limits that it has by itself.
    pub(crate) async fn with_default_limits(database: Database) -> Result<Self> {
        Self::ours_with(database, &[]).await
    }

    async fn ours_with(database: Database, flags: &[&str]) -> Result<Self> {
        let address = match database {
            Database::Sqlite => None,
            Database::Postgres => Some(postgres_database().await),
        };
        let run = RunDirectory::new()?;
        let file = || format!("sqlite://{}?mode=rwc", run.path().join("zopp.db").display());
        let server = Server::start_on(&run, address.clone().unwrap_or_else(file), flags).await?;
        let invite = server.invite().await?;
        Self::new(Program::Ours(server), run, &invite, address, Profile::V2).await
    }

    /// One more server on the database of this one, for the same user.
    pub(crate) async fn replica(&self) -> Result<Self> {
        let database = self.database.clone().context("a replica shares a PostgreSQL")?;
        let run = RunDirectory::new()?;
        let server = Server::start_on(&run, database.clone(), &FLAGS).await?;
        Ok(Self {
            program: Program::Ours(server),
            user: self.user.clone(),
            database: Some(database),
            profile: self.profile,
            run,
        })
    }

    pub(crate) async fn theirs(published: &PublishedZopp, database: Database) -> Result<Self> {
        let (server, address) = match database {
            Database::Sqlite => (published.start_server().await?, None),
            Database::Postgres => {
                let address = postgres_database().await;
                (published.start_server_on(&address).await?, Some(address))
            }
        };
        let invite = server.invite()?;
        Self::new(Program::Theirs(server), RunDirectory::new()?, &invite, address, Profile::V1).await
    }

    async fn new(
        program: Program,
        run: RunDirectory,
        invite: &str,
        database: Option<String>,
        profile: Profile,
    ) -> Result<Self> {
        let url = url(&program);
        let user = User::new(run.path().join("home"), url)?;
        let generation = if profile == Profile::V1 { "v1" } else { "v2" };
        user.zopp(["--generation", generation, "join", invite, "owner@example.com"]).await?;
        user.zopp(["workspace", "create", "acme"]).await?;
        user.zopp(["project", "create", "backend", "-w", "acme"]).await?;
        Ok(Self { program, user, database, profile, run })
    }

    /// Bytes of memory that the server has.
    pub(crate) fn resident(&self) -> Result<f64> {
        Ok(match &self.program {
            Program::Ours(server) => server.resident()?,
            Program::Theirs(server) => server.process().resident()?,
        })
    }

    /// The most memory that the server ever had, in bytes.
    pub(crate) fn peak_resident(&self) -> Result<f64> {
        Ok(match &self.program {
            Program::Ours(server) => server.peak_resident()?,
            Program::Theirs(server) => server.process().peak_resident()?,
        })
    }

    /// Host and port of the server.
    pub(crate) fn address(&self) -> Result<String> {
        let url = url(&self.program);
        Ok(url.strip_prefix("http://").context("a server without TLS")?.to_owned())
    }

    /// A bare connection.
    pub(crate) async fn channel(&self) -> Result<Channel> {
        Channel::from_shared(url(&self.program))?.connect().await.context("cannot connect")
    }

    /// A client on a connection of its own.
    pub(crate) fn client(&self) -> Result<Client> {
        self.client_at(&url(&self.program))
    }

    /// The same by another way to the server.
    pub(crate) fn client_at(&self, url: &str) -> Result<Client> {
        let config = ClientConfig { profile: Some(self.profile), ..ClientConfig::new(url.to_owned()) };
        let identity = Identity::from_file(&self.user.home().join(".zopp/config.json"), None)?;
        Ok(Client::new(Connection::new(&config)?, identity))
    }

    /// Makes an environment with this number of values, by the calls that both generations have.
    pub(crate) async fn environment(&self, name: &str, values: usize) -> Result<EnvironmentName> {
        self.user.create_environment(&format!("acme/backend/{name}")).await?;
        let name = EnvironmentName::new("acme", "backend", name);
        let fillers = (0..FILLERS).map(|filler| {
            let name = &name;
            async move {
                let client = self.client()?;
                for number in (filler..values).step_by(FILLERS) {
                    client.upsert_secret(value(name, &key(number))).await.context("cannot fill an environment")?;
                }
                Ok::<_, anyhow::Error>(())
            }
        });
        futures::future::try_join_all(fillers).await?;
        Ok(name)
    }

    /// A file of this user's.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.run.path().join(name)
    }
}

fn url(program: &Program) -> String {
    match program {
        Program::Ours(server) => server.url(),
        Program::Theirs(server) => server.url(),
    }
}

pub(crate) fn key(number: usize) -> String {
    format!("KEY_{number}")
}

/// Sets a value. The server does not look into it, so nothing is encrypted. No two requests have the same nonce: the server refuses a request that it
/// has seen before.
pub(crate) fn value(name: &EnvironmentName, key: &str) -> UpsertSecretRequest {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut nonce = vec![1; 24];
    nonce[..8].copy_from_slice(&NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    UpsertSecretRequest {
        workspace_name: name.workspace.clone(),
        project_name: name.project.clone(),
        environment_name: name.environment.clone(),
        key: key.to_owned(),
        nonce,
        ciphertext: vec![2; VALUE_BYTES],
    }
}

/// Lists all values.
pub(crate) fn list(name: EnvironmentName) -> ListSecretsRequest {
    let EnvironmentName { workspace, project, environment } = name;
    ListSecretsRequest { workspace_name: workspace, project_name: project, environment_name: environment }
}
