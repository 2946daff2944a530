//! Explains errors of a watch that do not tell their meaning.

use kube::runtime::watcher::Error;

use crate::object::Object;

/// How the API server serves a kind: `deployments.apps/v1`, `secrets/v1`.
pub(super) fn served_as<K: Object>(kind: &K::DynamicType) -> String {
    let (plural, group, version) = (K::plural(kind), K::group(kind), K::version(kind));
    let dot = if group.is_empty() { "" } else { "." };
    format!("{plural}{dot}{group}/{version}")
}

/// The error with a text for somebody who has to put it right: of a kind that is not there, the API server says no more than "404".
pub(super) fn explained(mut error: Error, served_as: &str) -> Error {
    if let Error::InitialListFailed(kube::Error::Api(status)) | Error::WatchStartFailed(kube::Error::Api(status)) =
        &mut error
        && status.code == 404
    {
        status.message =
            format!("the API server does not serve {served_as}; is its definition installed, in this version?");
    }
    error
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
    use kube::core::Status;

    use super::*;

    fn api_error(code: u16) -> kube::Error {
        kube::Error::Api(Status { code, ..Status::default() }.boxed())
    }

    #[test]
    fn a_kind_that_is_not_served_is_named() {
        let served = served_as::<Deployment>(&());
        for (error, is_named) in [
            (Error::InitialListFailed(api_error(404)), true),
            (Error::WatchStartFailed(api_error(404)), true),
            (Error::WatchStartFailed(api_error(403)), false),
            (Error::WatchFailed(api_error(404)), false),
        ] {
            let said = explained(error, &served).to_string();
            assert_eq!(said.contains("does not serve deployments.apps/v1; is its definition"), is_named, "{said}");
        }
        assert_eq!(served_as::<Secret>(&()), "secrets/v1");
    }
}
