//! The export of a principal to another device, encrypted with words that the server never sees.
//!
//! A code is short, because people type it. The limits that bound guessing: a caller's address has a few misses
//! ([`GuessLimit`](crate::guesses::GuessLimit)), and a code that was guessed survives three wrong token hashes.

use konverge_zopp_proto as proto;
use tonic::{Request, Status};

use crate::{
    audit::row::{NOBODY, blank_row, client_ip},
    call::{Call, admit_guess},
    clock,
    guesses::Guess,
    state::State,
    status::from_store,
    store::{Action, AuditRow, ExportRow, NewExport, Opened, Opening, Outcome, StoreError},
    validate,
};

/// The prefix of every code.
const PREFIX: &str = "exp_";
/// The characters after it, of which there are [`CODE_LENGTH`].
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const CODE_LENGTH: usize = 8;
/// How many codes are drawn until one is free. One is, unless the random numbers are none.
const DRAWS: usize = 5;

/// Keeps an export of a principal of the caller's user, and gives the code for it.
pub(crate) async fn create(
    call: &mut Call,
    message: proto::CreatePrincipalExportRequest,
) -> Result<proto::CreatePrincipalExportResponse, Status> {
    let Some(user_id) = call.caller.principal.user_id.clone() else {
        return Err(Status::permission_denied(
            "service principals cannot be exported by themselves; use a user's principal",
        ));
    };
    let token_hash = validate::token_hash(&message.token_hash)?;
    let verification_salt = validate::salt("verification_salt", &message.verification_salt)?;
    let salt = validate::salt("salt", &message.salt)?;
    let nonce = validate::nonce("nonce", &message.nonce)?;
    let encrypted_data = validate::export(&message.encrypted_data)?;
    if message.expires_at <= clock::now() {
        return Err(Status::invalid_argument("expires_at must be in the future (Unix seconds)"));
    }
    let principal_id = call.caller.principal.id.clone();
    let audit = call.audit(&principal_id);
    for _ in 0..DRAWS {
        let export_code = draw_code()?;
        let new = NewExport {
            code: &export_code,
            token_hash,
            verification_salt: &verification_salt,
            user_id: &user_id,
            principal_id: &principal_id,
            encrypted_data,
            salt: &salt,
            nonce: &nonce,
            expires_at: message.expires_at,
        };
        match call.state.store.create_export(&new, &audit).await {
            Ok(()) => return Ok(proto::CreatePrincipalExportResponse { export_code }),
            Err(StoreError::Duplicate) => {}
            Err(error) => return Err(from_store(error)),
        }
    }
    // The code is drawn anew each time, so it is the token hash that exists.
    Err(Status::already_exists("an export with this token_hash exists; derive it with a new salt"))
}

/// Gives the salt of an export to anyone who has its code, and the rest to a caller with the right token hash.
pub(crate) async fn get(
    state: &State,
    request: &Request<proto::GetPrincipalExportRequest>,
) -> Result<proto::GetPrincipalExportResponse, Status> {
    let message = request.get_ref();
    let guess = admit(state, request, &message.export_code, Action::PrincipalExportRead).await?;
    if message.token_hash.is_empty() {
        let export = state.store.export(&message.export_code).await.map_err(from_store)?;
        let export = export.ok_or_else(not_found)?;
        guess.was_right();
        return Ok(proto::GetPrincipalExportResponse {
            verification_salt: export.verification_salt,
            expires_at: export.expires_at,
            ..Default::default()
        });
    }
    let export = open(state, request, &message.export_code, &message.token_hash, Opening::Read, guess).await?;
    Ok(proto::GetPrincipalExportResponse {
        export_id: export.id,
        verification_salt: export.verification_salt,
        encrypted_data: export.encrypted_data,
        salt: export.salt,
        nonce: export.nonce,
        expires_at: export.expires_at,
    })
}

/// Deletes an export that was imported.
pub(crate) async fn consume(
    state: &State,
    request: &Request<proto::ConsumePrincipalExportRequest>,
) -> Result<proto::Empty, Status> {
    let message = request.get_ref();
    let guess = admit(state, request, &message.export_code, Action::PrincipalExportConsume).await?;
    open(state, request, &message.export_code, &message.token_hash, Opening::Consume, guess).await?;
    Ok(proto::Empty {})
}

/// Lets a caller ask for a code, unless its address has asked for too many that there are not.
async fn admit<'a, M>(state: &'a State, request: &Request<M>, code: &str, action: Action) -> Result<Guess<'a>, Status> {
    // Nobody was ever given such a code. Clients ask for one to tell the generation of the server; that is no guess.
    if !is_code(code) {
        return Err(not_found());
    }
    admit_guess(state, request, blank_row(action, "principal_export")).await
}

async fn open<M>(
    state: &State,
    request: &Request<M>,
    code: &str,
    token_hash: &str,
    opening: Opening,
    guess: Guess<'_>,
) -> Result<ExportRow, Status> {
    let action = match opening {
        Opening::Read => Action::PrincipalExportRead,
        Opening::Consume => Action::PrincipalExportConsume,
    };
    let blank = AuditRow {
        principal_id: NOBODY.into(),
        client_ip: client_ip(request),
        ..blank_row(action, "principal_export")
    };
    let audit = |export: &ExportRow, wrong: Option<i64>| {
        let row = AuditRow { resource_id: export.id.clone(), ..blank };
        match wrong {
            // The caller is the principal: it opens what only the principal's words open.
            None => AuditRow { principal_id: export.principal_id.clone(), ..row },
            Some(left) => AuditRow { outcome: Outcome::PermissionDenied, reason: Some(wrong_hash(left)), ..row },
        }
    };
    match state.store.open_export(code, token_hash, opening, audit).await.map_err(from_store)? {
        Opened::Done(export) => {
            guess.was_right();
            Ok(export)
        }
        Opened::NotFound => Err(not_found()),
        Opened::Wrong { left } => Err(Status::permission_denied(wrong_hash(left))),
    }
}

fn wrong_hash(left: i64) -> String {
    match left {
        0 => "the passphrase is wrong for the third time; the export was deleted".into(),
        1 => "the passphrase is wrong; 1 attempt is left".into(),
        left => format!("the passphrase is wrong; {left} attempts are left"),
    }
}

fn not_found() -> Status {
    Status::not_found("export not found or expired")
}

fn is_code(text: &str) -> bool {
    text.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == CODE_LENGTH && rest.bytes().all(|byte| ALPHABET.contains(&byte)))
}

fn draw_code() -> Result<String, Status> {
    let mut code = String::from(PREFIX);
    while code.len() < PREFIX.len() + CODE_LENGTH {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| {
            tracing::error!(%error, "the operating system gave no random bytes");
            Status::internal("the server could not complete the request; its log says why")
        })?;
        // 252 is the last multiple of 36 in a byte: each character is equally likely.
        let usable = random.into_iter().filter(|byte| *byte < 252);
        let missing = PREFIX.len() + CODE_LENGTH - code.len();
        code.extend(usable.map(|byte| char::from(ALPHABET[usize::from(byte % 36)])).take(missing));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_of_the_form_that_is_looked_up() {
        let codes: std::collections::HashSet<String> = (0..100).map(|_| draw_code().unwrap()).collect();
        assert_eq!(codes.len(), 100);
        assert!(codes.iter().all(|code| is_code(code)), "{codes:?}");
        for other in ["", "exp_", "exp_ABCDEFGH", "exp_abcdefg", "exp_abcdefghi", "abcdefgh", "exp_abcdefg\u{e9}"] {
            assert!(!is_code(other), "{other:?}");
        }
    }
}
