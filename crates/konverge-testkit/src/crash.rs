//! An operator, crashed at every one of its writes.
//!
//! Read in this order: [`Scenario`], what a test says about its operator; [`CrashTest`], what it runs; [`Report`], what it finds.

mod points;
mod report;
mod run;
mod snapshot;

use std::{
    env, io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::Value;
use tower::BoxError;

use self::run::{Run, Trouble};
pub use self::{
    points::{Fault, Point},
    report::{Broken, Finding, Outcome, Report},
    snapshot::{mask, snapshot},
};
use crate::{
    control_plane::{ControlPlane, StartError},
    fault_proxy::{Plan, PlanError, ProxyError, Trigger},
    process::{ProcessError, ProcessSpec},
};

/// So often a run is made whose fault does not befall it.
const ATTEMPTS: usize = 3;

/// Plans name the operator so: `kill: operator`.
pub const OPERATOR: &str = "operator";

/// An operator and what happens to its world. Each run has a namespace of its own, and everything in it is the operator's world.
///
/// ```no_run
/// use std::path::Path;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use konverge_testkit::{ControlPlane, Options, ProcessSpec, crash::{CrashTest, Scenario, snapshot}};
/// use kube::{Api, Client, api::{ApiResource, ObjectMeta, PostParams}};
///
/// struct Copies;
///
/// impl Scenario for Copies {
///     fn name(&self) -> &str {
///         "copies"
///     }
///
///     fn steps(&self) -> usize {
///         1
///     }
///
///     fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec {
///         ProcessSpec::new("my-operator", "target/debug/my-operator").env("KUBECONFIG", kubeconfig).arg(namespace)
///     }
///
///     async fn change(&self, _step: usize, client: &Client, namespace: &str) -> Result<(), tower::BoxError> {
///         let metadata = ObjectMeta { name: Some("original".to_owned()), ..ObjectMeta::default() };
///         let original = ConfigMap { metadata, ..ConfigMap::default() };
///         Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &original).await?;
///         Ok(())
///     }
///
///     async fn is_converged(&self, _step: usize, client: &Client, namespace: &str) -> Result<bool, tower::BoxError> {
///         Ok(Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt("copy").await?.is_some())
///     }
///
///     async fn end_state(&self, client: &Client, namespace: &str) -> Result<serde_json::Value, tower::BoxError> {
///         Ok(snapshot(client, namespace, &[ApiResource::erase::<ConfigMap>(&())]).await?)
///     }
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let control_plane = ControlPlane::start(Options::default()).await?;
/// CrashTest::new(&control_plane, &Copies).run().await?.verdict()?;
/// # Ok(())
/// # }
/// ```
pub trait Scenario: Sync {
    /// Names namespaces and plan files: lower case letters, digits and dashes.
    fn name(&self) -> &str;

    /// How many changes there are.
    fn steps(&self) -> usize;

    /// Makes what the operator needs in its namespace, such as roles, and says as whom it runs. By default nothing, and as an
    /// administrator.
    fn prepare(
        &self,
        control_plane: &ControlPlane,
        _namespace: &str,
    ) -> impl Future<Output = Result<PathBuf, BoxError>> + Send {
        std::future::ready(Ok(control_plane.kubeconfig().to_owned()))
    }

    /// How the operator is started. Only what it asks with this kubeconfig is seen.
    fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec;

    /// Changes the world, as a user or another system does. Steps count from 0.
    fn change(
        &self,
        step: usize,
        client: &Client,
        namespace: &str,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Whether the operator has done what the step asks for.
    fn is_converged(
        &self,
        step: usize,
        client: &Client,
        namespace: &str,
    ) -> impl Future<Output = Result<bool, BoxError>> + Send;

    /// The final state, without fields that differ between runs; [`snapshot()`] returns it for most kinds.
    fn end_state(&self, client: &Client, namespace: &str) -> impl Future<Output = Result<Value, BoxError>> + Send;

    /// The writes that count. By default all but leases, which are renewed with time, and events, which say what is known already.
    fn writes(&self) -> Trigger {
        let except = ["leases.coordination.k8s.io", "events", "events.events.k8s.io"];
        Trigger { mutating: Some(true), except: except.map(Into::into).into(), ..Trigger::default() }
    }
}

/// Learns the writes of a run without faults, then runs the scenario three more times for each of them. The operator is killed
/// before the write is forwarded, or after it is committed, or it lives and never hears of its success. Each run has to come to the
/// same end state with the same counts of creations and deletions.
///
/// Assumes that the number of the operator's writes is about the same in every run. If a run has fewer of them than the point needs, the scenario
/// runs again. A point that three runs do not reach shows nothing and is counted. If more than a quarter of all points are not reached, the
/// verdict is an error. Does not measure, as the time depends on the machine.
pub struct CrashTest<'a, S> {
    control_plane: &'a ControlPlane,
    scenario: &'a S,
    /// A step that has not converged within this time never will; a minute at first.
    pub limit: Duration,
    /// A step is over when the operator has written nothing for this time since it converged; 300 ms at first.
    pub quiet: Duration,
    /// How many runs with a fault are made at the same time; one at first. More shorten a test whose operator mostly waits. Their operators must
    /// share nothing outside their namespaces.
    pub at_once: usize,
    /// Where the plans of failing runs go; `konverge-plans` in the folder for temporary files at first.
    pub plans: PathBuf,
}

/// A run could not be made, so it says nothing about the operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CrashError {
    /// The run without faults failed.
    #[error("the operator fails without any fault: {0}")]
    Reference(String),
    /// Two runs without faults ended differently.
    #[error(
        "two runs without any fault end differently, so runs with one show nothing; mask more of the scenario's end state:\n  {}",
        .0.join("\n  ")
    )]
    Unsteady(Vec<String>),
    /// The run without faults had no write to crash at.
    #[error("the operator wrote nothing in the run without faults; does it use the kubeconfig that it was given?")]
    NoWrites,
    /// The scenario's own code failed.
    #[error("the scenario cannot {what}: {source}")]
    Scenario {
        /// The request.
        what: &'static str,
        /// The response.
        source: BoxError,
    },
    /// The control plane refused.
    #[error(transparent)]
    ControlPlane(#[from] StartError),
    /// The proxy did not start.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The operator did not start.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A plan could not be used.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan of a failing run could not be kept.
    #[error("cannot keep the plan of a failing run in {}: {source}", folder.display())]
    Keep {
        /// Where it was to go.
        folder: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl<'a, S: Scenario> CrashTest<'a, S> {
    /// A test of the scenario on the control plane.
    pub fn new(control_plane: &'a ControlPlane, scenario: &'a S) -> Self {
        Self {
            control_plane,
            scenario,
            limit: Duration::from_secs(60),
            quiet: Duration::from_millis(300),
            at_once: 1,
            plans: env::temp_dir().join("konverge-plans"),
        }
    }

    /// Runs it all.
    pub async fn run(&self) -> Result<Report, CrashError> {
        let reference = self.reference().await?;
        let mut report = Report::new(&reference);
        let runs = stream::iter(reference.points()).map(async |point: Point| {
            let plan = point.plan(&self.scenario.writes())?;
            let ended = self.attempts(&plan).await?;
            Ok::<_, CrashError>((point, plan, ended))
        });
        let mut runs = std::pin::pin!(runs.buffered(self.at_once.max(1)));
        while let Some((point, plan, ended)) = runs.try_next().await? {
            let (has_faults, faults) = match ended {
                Ok(outcome) => (outcome.has_faults(), reference.differences(&outcome)),
                Err(why) => (true, vec![why]),
            };
            if !faults.is_empty() {
                report.wrong(self.finding(&reference, point, &plan, faults)?);
            } else if has_faults {
                report.survived();
            } else {
                report.missed(point);
            }
        }
        Ok(report)
    }

    /// The run without faults. It is made twice, as what differs of itself shows nothing.
    pub async fn reference(&self) -> Result<Outcome, CrashError> {
        let reference = self.outcome(Plan::default()).await?.map_err(CrashError::Reference)?;
        if reference.points().is_empty() {
            return Err(CrashError::NoWrites);
        }
        let again = self.outcome(Plan::default()).await?.map_err(CrashError::Reference)?;
        let differences = reference.differences(&again);
        if differences.is_empty() { Ok(reference) } else { Err(CrashError::Unsteady(differences)) }
    }

    /// Runs the scenario with a plan, such as one that a report names, and returns the failures. The list is empty if the run ends like the
    /// reference, or if its fault hit none of three runs.
    pub async fn replay(&self, reference: &Outcome, plan: &Plan) -> Result<Vec<String>, CrashError> {
        Ok(match self.attempts(plan).await? {
            Ok(outcome) => reference.differences(&outcome),
            Err(why) => vec![why],
        })
    }

    /// A run with a plan, and again as long as its fault does not befall it, because there were fewer writes this time.
    async fn attempts(&self, plan: &Plan) -> Result<Result<Outcome, String>, CrashError> {
        let mut attempt = 1;
        loop {
            match self.outcome(plan.clone()).await? {
                Ok(outcome) if !outcome.has_faults() && attempt < ATTEMPTS => attempt += 1,
                ended => return Ok(ended),
            }
        }
    }

    /// One run to its end, or why it did not get there.
    async fn outcome(&self, plan: Plan) -> Result<Result<Outcome, String>, CrashError> {
        let mut run = Run::start(self, plan).await?;
        for step in 0..self.scenario.steps() {
            match run.step(step).await {
                Ok(()) => {}
                Err(Trouble::Operator(why)) => return Ok(Err(why)),
                Err(Trouble::Test(error)) => return Err(error),
            }
        }
        run.end().await.map(Ok)
    }

    fn finding(
        &self,
        reference: &Outcome,
        point: Point,
        plan: &Plan,
        faults: Vec<String>,
    ) -> Result<Finding, CrashError> {
        let keep = |source| CrashError::Keep { folder: self.plans.clone(), source };
        std::fs::create_dir_all(&self.plans).map_err(keep)?;
        let path = self.plans.join(format!("{}-{}.yaml", self.scenario.name(), point.file_name()));
        plan.write(&path)?;
        Ok(Finding { point, write: reference.write(point), faults, plan: path })
    }
}
