//! A client of the cloud's bucket API. It knows nothing of Kubernetes.

use std::time::Duration;

use konverge::external::http::client;
use reqwest::{Method, Response, StatusCode, header::RETRY_AFTER};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// The longest time that one call may take.
const CALL_WITHIN: Duration = Duration::from_secs(10);

/// The settings of a bucket that can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Whether former versions of objects are kept.
    pub versioning: bool,
    /// For how many days objects cannot be deleted.
    pub retention_days: Option<u32>,
}

/// A bucket in the list of the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Listed {
    /// The text that it was created with, which nothing can change.
    pub tag: String,
    /// The bucket.
    #[serde(flatten)]
    pub observed: ObservedBucket,
}

/// A bucket as the cloud shows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ObservedBucket {
    /// The id that the cloud gave it.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its settings.
    #[serde(flatten)]
    pub settings: Settings,
    /// Whether it is in use or on its way out.
    pub phase: Phase,
}

/// The life of a bucket. Deletion takes as long as the cloud needs to empty it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// It is in use.
    Active,
    /// It is being emptied and will then be gone.
    Deleting,
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The cloud cannot be reached, does not answer in time, or fails. The call may have taken effect.
    #[error("the cloud does not answer: {0}")]
    Unavailable(String),
    /// The cloud is asked too often.
    #[error("the cloud asks to wait {} s", .0.as_secs())]
    TooManyRequests(Duration),
    /// Another account or object has a bucket of this name.
    #[error("the bucket name {0:?} is taken; choose another spec.bucketName")]
    NameTaken(String),
    /// The cloud refuses the call.
    #[error("the cloud refuses the call with {code}: {message}")]
    Refused {
        /// HTTP status code.
        code: u16,
        /// The cloud's explanation.
        message: String,
    },
}

/// The bucket API.
#[derive(Clone, Debug)]
pub struct Cloud {
    http: reqwest::Client,
    url: String,
}

impl Cloud {
    /// A client of the API at `url`, such as `https://cloud.example.com`.
    pub fn new(url: impl Into<String>) -> Result<Self, konverge::external::http::ClientError> {
        Ok(Self { http: client(CALL_WITHIN, &[])?, url: url.into() })
    }

    /// Lists all buckets.
    pub async fn list(&self) -> Result<Vec<Listed>, CloudError> {
        decode(self.call(Method::GET, "buckets", None).await?).await
    }

    /// Returns the bucket with this id, or `None` if the cloud says that it has none.
    pub async fn get(&self, id: &str) -> Result<Option<Listed>, CloudError> {
        match self.call(Method::GET, &format!("buckets/{id}"), None).await {
            Ok(answer) => Ok(Some(decode(answer).await?)),
            Err(CloudError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a bucket that bears the tag.
    pub async fn create(&self, name: &str, tag: &str, settings: &Settings) -> Result<Listed, CloudError> {
        let mut body = json!(settings);
        body["name"] = json!(name);
        body["tag"] = json!(tag);
        match self.call(Method::POST, "buckets", Some(body)).await {
            Ok(answer) => decode(answer).await,
            Err(CloudError::Refused { code: 409, .. }) => Err(CloudError::NameTaken(name.to_owned())),
            Err(error) => Err(error),
        }
    }

    /// Sets the settings of a bucket.
    pub async fn update(&self, id: &str, settings: &Settings) -> Result<(), CloudError> {
        self.call(Method::PATCH, &format!("buckets/{id}"), Some(json!(settings))).await.map(drop)
    }

    /// Deletes a bucket. Returns whether it is gone; if not, the cloud still has to empty it.
    pub async fn delete(&self, id: &str) -> Result<bool, CloudError> {
        match self.call(Method::DELETE, &format!("buckets/{id}"), None).await {
            Ok(answer) => Ok(answer.status() != StatusCode::ACCEPTED),
            Err(CloudError::Refused { code: 404, .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Response, CloudError> {
        let mut request = self.http.request(method, format!("{}/v1/{path}", self.url)).timeout(CALL_WITHIN);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.map_err(unavailable)?;
        let code = answer.status();
        if code.is_success() {
            return Ok(answer);
        }
        if code == StatusCode::TOO_MANY_REQUESTS {
            let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            return Err(CloudError::TooManyRequests(Duration::from_secs(seconds.unwrap_or(1))));
        }
        let message = answer.text().await.unwrap_or_default().chars().take(200).collect();
        if code.is_server_error() {
            Err(CloudError::Unavailable(format!("{code} {message}")))
        } else {
            Err(CloudError::Refused { code: code.as_u16(), message })
        }
    }
}

async fn decode<T: DeserializeOwned>(answer: Response) -> Result<T, CloudError> {
    let body = answer.bytes().await.map_err(unavailable)?;
    serde_json::from_slice(&body).map_err(|error| CloudError::Unavailable(format!("its answer is no JSON: {error}")))
}

fn unavailable(error: reqwest::Error) -> CloudError {
    CloudError::Unavailable(error.without_url().to_string())
}
