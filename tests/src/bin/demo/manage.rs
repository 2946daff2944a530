//! Manage: what custom resources declare is in openZro and stays so, and what people made there is left alone.
//!
//! The real management server has one fixed port, so the demo has the verified double in its place: it answers as the real one has been seen to.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use konverge_e2e::{Cast, ManageStage, OpenZroAccount, quoted, yaml};
use konverge_openzro::{Collection, Fields, OpenZro};
use konverge_testkit::eventually;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::{LIMIT, LIMIT_AGAIN, told};

/// The group of the object.
const GROUP: &str = "servers";

/// A group that people made.
const THEIRS: &str = "Developers";

/// The policy. It has no namespace.
const POLICY: &str = "ssh";

/// Nobody waits a minute here.
const SETTINGS: [&str; 2] = ["--interval=1", "--requests-per-second=200"];

/// Shows it, with an operator that joins the others.
pub(crate) async fn show(cast: &mut Cast, namespace: &str, keep: bool) -> Result<()> {
    println!("\nAnd what custom resources declare in openZro.");
    if !cast.stage().control_plane.is_ours() {
        println!("That is not shown: your cluster would have to get the definitions of openZro.");
        return Ok(());
    }
    let began = Instant::now();
    let account = OpenZroAccount::on_double().await?;
    let plane = &cast.stage().control_plane;
    let token = ManageStage::token_file(plane, &account.token)?;
    let stage = ManageStage::set(plane, &account.url, &token, &SETTINGS).await?;
    told(began, "openzro-operator is ready, under its own service account and the role that we ship");
    let scene = Scene {
        dashboard: account.client()?,
        client: cast.stage().client().clone(),
        namespace: namespace.to_owned(),
        account,
    };
    cast.manage(stage);

    println!("\nPeople have made the group {THEIRS} in the dashboard. A group and a policy are declared beside it:\n");
    for object in [scene.group(), scene.policy(&["22"])] {
        for line in yaml(&object)?.lines() {
            println!("    {line}");
        }
    }
    println!("\nThey are applied, changed and deleted, and somebody else looks into openZro:\n");
    cast.perform(async |_| scene.people_make().await).await?;
    scene.step(cast, "both applied", async || scene.apply(&["22"]).await, Some(&["22"])).await?;
    scene.step(cast, "port changed", async || scene.apply(&["2222"]).await, Some(&["2222"])).await?;
    scene.step(cast, "changed by hand", async || scene.change_by_hand().await, Some(&["2222"])).await?;
    cast.manager().context("there is no operator to kill")?.operator().kill();
    cast.perform(async |_| scene.delete().await).await?;
    println!("  operator killed with SIGKILL, and both deleted meanwhile");
    cast.manager().context("there is no operator to start")?.operator().start_again().await?;
    scene.step(cast, "operator started", async || Ok(()), None).await?;
    println!("\nThe group {THEIRS} is as people made it.");
    if keep {
        cast.perform(async |_| scene.until_gone().await).await?;
        scene.step(cast, "both applied", async || scene.apply(&["22"]).await, Some(&["22"])).await?;
        cast.keep_account(scene.account);
    }
    Ok(())
}

/// Prints where openZro is, and how to get in.
pub(crate) fn explain_exports(cast: &Cast) {
    if let Some(account) = cast.account() {
        println!("  export OPENZRO_URL={} OPENZRO_TOKEN={}", quoted(&account.url), quoted(&account.token));
    }
}

/// Prints what can be played with.
pub(crate) fn explain(cast: &Cast) {
    if cast.account().is_some() {
        let rules = json!({ "spec": { "ports": [2222] } }).to_string();
        println!("  kubectl patch ozpolicy {POLICY} --type merge -p {}", quoted(&rules));
        println!("  curl -sH \"Authorization: Token $OPENZRO_TOKEN\" $OPENZRO_URL/api/policies");
    }
}

/// Where the changes are made and seen.
struct Scene {
    /// The account past the operator.
    dashboard: OpenZro,
    client: Client,
    namespace: String,
    account: OpenZroAccount,
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("openzro.io", "v1", kind), plural)
}

impl Scene {
    fn group(&self) -> Value {
        json!({ "apiVersion": "openzro.io/v1", "kind": "OZGroup",
            "metadata": { "name": "servers", "namespace": self.namespace }, "spec": { "name": self.group_name() } })
    }

    /// The name in openZro. Others than those of its own namespace are refused, unless the platform team allows them.
    fn group_name(&self) -> String {
        format!("{}/{GROUP}", self.namespace)
    }

    fn policy(&self, ports: &[&str]) -> Value {
        let ports: Vec<u16> = ports.iter().filter_map(|port| port.parse().ok()).collect();
        json!({ "apiVersion": "openzro.io/v1", "kind": "OZPolicy", "metadata": { "name": POLICY },
            "spec": { "name": POLICY, "sourceGroups": [THEIRS], "destinationGroups": [self.group_name()], "protocols": ["tcp"],
                "ports": ports, "bidirectional": false } })
    }

    fn groups(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource("OZGroup", "ozgroups"))
    }

    fn policies(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("OZPolicy", "ozpolicies"))
    }

    async fn people_make(&self) -> Result<()> {
        let fields: Fields = [("name".to_owned(), THEIRS.into())].into_iter().collect();
        let all = self.dashboard.list(&Collection::Groups).await?;
        if all.iter().any(|group| group.raw()["name"] == THEIRS) {
            return Ok(());
        }
        self.dashboard.create(&Collection::Groups, &fields).await.map(drop).context("cannot make the group by hand")
    }

    async fn apply(&self, ports: &[&str]) -> Result<()> {
        let user = PatchParams::apply("user");
        self.groups().patch("servers", &user, &Patch::Apply(self.group())).await.context("cannot apply the group")?;
        let applied = self.policies().patch(POLICY, &user, &Patch::Apply(self.policy(ports))).await;
        applied.map(drop).context("cannot apply the policy")
    }

    /// Somebody opens a port in the dashboard.
    async fn change_by_hand(&self) -> Result<()> {
        let policies = self.dashboard.list(&Collection::Policies).await?;
        let policy = policies.first().context("there is no policy to change")?;
        let open = |body: &mut Fields| body["rules"][0]["ports"] = json!(["1"]);
        self.dashboard.modify(&policy.place(), open).await.map(drop).context("cannot change the policy by hand")
    }

    async fn delete(&self) -> Result<()> {
        for (api, name) in [(self.groups(), "servers"), (self.policies(), POLICY)] {
            match api.delete(name, &DeleteParams::default()).await {
                // The first time it was killed behind the deed.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                outcome => drop(outcome.with_context(|| format!("cannot delete {name}"))?),
            }
        }
        Ok(())
    }

    /// Waits until the cluster has neither object. An apply to one that is still being deleted would go with it.
    async fn until_gone(&self) -> Result<()> {
        let gone = eventually(LIMIT, async || {
            let (group, policy) = (self.groups().get_opt("servers").await, self.policies().get_opt(POLICY).await);
            (group.ok()?.is_none() && policy.ok()?.is_none()).then_some(())
        });
        gone.await.context("the group and the policy were not deleted from the cluster")
    }

    /// Makes a change, and says how long after it openZro had a policy with exactly these ports, or neither policy nor group.
    async fn step(
        &self,
        cast: &mut Cast,
        what: &str,
        change: impl AsyncFn() -> Result<()>,
        ports: Option<&[&str]>,
    ) -> Result<()> {
        let act = async |again| {
            change().await?;
            let began = Instant::now();
            self.is_so(ports, if again { LIMIT_AGAIN } else { LIMIT }).await?;
            let place = if ports.is_some() { "in openZro" } else { "gone from openZro" };
            if again {
                // It may have been so since the first time, so there is nothing to measure.
                println!("  {what:20} {place}");
            } else {
                println!("  {what:20} {place} {:3} ms after the change", began.elapsed().as_millis());
            }
            Ok(())
        };
        cast.perform(act).await
    }

    /// Waits until openZro has a policy with exactly these ports, or neither policy nor group, beside what people made.
    async fn is_so(&self, ports: Option<&[&str]>, limit: Duration) -> Result<()> {
        let ours = self.group_name();
        let seen = eventually(limit, async || {
            let policies = self.dashboard.list(&Collection::Policies).await.ok()?;
            let groups = self.dashboard.list(&Collection::Groups).await.ok()?;
            let names: Vec<_> = groups.iter().filter_map(|group| group.raw()["name"].as_str()).collect();
            let is_so = match (ports, policies.as_slice()) {
                (Some(ports), [policy]) => policy.raw()["rules"][0]["ports"] == json!(ports) && names.contains(&&*ours),
                (None, []) => !names.contains(&&*ours),
                _ => false,
            };
            (is_so && names.contains(&THEIRS)).then_some(())
        });
        seen.await.with_context(|| format!("openZro was not seen to have the ports {ports:?}"))
    }
}
