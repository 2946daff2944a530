//! The zopp server: storage, permissions, gRPC service.
