//! Which room may look into which, also by way of others.

use super::graph::Graph;

/// Crates that are pure: nothing that they reach does IO.
const PURE: [&str; 3] = ["konverge-core", "konverge-text", "konverge-zopp-crypto"];

/// Crates that do IO or bring a runtime.
const IO: [&str; 11] =
    ["axum", "hyper", "kube", "mio", "rustix", "socket2", "sqlx", "tokio", "tokio-util", "tonic", "tracing-subscriber"];

/// The framework crates that stores may use; none knows Kubernetes.
const FOR_STORES: [&str; 4] = ["konverge-core", "konverge-endpoint", "konverge-text", "konverge-version"];

/// Crates that know Kubernetes.
const KUBERNETES: [&str; 4] = ["kube", "kube-client", "kube-core", "k8s-openapi"];

/// The walls that are broken, each with the way through.
pub(super) fn faults(graph: &Graph) -> Vec<String> {
    let mut faults = Vec::new();
    for (id, package) in graph.members() {
        for (dependency, way) in graph.reached(id) {
            if let Some(why) = broken(&package.name, &package.room, &dependency.name, &dependency.room) {
                faults.push(format!(
                    "{} must not reach {}: {why} ({})",
                    package.name,
                    dependency.name,
                    way.join(" → ")
                ));
            }
        }
    }
    faults
}

fn broken(package: &str, room: &str, dependency: &str, other: &str) -> Option<&'static str> {
    if PURE.contains(&package) && IO.contains(&dependency) {
        return Some("it is pure, and that does IO");
    }
    match (room, other) {
        ("crates", "stores" | "operators" | "bins") => Some("the framework knows no store and no job"),
        ("stores", "operators" | "bins") => Some("a store knows no job"),
        ("stores", "crates") if !FOR_STORES.contains(&dependency) => Some(
            "a store knows of the framework only its core, its formats of texts, its way to an endpoint and the version",
        ),
        ("crates", _) if package == "konverge-endpoint" && KUBERNETES.contains(&dependency) => {
            Some("stores use it, and they know no Kubernetes")
        }
        ("stores", _) if KUBERNETES.contains(&dependency) => Some("a store knows no Kubernetes"),
        ("operators", "operators") => Some("what two operators need moves down"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::graph::Package, *};

    #[test]
    fn walls() {
        for (package, room, dependency, other, expected) in [
            ("konverge-runtime", "crates", "konverge-core", "crates", false),
            ("konverge-runtime", "crates", "konverge-zopp-client", "stores", true),
            ("konverge-zopp-client", "stores", "konverge-core", "crates", false),
            ("konverge-zopp-client", "stores", "konverge-runtime", "crates", true),
            ("konverge-vault", "stores", "konverge-endpoint", "crates", false),
            ("konverge-endpoint", "crates", "kube", "", true),
            ("konverge-zopp-client", "stores", "kube", "", true),
            ("konverge-pull", "operators", "konverge-zopp-client", "stores", false),
            ("konverge-pull", "operators", "konverge-push", "operators", true),
            ("konverge-core", "crates", "tokio", "", true),
            ("konverge-core", "crates", "sha2", "", false),
        ] {
            let why = broken(package, room, dependency, other);
            assert_eq!(why.is_some(), expected, "{package} on {dependency}: {why:?}");
        }
    }

    #[test]
    fn a_wall_is_broken_also_by_way_of_others() {
        let package = |name: &str, room: &str, dependencies: &[&str]| {
            let dependencies = dependencies.iter().map(|&dependency| dependency.to_owned()).collect();
            let package =
                Package { name: name.to_owned(), room: room.to_owned(), mains: Vec::new(), rust: None, dependencies };
            (name.to_owned(), package)
        };
        let graph = Graph(
            [
                package("konverge-core", "crates", &["harmless"]),
                package("harmless", "", &["harmless", "tokio"]),
                package("tokio", "", &[]),
                package("konverge-runtime", "crates", &["konverge-core", "tokio"]),
            ]
            .into(),
        );
        assert_eq!(
            faults(&graph),
            ["konverge-core must not reach tokio: it is pure, and that does IO (konverge-core → harmless → tokio)"]
        );
    }
}
