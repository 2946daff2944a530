//! Roles on the wire.

use konverge_zopp_proto as proto;
use tonic::Status;

use crate::rbac::Role;

/// Returns a role as the wire has it.
pub(super) const fn to_wire(role: Role) -> proto::Role {
    match role {
        Role::Admin => proto::Role::Admin,
        Role::Write => proto::Role::Write,
        Role::Read => proto::Role::Read,
    }
}

/// Returns the role that a request names.
pub(super) fn from_wire(role: i32) -> Result<Role, Status> {
    match proto::Role::try_from(role) {
        Ok(proto::Role::Admin) => Ok(Role::Admin),
        Ok(proto::Role::Write) => Ok(Role::Write),
        Ok(proto::Role::Read) => Ok(Role::Read),
        Ok(proto::Role::Unspecified) | Err(_) => Err(Status::invalid_argument("role must be ADMIN, WRITE or READ")),
    }
}
