//! A control plane with an account of openZro, a proxy before it, and an operator that does not run yet.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use konverge_e2e::{ManageStage, OpenZroAccount};
use konverge_openzro::{Collection, OpenZro};
use konverge_testkit::{AuditLog, ControlPlane, Options, eventually};
use konverge_testkit_stores::{HttpFront, Seen};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

/// Requests at the same time, of the setup and of the loop.
pub(crate) const CONCURRENCY: usize = 16;

/// Far beyond what anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_mins(10);

/// Between two looks at all objects.
const LOOK: Duration = Duration::from_millis(500);

/// Nothing is under way any more.
const QUIET: Duration = Duration::from_secs(1);

/// Where an account is.
#[derive(Clone)]
pub(crate) struct Target {
    /// Its name in the table.
    pub(crate) name: &'static str,
    pub(crate) account: OpenZroAccount,
}

pub(crate) struct Field {
    // It ends before what it speaks to.
    pub(crate) stage: ManageStage,
    pub(crate) target: Target,
    pub(crate) front: HttpFront,
    /// The account past the operator and the proxy.
    pub(crate) dashboard: OpenZro,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) interval: Duration,
    pub(crate) token: PathBuf,
    plane: ControlPlane,
}

/// A kind of openZro, such as `v1` and `OZGroup`.
pub(crate) fn kind(version: &str, kind: &str) -> ApiResource {
    let plural = match kind {
        "OZPolicy" => "ozpolicies".to_owned(),
        kind => format!("{}s", kind.to_ascii_lowercase()),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("openzro.io", version, kind), &plural)
}

/// Groups, which the figures with many objects are about.
pub(crate) fn groups() -> ApiResource {
    kind("v1alpha1", "Group")
}

/// Whether a request reads a whole collection.
pub(crate) fn is_list(seen: &Seen) -> bool {
    let lists = [
        "groups",
        "policies",
        "setup-keys",
        "networks",
        "networks/resources",
        "networks/routers",
        "dns/zones",
        "accounts",
    ];
    seen.method == "GET" && seen.path.strip_prefix("/api/").is_some_and(|path| lists.contains(&path))
}

impl Field {
    /// Sets the stage. The operator has been started once, and killed.
    pub(crate) async fn set(target: &Target, interval: u16) -> Result<Self> {
        eprintln!("manage: setting the stage, {}", target.name);
        let target = Target { account: target.account.another().await?, ..target.clone() };
        let plane = ControlPlane::start(Options::ours()).await?;
        let front = HttpFront::start(&target.account.url).await?;
        let token = ManageStage::token_file(&plane, &target.account.token)?;
        // Neither rules for names nor the guard of deletions are what is measured.
        let interval_flag = format!("--interval={interval}");
        let arguments = [interval_flag.as_str(), "--allow=*=*", "--allow-deletes"];
        let mut stage = ManageStage::set(&plane, &front.url(), &token, &arguments).await?;
        stage.operator().kill();
        let (client, dashboard) = (plane.admin_client().await?, target.account.client()?);
        let namespace = plane.namespace("manage").await?;
        let interval = Duration::from_secs(interval.into());
        Ok(Self { stage, target, front, dashboard, client, namespace, interval, token, plane })
    }

    /// The objects of a kind.
    pub(crate) fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        if resource.kind == "OZPolicy" {
            Api::all_with(self.client.clone(), resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, resource)
        }
    }

    pub(crate) async fn create(&self, resource: &ApiResource, name: &str, spec: Value) -> Result<()> {
        let object = DynamicObject::new(name, resource).data(json!({ "spec": spec }));
        let created = self.api(resource).create(&PostParams::default(), &object).await;
        created.map(drop).with_context(|| format!("cannot create {} {name}", resource.kind))
    }

    /// Creates `count` groups.
    pub(crate) async fn create_groups(&self, count: u16) -> Result<()> {
        let all = stream::iter(0..count).map(async |number| {
            let name = group(number);
            self.create(&groups(), &name, json!({ "name": name })).await
        });
        all.buffer_unordered(CONCURRENCY).try_collect().await
    }

    /// Changes the name of a group in its object.
    pub(crate) async fn rename(&self, group: &str, name: &str) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "name": name } }));
        let patched = self.api(&groups()).patch(group, &PatchParams::default(), &patch).await;
        patched.map(drop).with_context(|| format!("cannot rename Group {group}"))
    }

    /// Starts the operator.
    pub(crate) async fn start(&mut self) -> Result<()> {
        self.stage.operator().start_again().await
    }

    /// Waits until `count` objects of a kind fit.
    pub(crate) async fn many(
        &self,
        resource: &ApiResource,
        count: u16,
        fits: impl Fn(&DynamicObject) -> bool,
    ) -> Result<()> {
        let api = self.api(resource);
        let enough = async || {
            tokio::time::sleep(LOOK).await;
            let objects = api.list(&ListParams::default()).await.ok()?.items;
            (objects.iter().filter(|object| fits(object)).count() >= usize::from(count)).then_some(())
        };
        eventually(LIMIT, enough)
            .await
            .with_context(|| format!("not {count} of the kind {} are as they should be", resource.kind))
    }

    /// Waits until no call and no write has come for a moment.
    pub(crate) async fn quiet(&self) {
        let mut before = self.front.count();
        loop {
            tokio::time::sleep(QUIET.min(self.interval / 4)).await;
            let now = self.front.count();
            if now == before {
                return;
            }
            before = now;
        }
    }

    /// Waits until the lists have just been read, and nothing else is under way.
    pub(crate) async fn listed(&self) -> Result<()> {
        self.quiet().await;
        let before = self.front.count();
        let asked = async || (self.front.count() > before).then_some(());
        eventually(2 * self.interval + LIMIT, asked).await.context("no list is read")?;
        self.quiet().await;
        Ok(())
    }

    /// The names of the groups on the server.
    pub(crate) async fn group_names(&self) -> Result<BTreeSet<String>> {
        let listed = self.dashboard.list(&Collection::Groups).await?;
        Ok(listed.iter().filter_map(|group| group.raw()["name"].as_str().map(str::to_owned)).collect())
    }

    /// Gives the operator another token.
    pub(crate) fn write_token(&self, token: &str) -> Result<()> {
        fs::write(&self.token, token).context("cannot write the token")
    }

    /// The audit log from now on.
    pub(crate) async fn log(&self) -> Result<AuditLog> {
        let log = self.plane.audit_log()?;
        log.catch_up(&self.client).await?;
        Ok(log.from_now()?)
    }

    /// The operator's writes to Kubernetes, but for events.
    pub(crate) async fn writes(&self, log: &AuditLog) -> Result<usize> {
        log.catch_up(&self.client).await?;
        let entries = log.entries_of(&ManageStage::user())?;
        Ok(entries.iter().filter(|entry| entry.is_mutating() && entry.object_ref.resource != "events").count())
    }
}

/// The name of an object for a group, and of its group.
pub(crate) fn group(number: u16) -> String {
    format!("group-{number}")
}

/// Whether a condition of an object has this status.
pub(crate) fn says(object: &DynamicObject, condition: &str, status: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|known| known["type"] == condition && known["status"] == status)
}

/// Whether an object is as it is declared.
pub(crate) fn is_ready(object: &DynamicObject) -> bool {
    says(object, "Ready", "True")
}
