//! Pull: zopp environments into Kubernetes Secrets.
