//! `/healthz` and `/readyz`, as Kubernetes components answer: `ok`, or every check with `?verbose` or when something fails; without
//! some checks with `?exclude=name`; and each check for itself below, such as `/readyz/shutdown`. Below its own name is all of it again, where
//! programs on controller-runtime have the one check that they come with.

use axum::{
    Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};

use crate::checks::{Checks, Kind, Report};

/// The parts of the query, in their order.
type Parameters = Query<Vec<(String, String)>>;

pub(super) fn router(checks: Checks) -> Router {
    let mut router = Router::new();
    for (path, kind) in [("/healthz", Kind::Live), ("/readyz", Kind::Ready)] {
        let all = get(async move |State(checks): State<Checks>, Query(parameters): Parameters| {
            let excluded: Vec<&str> = values(&parameters, "exclude").collect();
            answer(checks.report(kind, &excluded), is_verbose(&parameters))
        });
        let one =
            get(async move |State(checks): State<Checks>, Path(name): Path<String>, Query(parameters): Parameters| {
                match checks
                    .report_of(kind, &name)
                    .or_else(|| (path == format!("/{name}")).then(|| checks.report(kind, &[])))
                {
                    Some(report) => answer(report, is_verbose(&parameters)),
                    None => (StatusCode::NOT_FOUND, format!("there is no check {name:?}\n")).into_response(),
                }
            });
        router =
            router.route(path, all.clone()).route(&format!("{path}/"), all).route(&format!("{path}/{{*name}}"), one);
    }
    router.with_state(checks)
}

fn values<'a>(parameters: &'a [(String, String)], key: &str) -> impl Iterator<Item = &'a str> {
    parameters.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
}

fn is_verbose(parameters: &[(String, String)]) -> bool {
    values(parameters, "verbose").next().is_some()
}

fn answer(report: Report, verbose: bool) -> Response {
    match (report.passed, verbose) {
        (true, false) => (StatusCode::OK, "ok".to_owned()),
        (true, true) => (StatusCode::OK, report.text),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, report.text),
    }
    .into_response()
}
