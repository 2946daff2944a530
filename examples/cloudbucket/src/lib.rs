//! Keeps buckets of a cloud as their objects say: the example of an operator for things outside the cluster.
//!
//! Read [`BucketSpec`] first, the object that a user writes; then [`mod@remote`], a bucket as the framework sees it; then the reconciler
//! below; then [`cloud`], the client.

pub mod cloud;
pub mod remote;

use cloud::Cloud;
use konverge::{
    clap,
    prelude::*,
    remote::{Binding, DeletionPolicy as RemotePolicy, Interest, Remotes, Settings},
};

/// Keeps the object until the bucket is gone. It is set right before the first call that creates something.
const FINALIZER: &str = "cloudbucket.example.io/bucket";

/// A bucket that is to exist in the cloud.
#[konverge::resource(
    group = "example.io",
    version = "v1alpha1",
    kind = "Bucket",
    namespaced,
    status = "BucketStatus",
    printcolumn = r#"{"name": "Bucket", "type": "string", "jsonPath": ".spec.bucketName"}"#,
    printcolumn = r#"{"name": "Id", "type": "string", "jsonPath": ".status.id"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BucketSpec {
    /// The name of the bucket in the cloud. It cannot be changed.
    pub bucket_name: String,
    /// Whether the cloud keeps former versions of objects.
    #[serde(default)]
    pub versioning: bool,
    /// For how many days objects cannot be deleted; as long as they are wanted if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<u32>,
    /// The fate of the bucket when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// The fate of a bucket whose object is deleted.
#[konverge::schema]
#[derive(Copy, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// The bucket is deleted with all that is in it.
    #[default]
    Delete,
    /// The bucket stays in the cloud.
    Orphan,
}

/// The state of the bucket.
#[konverge::schema]
#[derive(Default)]
pub struct BucketStatus {
    /// The id of the bucket in the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Conditions and the generation they are about.
    #[serde(flatten)]
    pub standard: Status,
}

impl CustomStatus for BucketStatus {
    fn standard(&self) -> &Status {
        &self.standard
    }

    fn standard_mut(&mut self) -> &mut Status {
        &mut self.standard
    }
}

/// The flags of the program beside those of the framework.
#[derive(clap::Args)]
#[command(about = None, long_about = None)]
struct Flags {
    /// The address of the cloud's API, such as `https://cloud.example.com`
    #[arg(long, env = "CLOUD_URL", value_name = "URL")]
    cloud_url: String,
    /// How often the cloud is asked whether a bucket is still as it should be, in seconds: a change by hand is corrected within this time
    #[arg(long, env = "LOOK_EVERY", value_name = "SECONDS", default_value_t = 60)]
    look_every: u64,
}

/// Returns the bucket that an object stands for.
fn binding(bucket: &Bucket) -> Binding {
    Binding::new(&bucket.spec.bucket_name).with(|binding| {
        binding.id = bucket.status.as_ref().and_then(|status| status.id.clone());
        binding.deletion = match bucket.spec.deletion_policy {
            DeletionPolicy::Delete => RemotePolicy::Delete,
            DeletionPolicy::Orphan => RemotePolicy::Orphan,
        };
    })
}

struct Buckets(Remotes<Cloud>);

impl Reconcile<Bucket> for Buckets {
    type Error = Error;

    async fn apply(&self, bucket: Arc<Bucket>, context: Context<Bucket>) -> Result<Action, Error> {
        let synced = context.remote(&self.0).apply(&binding(&bucket), &bucket.spec).await?;
        context.status(|status| status.id = Some(synced.item.observed.id.clone()));
        Ok(Action::Done)
    }

    async fn finalize(&self, bucket: Arc<Bucket>, context: Context<Bucket>) -> Result<Cleanup, Error> {
        context.remote(&self.0).finalize(&binding(&bucket)).await
    }
}

/// The operator.
pub fn operator() -> Operator {
    let buckets = Remotes::default();
    konverge::operator!()
        .flags::<Flags>()
        .remote(&buckets, |setup| {
            let flags = setup.flags::<Flags>().ok_or_else(|| Error::permanent("NoCloud", "--cloud-url is missing"))?;
            let cloud = Cloud::new(&flags.cloud_url)
                .map_err(|error| Error::permanent("NoCloud", "cannot make a client of --cloud-url").caused_by(error))?;
            Ok((cloud, Settings::default().with(|settings| settings.interval = Duration::from_secs(flags.look_every))))
        })
        .controller(
            Controller::new(Buckets(buckets.clone()))
                .finalizer_on_demand(FINALIZER)
                .remote(&buckets, |bucket| Interest::default().claims(&binding(bucket))),
        )
}
