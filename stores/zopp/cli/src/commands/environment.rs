//! `zopp environment`.

use clap::Subcommand;
use konverge_zopp_client::{Client, EnvironmentName, EnvironmentWriter, keys::refuse_ambiguous};
use konverge_zopp_crypto::Dek;
use konverge_zopp_proto::{
    CreateEnvironmentRequest, DeleteEnvironmentRequest, Environment, GetEnvironmentRequest, ListEnvironmentsRequest,
};
use serde::Serialize;

mod protect;

use crate::{
    context::Context,
    failure::{Failure, failed},
    output::{Outcome, listing, plain, time},
    protected,
    scope::{Place, ProjectArguments},
};

/// `zopp environment`
#[derive(Debug, Subcommand)]
pub enum EnvironmentCommand {
    /// List the environments of a project
    List(ProjectArguments),
    /// Create an environment
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// The environment
        #[command(flatten)]
        environment: Named,
        /// Keep no manifest, because people with stock clients write here too; zopp environment protect makes one later
        #[arg(long)]
        unprotected: bool,
    },
    /// Show an environment
    Get(Named),
    /// Delete an environment with its secrets
    Delete(Named),
    /// Protect an environment from a server that keeps keys back or gives old values; or accept what others changed
    #[command(after_help = protect::EXAMPLES)]
    Protect(protect::ProtectArguments),
    /// Let run and export use a protected environment in this directory without -e
    #[command(after_help = ALLOW_EXAMPLES)]
    Allow {
        /// The environment
        #[command(flatten)]
        environment: Named,
        /// Take it back
        #[arg(long)]
        off: bool,
    },
    /// Replace the key of an environment, and encrypt all its values anew
    #[command(after_help = ROTATE_EXAMPLES)]
    RotateKey(Named),
}

const ALLOW_EXAMPLES: &str = "\
Example:
  zopp environment allow production

zopp.toml names protected environments, and so does ZOPP_PROTECTED_ENVIRONMENTS on this device:
  [environments]
  protected = [\"production\"]
\"zopp run\" and \"zopp secret export\" want such an environment named on the command line, or allowed
in the directory of zopp.toml. What is allowed is in ~/.zopp/allowed.json.";

const ROTATE_EXAMPLES: &str = "\
Example:
  zopp environment rotate-key production -w acme -p backend

The former key opens nothing that is set from now on. Those who hold the workspace's key get the
new one. What somebody read before, they know: change the values that matter. Stock clients that
run for long, such as the original's operator, need a restart.";

const CREATE_EXAMPLES: &str = "\
Examples:
  zopp environment create production -w acme -p backend
  zopp environment create shared -w acme -p backend --unprotected

The environment is protected: a manifest shows which keys it holds, at which values. Our clients
keep it with each change. Stock clients do not, and what they change is refused until somebody
accepts it: zopp environment protect --help.";

/// An environment by name.
#[derive(Debug, clap::Args)]
pub struct Named {
    /// Name of the environment
    name: String,
    #[command(flatten)]
    project: ProjectArguments,
}

impl Named {
    fn resolve(self) -> Result<EnvironmentName, Failure> {
        let (workspace, project) = self.project.resolve()?;
        Ok(EnvironmentName { workspace, project, environment: self.name })
    }
}

/// An environment. The wrapped key is useless without the workspace's.
#[derive(Serialize)]
struct EnvironmentObject {
    id: String,
    project_id: String,
    name: String,
    /// Hexadecimal.
    dek_wrapped: String,
    /// Hexadecimal.
    dek_nonce: String,
    created_at: String,
    updated_at: String,
}

impl From<Environment> for EnvironmentObject {
    fn from(environment: Environment) -> Self {
        Self {
            id: environment.id,
            project_id: environment.project_id,
            name: environment.name,
            dek_wrapped: hex::encode(environment.dek_wrapped),
            dek_nonce: hex::encode(environment.dek_nonce),
            created_at: time(environment.created_at),
            updated_at: time(environment.updated_at),
        }
    }
}

/// `environment list`
#[derive(Serialize)]
struct Environments {
    environments: Vec<EnvironmentObject>,
}

/// `environment delete`
#[derive(Serialize)]
struct Deleted {
    workspace: String,
    project: String,
    name: String,
}

/// `environment rotate-key`
#[derive(Serialize)]
struct Rotated {
    environment: String,
    values: usize,
}

/// `environment allow`
#[derive(Serialize)]
struct AllowedHere {
    environment: String,
    directory: String,
    allowed: bool,
}

pub(super) async fn execute(context: &Context, command: EnvironmentCommand) -> Outcome {
    // Made in the arms, because a client needs the keys of this device, and "allow" does not.
    let client = || context.client();
    match command {
        EnvironmentCommand::Allow { environment, off } => allow(&environment.resolve()?, !off),
        EnvironmentCommand::List(project) => {
            let client = client()?;
            let (workspace, project) = project.resolve()?;
            list(&client, workspace, project).await
        }
        EnvironmentCommand::Create { environment, unprotected } => {
            create(&client()?, environment.resolve()?, unprotected).await
        }
        EnvironmentCommand::Get(named) => get(&client()?, named.resolve()?).await,
        EnvironmentCommand::Delete(named) => delete(&client()?, named.resolve()?).await,
        EnvironmentCommand::RotateKey(named) => rotate_key(&client()?, named.resolve()?).await,
        EnvironmentCommand::Protect(arguments) => protect::execute(&client()?, arguments).await,
    }
}

fn allow(name: &EnvironmentName, allowed: bool) -> Outcome {
    let directory = protected::allow(name, allowed)?.display().to_string();
    let what = if allowed { "may use" } else { "may no longer use" };
    let text = format!("In {directory}, run and export {what} environment {name} without its name on the command line");
    Ok(plain(AllowedHere { environment: name.to_string(), directory, allowed }, text))
}

async fn list(client: &Client, workspace: String, project: String) -> Outcome {
    let what = format!("cannot list the environments of project '{workspace}/{project}'");
    let need = Place::Project { workspace: workspace.clone(), project: project.clone() }.need("read", client);
    let request = ListEnvironmentsRequest { workspace_name: workspace, project_name: project };
    let answer = client.list_environments(request).await.map_err(failed(what, need))?;
    let environments: Vec<_> = answer.environments.into_iter().map(EnvironmentObject::from).collect();
    let lines = environments.iter().map(|environment| format!("  {}", environment.name));
    let text = listing("Environments:", "No environments found", lines);
    Ok(plain(Environments { environments }, text))
}

async fn create(client: &Client, name: EnvironmentName, unprotected: bool) -> Outcome {
    let what = format!("cannot create environment '{name}'");
    let place = Place::Project { workspace: name.workspace.clone(), project: name.project.clone() };
    let need = place.need("admin", client);
    refuse_ambiguous(&name).map_err(failed(what.clone(), None))?;
    let workspace = client.workspace_key(&name.workspace).await.map_err(failed(what.clone(), need.clone()))?;
    let dek = Dek::generate().map_err(|source| Failure::new(what.clone()).because(source))?;
    let sealed = dek.wrap(&workspace.kek, &name).map_err(|source| Failure::new(what.clone()).because(source))?;
    let request = CreateEnvironmentRequest {
        workspace_name: name.workspace.clone(),
        project_name: name.project.clone(),
        name: name.environment.clone(),
        dek_wrapped: sealed.ciphertext,
        dek_nonce: sealed.nonce.to_vec(),
    };
    let environment = client.create_environment(request, &workspace).await.map_err(failed(what, need))?;
    if !unprotected {
        protect::protect_new(client, &name).await?;
    }
    let text = format!("Environment '{}' created (ID: {})", environment.name, environment.id);
    Ok(plain(EnvironmentObject::from(environment), text))
}

async fn get(client: &Client, name: EnvironmentName) -> Outcome {
    let what = format!("cannot show environment '{name}'");
    let need = Place::Environment(name.clone()).need("read", client);
    let request = GetEnvironmentRequest {
        workspace_name: name.workspace,
        project_name: name.project,
        environment_name: name.environment,
    };
    let environment = EnvironmentObject::from(client.get_environment(request).await.map_err(failed(what, need))?);
    let EnvironmentObject { id, project_id, name, dek_wrapped, dek_nonce, created_at, updated_at } = &environment;
    let text = format!(
        "Name:        {name}\nID:          {id}\nProject ID:  {project_id}\nDEK wrapped: {dek_wrapped}\nDEK nonce:   \
         {dek_nonce}\nCreated:     {created_at}\nUpdated:     {updated_at}"
    );
    Ok(plain(environment, text))
}

async fn rotate_key(client: &Client, name: EnvironmentName) -> Outcome {
    let what = format!("cannot replace the key of environment '{name}'");
    let need = Place::Environment(name.clone()).need("admin", client);
    let writer = EnvironmentWriter::new(client.clone(), name.clone());
    let values = writer.rotate_key().await.map_err(failed(what, need))?;
    let text = format!("Environment '{}' has a new key; {values} values were encrypted anew", name.environment);
    Ok(plain(Rotated { environment: name.to_string(), values }, text))
}

async fn delete(client: &Client, name: EnvironmentName) -> Outcome {
    let what = format!("cannot delete environment '{name}'");
    let place = Place::Project { workspace: name.workspace.clone(), project: name.project.clone() };
    let need = place.need("admin", client);
    let request = DeleteEnvironmentRequest {
        workspace_name: name.workspace.clone(),
        project_name: name.project.clone(),
        environment_name: name.environment.clone(),
    };
    client.delete_environment(request).await.map_err(failed(what, need))?;
    let EnvironmentName { workspace, project, environment } = name;
    let text = format!("Environment '{environment}' deleted");
    Ok(plain(Deleted { workspace, project, name: environment }, text))
}
