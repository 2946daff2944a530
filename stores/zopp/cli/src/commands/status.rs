//! `zopp whoami` and `zopp status`: who this device is, and whether the server agrees.

use konverge_zopp_client::{CallError, Client, Fingerprint, Identity, Profile};
use konverge_zopp_proto::{Empty, GetPrincipalRequest};
use serde::Serialize;

use super::workspace::WorkspaceObject;
use crate::{
    context::Context,
    escape::visible,
    failure::{Failure, failed},
    output::{Answer, Document, Outcome, Plain, plain},
    scope::EnvironmentArguments,
    wiped::Wiped,
};

/// `whoami`
#[derive(Serialize)]
struct CallerStatus {
    principal: String,
    principal_id: String,
    /// `null` for a service principal.
    email: Option<String>,
    user_id: Option<String>,
    server: String,
    fingerprint: String,
    /// `null` for a service principal: the server tells it none.
    workspaces: Option<Vec<WorkspaceObject>>,
}

/// `status`
#[derive(Serialize)]
struct Status {
    server: String,
    /// `null` if the server says that it serves.
    server_problem: Option<String>,
    tls: bool,
    generation: Option<&'static str>,
    principal: Option<String>,
    principal_id: Option<String>,
    /// `null` if the server accepts the principal.
    principal_problem: Option<String>,
    workspace: Option<String>,
    project: Option<String>,
    environment: Option<String>,
}

/// A status, which is an exit code as well.
struct Reported {
    plain: Plain<Status>,
    is_good: bool,
}

impl Answer for Reported {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        self.plain.text(text)
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        self.plain.object(document)
    }

    fn exit_code(&self) -> u8 {
        u8::from(!self.is_good)
    }
}

pub(super) async fn whoami(context: &Context) -> Outcome {
    let client = context.client()?;
    let identity = client.identity();
    let workspaces = workspaces(&client).await.map_err(failed("cannot ask the server who you are", None))?;
    let who = CallerStatus {
        principal: identity.name().to_owned(),
        principal_id: identity.principal_id().to_owned(),
        email: identity.email().map(str::to_owned),
        user_id: identity.user_id().map(str::to_owned),
        server: client.connection().server().to_owned(),
        fingerprint: fingerprint(identity),
        workspaces,
    };
    let names = who.workspaces.iter().flatten().map(|workspace| visible(&workspace.name)).collect::<Vec<_>>();
    let text = format!(
        "Principal:   {} (ID: {})\nUser:        {}\nServer:      {}\nFingerprint: {}\nWorkspaces:  {}",
        who.principal,
        who.principal_id,
        who.email.as_deref().unwrap_or("service principal"),
        who.server,
        who.fingerprint,
        match &who.workspaces {
            None => "not told to a service".to_owned(),
            Some(none) if none.is_empty() => "none".to_owned(),
            Some(_) => names.join(", "),
        }
    );
    Ok(plain(who, text))
}

pub(super) async fn status(context: &Context, environment: EnvironmentArguments) -> Outcome {
    let server = context.address()?;
    let connection = context.connection()?;
    let server_problem = match connection.is_serving().await {
        Ok(true) => None,
        Ok(false) => Some("it says that it does not serve".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    let identity = context.client();
    let (principal, principal_id) = match &identity {
        Ok(client) => (Some(client.identity().name().to_owned()), Some(client.identity().principal_id().to_owned())),
        Err(_) => (None, None),
    };
    let principal_problem = match &identity {
        Err(failure) => Some(failure.text()),
        Ok(_) if server_problem.is_some() => Some("the server cannot be asked".to_owned()),
        Ok(client) => accepted(client).await.err().map(|error| error.to_string()),
    };
    let [workspace, project, environment] = environment.known()?;
    let generation = context.trust()?.generation().map(|generation| match generation {
        Profile::V1 => "v1",
        Profile::V2 => "v2",
    });
    let tls = server.starts_with("https://");
    let status = Status {
        server,
        server_problem,
        tls,
        generation,
        principal,
        principal_id,
        principal_problem,
        workspace,
        project,
        environment,
    };
    let is_good = status.server_problem.is_none() && status.principal_problem.is_none();
    let text = text(&status);
    Ok(Box::new(Reported { plain: Plain { object: status, text }, is_good }))
}

/// Each call proves that the server accepts the principal.
async fn workspaces(client: &Client) -> Result<Option<Vec<WorkspaceObject>>, CallError> {
    if client.identity().user_id().is_none() {
        return accepted(client).await.map(|()| None);
    }
    let listed = client.list_workspaces(Empty {}).await?;
    Ok(Some(listed.workspaces.into_iter().map(WorkspaceObject::from).collect()))
}

/// By a call that needs no role.
async fn accepted(client: &Client) -> Result<(), CallError> {
    let principal_id = client.identity().principal_id().to_owned();
    client.get_principal(GetPrincipalRequest { principal_id }).await.map(drop)
}

fn fingerprint(identity: &Identity) -> String {
    let signing = identity.signing_seed().public().to_bytes();
    let exchange = identity.exchange_key().map(|key| key.public().to_bytes());
    Fingerprint::of_principal(&signing, exchange.as_ref().map_or(&[], <[u8; 32]>::as_slice)).to_string()
}

fn text(status: &Status) -> String {
    let state =
        |problem: &Option<String>, good: &str| problem.clone().map_or(good.to_owned(), |why| format!("NOT OK: {why}"));
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "not set".to_owned());
    let principal = match (&status.principal, &status.principal_id) {
        (Some(name), Some(id)) => format!("{name} (ID: {id})"),
        _ => "none".to_owned(),
    };
    [
        format!("Server:      {}", status.server),
        format!("             {}", state(&status.server_problem, "serves")),
        format!("TLS:         {}", if status.tls { "yes" } else { "no" }),
        format!("Generation:  {}", status.generation.unwrap_or("not known yet")),
        format!("Principal:   {principal}"),
        format!("             {}", state(&status.principal_problem, "accepted by the server")),
        format!("Workspace:   {}", name(&status.workspace)),
        format!("Project:     {}", name(&status.project)),
        format!("Environment: {}", name(&status.environment)),
    ]
    .join("\n")
}
