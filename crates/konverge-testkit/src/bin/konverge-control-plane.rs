//! The control plane from the command line: build it, have one to play with, or clean one up.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use clap::{Parser, Subcommand};
use konverge_testkit::{Assets, Binary, ControlPlane, Options, take_away_run};

/// A Kubernetes control plane for tests.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build its programs into the cache, if they are not there
    Setup,
    /// Run one until Ctrl-C and print its kubeconfig's path
    Up {
        /// A Service, and the address on this machine at which the API server reaches it, as for webhooks; may be repeated
        #[arg(long = "service", value_name = "NAMESPACE/NAME=ADDRESS")]
        services: Vec<Route>,
    },
    /// Take away what a test run made in a cluster that you named
    TakeAway {
        /// The cluster's kubeconfig
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// The run, as the label konverge.dev/test-run names it
        run: String,
    },
}

/// The address at which the API server reaches a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    namespace: String,
    name: String,
    address: SocketAddr,
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(service, address)| Some((service.split_once('/')?, address)));
        let Some(((namespace, name), address)) = parts else {
            return Err("write NAMESPACE/NAME=ADDRESS, such as default/hello=127.0.0.1:9443".to_owned());
        };
        let address = address.parse().map_err(|error| format!("{address:?}: {error}; write it as 127.0.0.1:9443"))?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), address })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Setup => setup(),
        Command::Up { services } => up(&services).await,
        Command::TakeAway { kubeconfig, run } => clean(&kubeconfig, &run).await,
    };
    outcome.map_or_else(
        |error| {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn setup() -> Result<(), Box<dyn std::error::Error>> {
    let assets = Assets::find(&Binary::ALL)?;
    println!("the control plane is in {}", assets.folder().display());
    Ok(())
}

async fn up(services: &[Route]) -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::ours().with(|options| {
        options.controller_manager = true;
        options.kubectl = true;
    });
    let control_plane = ControlPlane::start(options).await?;
    println!("export KUBECONFIG={}", control_plane.kubeconfig().display());
    if let Some(kubectl) = control_plane.kubectl() {
        println!("# kubectl of the same version: {}", kubectl.display());
    }
    println!("# Ctrl-C ends it");
    tokio::select! {
        ended = tokio::signal::ctrl_c() => Ok(ended?),
        never = keep_routes(&control_plane, services) => match never {},
    }
}

/// Routes each Service as soon as it exists, and again when it is made anew under another address.
async fn keep_routes(control_plane: &ControlPlane, services: &[Route]) -> Infallible {
    loop {
        for Route { namespace, name, address } in services {
            // A Service that does not exist yet is an error, and tried again.
            let _ = control_plane.route_service(namespace, name, *address).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn clean(kubeconfig: &Path, run: &str) -> Result<(), Box<dyn std::error::Error>> {
    let gone = take_away_run(kubeconfig, run).await?;
    println!("{} objects of run {run} are taken away", gone.len());
    for object in gone {
        println!("  {object}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_names_a_service_and_an_address() {
        let expected =
            Route { namespace: "default".to_owned(), name: "hello".to_owned(), address: ([127, 0, 0, 1], 9443).into() };
        assert_eq!("default/hello=127.0.0.1:9443".parse(), Ok(expected));
        for bad in ["hello=127.0.0.1:9443", "default/hello", "default/hello=localhost"] {
            assert!(bad.parse::<Route>().unwrap_err().contains("127.0.0.1:9443"), "{bad}");
        }
    }
}
