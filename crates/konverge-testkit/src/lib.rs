//! A real Kubernetes control plane for tests, built from pinned Go modules.
