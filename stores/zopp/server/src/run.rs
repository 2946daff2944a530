//! From the command line to the deed.

use std::{error::Error, time::Duration};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    admin,
    args::{Arguments, Command, EventsBackend, ServeArguments},
    audit::AuditOptions,
    doctor::{self, Finding},
    policy::{FirstGeneration, Policy},
    serve::{Options, Server},
    store::{Location, PostgresAddress, Store},
};

/// Does what the command line says. The error's text is for the user: what, why, what next.
pub async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let database = arguments.location()?;
    match arguments.command {
        Command::Serve(serve_arguments) => serve(database, *serve_arguments).await,
        Command::Doctor(serve_arguments) => {
            let findings = doctor::examine(&database, &serve_arguments).await;
            doctor::print(&findings, &mut std::io::stdout().lock())?;
            if findings.iter().any(Finding::is_problem) {
                Err("there are problems, listed above".into())
            } else {
                Ok(())
            }
        }
        Command::Init(init) => {
            let store = Store::open(&database).await.map_err(admin::AdminError::Open)?;
            let result = admin::init(&store, &init, &mut std::io::stdout()).await;
            store.close().await;
            Ok(result?)
        }
        Command::Backup { file } => {
            let store = Store::open(&database.existing()).await.map_err(admin::AdminError::Open)?;
            let result = admin::backup(&store, &file, &mut std::io::stdout()).await;
            store.close().await;
            Ok(result?)
        }
        Command::Restore(restore) => match restore.file {
            Some(file) => Ok(admin::restore(&file, &database, &mut std::io::stdout()).await?),
            None => Ok(admin::restored_in_place(database, &mut std::io::stdout()).await?),
        },
        Command::Import { from } => {
            let from = Location::parse(&from)?.existing();
            Ok(admin::import(&from, &database, &mut std::io::stdout()).await?)
        }
        Command::Invite { command } => {
            let store = Store::open(&database).await.map_err(admin::AdminError::Open)?;
            let result = admin::run(&store, &command, &mut std::io::stdout()).await;
            store.close().await;
            Ok(result?)
        }
        Command::Principal { command } => {
            let store = Store::open(&database).await.map_err(admin::AdminError::Open)?;
            let result = admin::principal(&store, &command, &mut std::io::stdout()).await;
            store.close().await;
            Ok(result?)
        }
        Command::Audit { command } => {
            let store = Store::open(&database).await.map_err(admin::AdminError::Open)?;
            let result = admin::audit(&store, &command, &mut std::io::stdout().lock()).await;
            store.close().await;
            Ok(result?)
        }
        Command::User { command } => {
            let store = Store::open(&database).await.map_err(admin::AdminError::Open)?;
            let result = admin::user(&store, &command, &mut std::io::stdout()).await;
            store.close().await;
            Ok(result?)
        }
    }
}

async fn serve(database: Location, arguments: ServeArguments) -> Result<(), Box<dyn Error>> {
    let events = events(arguments.events_backend, arguments.events_database_url.as_deref(), &database)?;
    let tls = arguments.tls();
    let mut options = Options {
        database,
        address: arguments.addr,
        health_address: arguments.health_addr,
        tls,
        recheck: Options::RECHECK,
        policy: Policy {
            open_registration: arguments.open_registration,
            require_key_proof: arguments.require_key_proof,
            invite_max_hours: arguments.invite_max_hours,
            first_generation: arguments.allow_v1.then_some(FirstGeneration { member_role: arguments.v1_member_role }),
        },
        limits: arguments.limits,
        trusted_proxies: arguments.trusted_proxies,
        audit: AuditOptions::default(),
        events,
    };
    options.audit.required = arguments.audit_required;
    options.audit.fold = Duration::from_secs(u64::from(arguments.audit_fold_minutes) * 60);
    options.audit.retention =
        arguments.audit_retention_days.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600));
    // Before the ports are open: a signal that comes right after is not missed.
    let stop = stop_on_signal()?;
    let server = Server::bind(options).await?;
    Ok(server.run(stop).await?)
}

/// The PostgreSQL by which replicas tell each other of changes.
fn events(
    backend: EventsBackend,
    url: Option<&str>,
    database: &Location,
) -> Result<Option<PostgresAddress>, Box<dyn Error>> {
    let address = match url {
        Some(url) => PostgresAddress::parse(url).transpose()?,
        None => match database {
            Location::Postgres(address) => Some(address.clone()),
            Location::Sqlite { .. } => None,
        },
    };
    match backend {
        EventsBackend::Memory => Ok(None),
        EventsBackend::Auto => Ok(address),
        EventsBackend::Postgres if address.is_some() => Ok(address),
        EventsBackend::Postgres => Err(
            "--events-backend postgres needs the address of a PostgreSQL: give --events-database-url postgres://host/database"
                .into(),
        ),
    }
}

/// Cancelled by the first SIGTERM or SIGINT; the second ends the process at once.
fn stop_on_signal() -> Result<CancellationToken, Box<dyn Error>> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = stop.clone();
    tokio::spawn(async move {
        for patience in [true, false] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if patience {
                tracing::info!("stopping; once more to stop at once");
                token.cancel();
            }
        }
        std::process::exit(130);
    });
    Ok(stop)
}
