//! Keeps buckets of a cloud as their objects say: the example of an operator for things outside the cluster.
//!
//! Read [`BucketSpec`] first, the object that a user writes; then [`mod@plan`], the decision; then the reconciler below, which asks the cloud,
//! decides and acts; then [`cloud`], the client.

pub mod cloud;
pub mod plan;

use std::sync::OnceLock;

use cloud::{Cloud, CloudError, Phase, Shown};
use konverge::{clap, prelude::*};
use plan::{Step, plan};

/// Keeps the object until the bucket is gone. It is set right before the first call that creates something.
const FINALIZER: &str = "cloudbucket.example.io/bucket";

/// How often the cloud is asked whether it has emptied a bucket.
const LOOK_WHILE_DELETING: Duration = Duration::from_secs(2);

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

impl From<CloudError> for Error {
    fn from(error: CloudError) -> Self {
        let message = error.to_string();
        match error {
            CloudError::Unavailable(_) => Error::unavailable("cloud", "CloudUnavailable", message),
            CloudError::TooManyRequests(pause) => Error::after(pause, "CloudBusy", message),
            CloudError::NameTaken(_) => Error::permanent("NameTaken", message),
            CloudError::Refused { .. } => Error::permanent("CloudRefuses", message),
        }
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

/// The reconciler. It makes its client of the cloud at the first use.
#[derive(Default)]
struct Buckets(OnceLock<Cloud>);

impl Buckets {
    fn cloud(&self, context: &Context<Bucket>) -> Result<&Cloud, Error> {
        if let Some(cloud) = self.0.get() {
            return Ok(cloud);
        }
        let url = &context.flags::<Flags>()?.cloud_url;
        let cloud = Cloud::new(url)
            .map_err(|error| Error::permanent("NoCloud", "cannot make a client of --cloud-url").caused_by(error))?;
        Ok(self.0.get_or_init(|| cloud))
    }
}

/// Returns the bucket of this object: by its id, or, if the reply to its creation was lost, by its tag.
async fn observe(cloud: &Cloud, bucket: &Bucket) -> Result<Option<Shown>, CloudError> {
    if let Some(id) = bucket.status.as_ref().and_then(|status| status.id.as_deref())
        && let Some(shown) = cloud.get(id).await?
    {
        return Ok(Some(shown));
    }
    cloud.find(tag(bucket)).await
}

/// Returns the mark by which the bucket of an object is found again: unique, and another one if the object is made anew.
fn tag(bucket: &Bucket) -> &str {
    bucket.metadata.uid.as_deref().unwrap_or_default()
}

impl Reconcile<Bucket> for Buckets {
    type Error = Error;

    async fn apply(&self, bucket: Arc<Bucket>, context: Context<Bucket>) -> Result<Action, Error> {
        let cloud = self.cloud(&context)?;
        let shown = observe(cloud, &bucket).await?;
        let name = &bucket.spec.bucket_name;
        let id = match plan(&bucket.spec, shown.as_ref()) {
            Step::Nothing => shown.map(|shown| shown.id),
            Step::Create(settings) => {
                context.ensure_finalizer().await?;
                context.check_lease()?;
                let created = cloud.create(name, tag(&bucket), &settings).await?;
                context.event(EventType::Normal, "BucketCreated", "Create", format!("created bucket {name}"));
                Some(created.id)
            }
            Step::Update { settings, differing } => {
                let id = shown.map(|shown| shown.id).unwrap_or_default();
                context.check_lease()?;
                cloud.update(&id, &settings).await?;
                let note = format!("bucket {name} differed in {}", differing.join(", "));
                context.event(EventType::Normal, "BucketCorrected", "Update", note);
                Some(id)
            }
            Step::RefuseRename { is } => {
                let message = format!("spec.bucketName cannot change from {is} to {name}; create another Bucket");
                return Err(Error::permanent("BucketRenamed", message));
            }
            Step::WaitForDeletion => {
                context.progressing(
                    const { Reason::new("BucketDeleting") },
                    format!("the cloud still deletes the former bucket {name}"),
                );
                return Ok(Action::After(LOOK_WHILE_DELETING));
            }
        };
        context.status(|status| status.id = id);
        Ok(Action::After(Duration::from_secs(context.flags::<Flags>()?.look_every)))
    }

    async fn finalize(&self, bucket: Arc<Bucket>, context: Context<Bucket>) -> Result<Cleanup, Error> {
        if bucket.spec.deletion_policy == DeletionPolicy::Orphan {
            return Ok(Cleanup::Done);
        }
        let cloud = self.cloud(&context)?;
        let Some(shown) = observe(cloud, &bucket).await? else { return Ok(Cleanup::Done) };
        if shown.phase == Phase::Active {
            context.check_lease()?;
            cloud.delete(&shown.id).await?;
        }
        let message = format!("the cloud empties bucket {}", bucket.spec.bucket_name);
        Ok(Cleanup::pending(LOOK_WHILE_DELETING, const { Reason::new("BucketDeleting") }, message))
    }
}

/// The operator.
pub fn operator() -> Operator {
    konverge::operator!()
        .flags::<Flags>()
        .controller(Controller::new(Buckets::default()).finalizer_on_demand(FINALIZER))
}
