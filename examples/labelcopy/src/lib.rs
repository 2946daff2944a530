//! Copies the labels of annotated Deployments to a list outside the cluster: a whole job in less than 200 lines.
//!
//! "How to write a job" in `docs/design-framework.md` walks through it. This file declares the job: which objects make a request, what they
//! refer to, and what a run does. The module [`mod@list`] has the rest: what is observed, how it is compared, and how a step is applied.

pub mod list;

use konverge::{
    JsonApi, clap,
    k8s_openapi::api::apps::v1::Deployment,
    prelude::*,
    remote::{Binding, Interest, Remotes, Settings},
};
use list::{Entry, LabelList};

/// Annotation: the name of the entry that gets a copy of the Deployment's labels. Without it, the operator leaves the Deployment alone.
pub const ENTRY: &str = "labelcopy.example.io/entry";

/// Keeps an annotated Deployment until its entry is deleted. The operator sets it with the first write to the list.
const FINALIZER: &str = "labelcopy.example.io/entry";

/// A Deployment that may make a request. Only its metadata enters the process.
type Source = PartialObjectMeta<Deployment>;

/// The flags of the program beside those of the framework.
#[derive(clap::Args)]
#[command(about = None, long_about = None)]
struct Flags {
    /// The address of the list, such as `https://list.example.com/v1`
    #[arg(long, env = "LIST_URL", value_name = "URL")]
    list_url: String,
    /// How often the list is read, in seconds: a change by hand is corrected within this time
    #[arg(long, env = "READ_EVERY", value_name = "SECONDS", default_value_t = 60)]
    read_every: u64,
}

/// Returns the name of the entry that a Deployment requests, or `None` if it requests none.
fn request(source: &Source) -> Option<&str> {
    source.annotations().get(ENTRY).map(|name| name.trim()).filter(|name| !name.is_empty())
}

/// Returns what a Deployment refers to: the entry of that name.
fn binding(source: &Source) -> Binding {
    Binding::new(request(source).unwrap_or_default())
}

/// Returns the entry that a Deployment should have.
fn desired(source: &Source) -> Entry {
    Entry { name: binding(source).name, labels: source.labels().clone() }
}

struct Copier(Remotes<LabelList>);

impl Reconcile<Source> for Copier {
    type Error = Error;

    async fn apply(&self, source: Arc<Source>, context: Context<Source>) -> Result<Action, Error> {
        context.remote(&self.0).apply(&binding(&source), &desired(&source)).await?;
        Ok(Action::Done)
    }

    async fn finalize(&self, source: Arc<Source>, context: Context<Source>) -> Result<Cleanup, Error> {
        context.remote(&self.0).finalize(&binding(&source)).await
    }
}

/// The operator.
pub fn operator() -> Operator {
    let entries = Remotes::default();
    let interest = |source: &Source| match request(source) {
        Some(_) => Interest::default().claims(&binding(source)),
        None => Interest::default(),
    };
    konverge::operator!()
        .flags::<Flags>()
        .remote(&entries, |setup| {
            let flags = setup.flags::<Flags>().ok_or_else(|| Error::permanent("NoList", "--list-url is missing"))?;
            let list = LabelList(JsonApi::new("list", &flags.list_url)?);
            Ok((list, Settings::default().with(|settings| settings.interval = Duration::from_secs(flags.read_every))))
        })
        .controller(
            Controller::watching(Copier(entries.clone()))
                .only(|source| request(source).is_some())
                .finalizer_on_demand(FINALIZER)
                .remote(&entries, interest),
        )
}
