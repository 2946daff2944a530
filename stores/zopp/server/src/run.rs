//! From the command line to the deed.

use std::error::Error;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    admin,
    args::{Arguments, Command, EventsBackend, ServeArguments},
    serve::{Options, Server, TlsFiles},
    store::{Location, Store},
};

/// Does what the command line says. The error's text is for the user: what, why, what next.
pub async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let database = arguments.location()?;
    match arguments.command {
        Command::Serve(serve_arguments) => serve(database, serve_arguments).await,
        Command::Invite { command } => {
            let store = Store::open(&database).await.map_err(admin::InviteError::Open)?;
            let result = admin::run(&store, &command, &mut std::io::stdout()).await;
            store.close().await;
            Ok(result?)
        }
    }
}

async fn serve(database: Location, arguments: ServeArguments) -> Result<(), Box<dyn Error>> {
    if arguments.events_backend == EventsBackend::Postgres {
        return Err("--events-backend postgres is not in this build; leave it at auto or memory".into());
    }
    let tls =
        TlsFiles { certificate: arguments.tls_cert, key: arguments.tls_key, client_authority: arguments.tls_client_ca };
    let options = Options {
        database,
        address: arguments.addr,
        health_address: arguments.health_addr,
        tls,
        recheck: Options::RECHECK,
    };
    // Before the ports are open: a signal that comes right after is not missed.
    let stop = stop_on_signal()?;
    let server = Server::bind(options).await?;
    Ok(server.run(stop).await?)
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
