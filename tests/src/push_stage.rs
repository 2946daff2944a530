//! A Vault, and the operator that keeps it equal to Secrets.

use std::{
    collections::BTreeMap, fs::File, io::Write, os::unix::fs::OpenOptionsExt, path::PathBuf, process::ExitStatus,
    time::Duration,
};

use anyhow::{Context, Result};
use konverge_core::SecretValue;
use konverge_testkit::ControlPlane;
use konverge_testkit_stores::{VaultOptions, VaultServer, VaultStorage};
use konverge_vault::{
    Content, Credential, Expected, Found, KvVersion, Limits, Location, Login, Mount, SecretPath, VaultConfig,
    VersionState,
};
use serde_json::json;

use crate::{Operator, rbac};

/// The policy that users give the operator; it runs with this and nothing more.
const POLICY: &str = include_str!("../../deploy/vault-policy.hcl");

/// Its name in Vault.
const POLICY_NAME: &str = "vault-sync-operator";

/// The policy that users give roll: it grants versions, and no values.
const FOLLOWER: &str = include_str!("../../deploy/vault-policy-rollout.hcl");

/// Its name in Vault.
const FOLLOWER_NAME: &str = "vault-rollout-operator";

/// Where the policy expects an engine of version 2.
const MOUNT: &str = "secret";

/// For one request of an observer, who asks again.
const PATIENCE: Duration = Duration::from_secs(5);

/// A Vault with one KV engine, `secret`, of version 2, and an operator with the policy and the role that we ship. The processes that it started end
/// with it. Its objects in the cluster are labelled as those of a [`Stage`](crate::Stage).
pub struct PushStage {
    // It ends before what it speaks to.
    operator: Operator,
    vault: VaultServer,
    account: String,
}

/// The state of a path, as a person with access to Vault sees it.
#[derive(Debug, Clone)]
pub struct Held {
    /// Keys and values.
    pub fields: BTreeMap<String, String>,
    /// The version that holds them.
    pub version: VersionState,
}

impl PushStage {
    /// Starts a Vault, which is built if this machine has not done so before, and an operator that looks after one namespace, and
    /// waits until it is ready.
    pub async fn set(
        control_plane: &ControlPlane,
        namespace: &str,
        storage: VaultStorage,
        arguments: &[&str],
    ) -> Result<Self> {
        let vault = VaultServer::start(VaultOptions { storage, ..VaultOptions::default() }).await?;
        vault.mount_kv(MOUNT, 2).await?;
        vault.policy(POLICY_NAME, POLICY).await?;
        let token = token_file(&vault, POLICY_NAME).await?;
        let client = control_plane.admin_client().await?;
        let home = control_plane.namespace("vault-sync-operator-system").await?;
        rbac::create(&client, &rbac::PUSH, &home).await?;
        let kubeconfig = control_plane.service_account_kubeconfig(&home, rbac::PUSH.account).await?;
        let arguments = [&["--namespace", namespace], arguments].concat();
        let run = control_plane.run_directory();
        let mut operator = Operator::start_push(run, &kubeconfig, vault.address(), &token, &arguments)?;
        operator.ready().await?;
        Ok(Self { operator, vault, account: format!("system:serviceaccount:{home}:{}", rbac::PUSH.account) })
    }

    /// From its next start on, the operator logs in by `AppRole`, for tokens that end after `longest` whatever is done, and before if nobody
    /// renews them within `lease`. Both in seconds.
    pub async fn log_in_by_app_role(&mut self, lease: u32, longest: u32) -> Result<()> {
        let (server, nothing) = (&self.vault, json!({}));
        server.request("POST", "sys/auth/approle", &json!({ "type": "approle" })).await?;
        let role = json!({ "token_policies": [POLICY_NAME], "token_ttl": lease, "token_max_ttl": longest });
        server.request("POST", "auth/approle/role/push", &role).await?;
        let role_id = server.request("GET", "auth/approle/role/push/role-id", &json!(null)).await?;
        let secret_id = server.request("POST", "auth/approle/role/push/secret-id", &nothing).await?;
        let [role_id, secret_id] = [&role_id["data"]["role_id"], &secret_id["data"]["secret_id"]].map(|id| id.as_str());
        let (role_id, secret_id) = role_id.zip(secret_id).context("Vault made no role")?;
        let file = private_file(server, "operator-secret-id", secret_id)?;
        let spec = self.operator.process().spec_mut();
        let method = spec.arguments.iter_mut().find(|argument| *argument == "token");
        *method.context("the operator does not log in by a token")? = "approle".into();
        spec.arguments.extend(["--vault-role-id".into(), role_id.into()]);
        spec.arguments.extend(["--vault-secret-id-file".into(), file.into()]);
        Ok(())
    }

    /// The operator.
    pub fn operator(&mut self) -> &mut Operator {
        &mut self.operator
    }

    /// The name by which the API server knows the operator.
    pub fn operator_user(&self) -> &str {
        &self.account
    }

    /// Vault.
    pub fn server(&self) -> &VaultServer {
        &self.vault
    }

    /// Returns a file with a token that has the policy of roll.
    pub async fn follower(&self) -> Result<PathBuf> {
        self.vault.policy(FOLLOWER_NAME, FOLLOWER).await?;
        token_file(&self.vault, FOLLOWER_NAME).await
    }

    /// A client of an administrator of Vault, without a limit of its own but `concurrency`.
    pub fn vault(&self, concurrency: usize) -> Result<Vault> {
        self.client(self.vault.root_token().to_owned(), concurrency)
    }

    /// The same for somebody with the operator's policy and nothing more. Vault looks that up for each request, which takes it longer than
    /// the request itself.
    pub async fn peer(&self, concurrency: usize) -> Result<Vault> {
        self.client(token(&self.vault, POLICY_NAME).await?, concurrency)
    }

    fn client(&self, token: String, concurrency: usize) -> Result<Vault> {
        let token = Credential::value(SecretValue::from(token));
        let concurrency = concurrency.try_into().context("at least one request at a time")?;
        let limits = Limits::default().with(|limits| {
            limits.rate = None;
            limits.concurrency = concurrency;
            limits.deadline = PATIENCE;
        });
        let config = VaultConfig::new(self.vault.address(), Login::Token(token))?.limits(limits);
        Ok(Vault(konverge_vault::Vault::new(&config)))
    }

    /// The servers of it that have ended.
    pub fn ended(&mut self) -> Vec<(String, ExitStatus)> {
        let vault = self.vault.process();
        let vault = vault.status().map(|status| (vault.name().to_owned(), status));
        [vault, self.operator.ended()].into_iter().flatten().collect()
    }

    /// Starts again what has ended, with the data that Vault had, and waits until all of it can be worked with.
    pub async fn start_ended(&mut self) -> Result<()> {
        self.vault.start_again().await?;
        self.vault.unseal().await?;
        self.operator.start_ended().await
    }
}

/// Somebody with access to Vault. Clones share their connections.
#[derive(Clone)]
pub struct Vault(konverge_vault::Vault);

impl Vault {
    /// Where a path of the engine leads, such as `secret/data/shop/db`.
    pub fn location(path: &str) -> Result<Location> {
        Ok(Mount::new(MOUNT, KvVersion::Two).location(&SecretPath::parse(path)?)?)
    }

    /// Returns the content of a path, or `None` if there is none or it is deleted.
    pub async fn read(&self, path: &str) -> Result<Option<Held>> {
        let Found::Live(secret) = self.0.read(&Self::location(path)?).await? else { return Ok(None) };
        let fields = secret.content.iter();
        let fields =
            fields.map(|(key, field)| (key.to_owned(), String::from_utf8_lossy(field.bytes()).into_owned())).collect();
        let version = secret.version.context("an engine of version 2 has versions")?;
        Ok(Some(Held { fields, version }))
    }

    /// Writes a version with this alone.
    pub async fn write(&self, path: &str, key: &str, value: &str) -> Result<()> {
        let content = Content::from_iter([(key.to_owned(), SecretValue::from(value.to_owned()))]);
        self.0.write(&Self::location(path)?, &content, Expected::Any).await?;
        Ok(())
    }

    /// All that Vault can be asked.
    pub fn client(&self) -> &konverge_vault::Vault {
        &self.0
    }
}

/// A file with a token of a policy, for this user alone, as long as Vault's folder is there.
async fn token_file(vault: &VaultServer, policy: &str) -> Result<PathBuf> {
    private_file(vault, &format!("{policy}-token"), &token(vault, policy).await?)
}

fn private_file(vault: &VaultServer, name: &str, content: &str) -> Result<PathBuf> {
    let path = vault.run_directory().path().join(name);
    File::options().write(true).create_new(true).mode(0o600).open(&path)?.write_all(content.as_bytes())?;
    Ok(path)
}

/// A token of a policy.
async fn token(vault: &VaultServer, policy: &str) -> Result<String> {
    Ok(vault.token(&[policy], json!({ "period": "24h" })).await?)
}
