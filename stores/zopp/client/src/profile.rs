//! Which generation a server is of. Nothing in its answers says so; but the first generation does not know
//! `GetPrincipalExport`, and the second answers `NOT_FOUND` to a code nobody was given.
//!
//! That answer is not authenticated. It is never a permission to speak the first generation, whose signature authorises every call for a
//! minute: a server, or anybody on the way to it, would obtain one by answering `UNIMPLEMENTED`.

use bytes::Bytes;
use konverge_zopp_crypto::Profile;
use konverge_zopp_proto::{GetPrincipalExportRequest, GetPrincipalExportResponse};
use prost::Message;
use tonic::Code;

use crate::{
    connection::{Connection, Rpc},
    error::CallError,
};

const PROBE: Rpc = Rpc { name: "GetPrincipalExport", path: "/zopp.ZoppService/GetPrincipalExport" };

impl Connection {
    /// Returns the server's generation: as configured, or as remembered, or as it answers now. A server that answers like one of the first
    /// generation, which was not requested, is an error.
    pub async fn profile(&self) -> Result<Profile, CallError> {
        if let Some(known) = self.known_profile() {
            return Ok(known);
        }
        let request = GetPrincipalExportRequest {
            export_code: format!("exp_{}", uuid::Uuid::new_v4().simple()),
            token_hash: String::new(),
        };
        let answer: Result<GetPrincipalExportResponse, _> =
            self.unary(PROBE, Bytes::from(request.encode_to_vec()), None).await;
        let profile = match answer {
            Ok(_) => Profile::V2,
            Err(error) => profile_from(error)?,
        };
        if profile == Profile::V1 {
            return Err(CallError::FirstGeneration { rpc: PROBE.name, server: self.server().into() });
        }
        tracing::debug!(server = self.server(), ?profile, "learnt the server's generation");
        self.trust().remember_generation(profile);
        Ok(profile)
    }
}

/// Only the server's own refusal counts. A proxy's 404 also amounts to `UNIMPLEMENTED`, and says nothing of the server behind it.
fn profile_from(error: CallError) -> Result<Profile, CallError> {
    match (&error, error.code()) {
        (CallError::Refused { .. }, Code::Unimplemented) => Ok(Profile::V1),
        (CallError::Refused { .. }, Code::NotFound | Code::InvalidArgument | Code::PermissionDenied) => Ok(Profile::V2),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tonic::Status;

    use super::*;

    fn answer(status: Status) -> Result<Profile, Code> {
        profile_from(CallError::from_status(PROBE.name, &Arc::from("http://s"), status)).map_err(|error| error.code())
    }

    #[test]
    fn the_servers_own_answer_decides() {
        assert_eq!(answer(Status::unimplemented("")), Ok(Profile::V1));
        assert_eq!(answer(Status::not_found("no such export")), Ok(Profile::V2));
        assert_eq!(answer(Status::unavailable("shutting down")), Err(Code::Unavailable));
    }

    #[test]
    fn a_proxys_404_does_not() {
        let status = Status::unimplemented("grpc-status header missing, mapped from HTTP status code 404");
        assert_eq!(answer(status), Err(Code::Unimplemented));
    }
}
