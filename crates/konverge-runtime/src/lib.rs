//! The engine: manager, work queue, controllers, metadata watches, leases, health, metrics, shutdown.
