//! End to end: server, command line, operator and control plane together.
