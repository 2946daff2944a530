//! One call on its way through: who makes it, what it is for, and what is put on record about it.

use std::{sync::Arc, time::Duration};

use konverge_zopp_crypto::{
    key_link::KEY_GENERATION_KEY,
    signature::PRINCIPAL_ID_KEY,
    wrap_signature::{SIGNATURE_LENGTH, WRAP_SIGNATURE_KEY},
};
use konverge_zopp_proto::method_path;
use prost::Message;
use tonic::{Code, Request, Response, Status};

use crate::{
    address::client_address,
    audit::{
        Unrecorded,
        row::{NOBODY, blank_row, client_ip, refusal},
    },
    auth::{self, Caller, Refused, Repeat},
    guesses::{self, Guess},
    limits::Reached,
    memory::Charge,
    pieces::Pieces,
    place::{Place, admitted, locate, no_environment, no_project, no_workspace},
    rbac::Role,
    reading::{self, FEW_KEYS},
    shares::Share,
    state::State,
    status::{denied, exhausted, from_store},
    store::{
        Action, AuditRow, Authority, ContentSize, EnvironmentRow, Need, PrincipalRow, ProjectRow, Scope, SecretRow,
        StoreError,
    },
    validate,
};

/// The audit record of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// That it was refused; it shows nothing secret and changes nothing.
    Lookup(Action, &'static str),
    /// That it was made: it shows a secret or hands out a key.
    Read(Action, &'static str),
    /// That it was refused; when it succeeds, the change records itself.
    Change(Action, &'static str),
}

/// A call by a verified principal.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The state that all calls share.
    pub state: Arc<State>,
    /// The actor.
    pub caller: Caller,
    /// The signature over the workspace key that the request hands over, as it came.
    pub wrap_signature: Option<Vec<u8>>,
    /// The generation of the workspace key from which the request was made, as it says.
    key_generation: Option<u32>,
    /// The content of the environment that the call is about.
    content: ContentSize,
    record: Record,
    row: AuditRow,
    /// The memory that the request and its answer take.
    charge: Option<Arc<Charge>>,
    /// Of the requests that the caller may have under way.
    _share: Option<Arc<Share>>,
}

/// The names of the environment that a request is about, if the table of calls says that there are any.
macro_rules! names {
    ($request:ident) => {
        None
    };
    ($request:ident environment) => {{
        let message = $request.get_ref();
        Some([message.workspace_name.as_str(), message.project_name.as_str(), message.environment_name.as_str()])
    }};
}

pub(crate) use names;

/// How a workspace is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Users by ownership or membership, services by holding the key.
    Member,
    /// Everybody by holding the key.
    KeyHolder,
}

impl Call {
    /// Verifies the caller of a call of the contract. With the names of an environment, [`Call::environment_with_role`] has its place without
    /// another look at the database.
    pub(crate) async fn open<M: Message>(
        state: &Arc<State>,
        request: &Request<M>,
        name: &str,
        record: Record,
        names: Option<[&str; 3]>,
    ) -> Result<Self, Status> {
        Self::open_at(state, request, &method_path(name), record, names).await
    }

    /// Verifies the caller of the call with this full path.
    pub(crate) async fn open_at<M: Message>(
        state: &Arc<State>,
        request: &Request<M>,
        method: &str,
        record: Record,
        names: Option<[&str; 3]>,
    ) -> Result<Self, Status> {
        let repeat = if matches!(record, Record::Change(..)) { Repeat::Refused } else { Repeat::Allowed };
        let (Record::Lookup(action, resource_type)
        | Record::Read(action, resource_type)
        | Record::Change(action, resource_type)) = record;
        let caller = match auth::authenticate(state, method, request, repeat, names).await {
            Ok(caller) => caller,
            Err(Refused { status, principal: Some(principal) }) => {
                let row = row_of(&principal, request, action, resource_type);
                record_limit(state, row, &status).await;
                return Err(status);
            }
            Err(Refused { status, principal: None }) => {
                if status.code() == Code::Unauthenticated {
                    record_unproven(state, request, action, &status).await;
                }
                return Err(status);
            }
        };
        let row = AuditRow { signature: caller.used, ..row_of(&caller.principal, request, action, resource_type) };
        if repeat == Repeat::Allowed
            && let Some(status) = too_many_reads(state, &caller.principal)
        {
            record_limit(state, row, &status).await;
            return Err(status);
        }
        let limit = state.store.limits().requests;
        let Some(share) = state.usage.requests.take(&caller.principal.id, limit) else {
            let reached = Reached { what: "requests of a principal at once", limit, flag: "--max-requests" };
            let status = exhausted(&reached, Some(1));
            record_limit(state, row, &status).await;
            return Err(status);
        };
        let (state, wrap_signature) = (Arc::clone(state), wrap_signature(request)?);
        let key_generation = key_generation(request)?;
        let charge = request.extensions().get::<Arc<Charge>>().cloned();
        Ok(Self {
            state,
            caller,
            wrap_signature,
            key_generation,
            content: ContentSize::default(),
            record,
            row,
            charge,
            _share: Some(Arc::new(share)),
        })
    }

    /// The same call once it is answered, for the stream that follows.
    pub(crate) fn answered(&self) -> Self {
        Self { charge: None, _share: None, ..self.clone() }
    }

    /// The row for a change to the thing of that id (or name).
    pub(crate) fn audit(&mut self, resource_id: &str) -> AuditRow {
        resource_id.clone_into(&mut self.row.resource_id);
        self.row.clone()
    }

    /// Names the thing the call is about, for the record, and adds details (JSON).
    pub(crate) fn about(&mut self, resource_id: &str, details: Option<String>) {
        resource_id.clone_into(&mut self.row.resource_id);
        self.row.details = details;
    }

    /// Ends a call that is answered with a message: takes the memory that the message takes, and closes it. The entries of a long list follow
    /// the message in pieces.
    pub(crate) async fn answer<T: Message + 'static>(
        self,
        mut result: Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let pieces = result.as_mut().ok().and_then(Pieces::take);
        let covered = match (&self.charge, &result) {
            (Some(charge), Ok(message)) => {
                charge.cover(message.encoded_len(), pieces.as_ref().map_or(0, Pieces::length))
            }
            _ => Ok(()),
        };
        let mut response = self.close(covered.and(result)).await?;
        if let Some(pieces) = pieces {
            response.extensions_mut().insert(pieces.hand_over());
        }
        Ok(response)
    }

    /// Takes the memory of a list of the environment's secrets before it is read, and waits for it.
    pub(crate) async fn reserve_list(&self, environment_id: &str) -> Result<(), Status> {
        let Some(charge) = &self.charge else { return Ok(()) };
        let key_bytes = if self.content.keys > FEW_KEYS {
            self.state.store.key_bytes(environment_id).await.map_err(from_store)?
        } else {
            0
        };
        charge.reserve(reading::of_list(&self.content, key_bytes, self.state.store.limits())).await
    }

    /// Takes the memory of one secret before it is read, and waits for it.
    pub(crate) async fn reserve_value(&self) -> Result<(), Status> {
        self.reserve(reading::of_value(&self.content, self.state.store.limits())).await
    }

    /// Takes the memory of the values that a secret has and had, before they are read, and waits for it.
    pub(crate) async fn reserve_history(&self) -> Result<(), Status> {
        self.reserve(reading::of_history(&self.content, self.state.store.limits())).await
    }

    async fn reserve(&self, bytes: u64) -> Result<(), Status> {
        match &self.charge {
            Some(charge) => charge.reserve(bytes).await,
            None => Ok(()),
        }
    }

    /// Had the environment this tag when its place was looked up?
    pub(crate) fn has_tag(&self, known: &str) -> bool {
        known == self.content.tag
    }

    /// Ends the call: records what must be recorded and turns the result into an answer.
    pub(crate) async fn close<T>(self, result: Result<T, Status>) -> Result<Response<T>, Status> {
        let recorded = match (&result, self.record) {
            (Ok(_), Record::Lookup(..) | Record::Change(..)) => None,
            (Ok(_), Record::Read(..)) => Some(self.row),
            // A limit that is hit repeatedly would fill the audit log.
            (Err(status), _)
                if status.code() == Code::ResourceExhausted
                    && !self.state.usage.reached.is_news(&self.row.principal_id, self.row.action) =>
            {
                None
            }
            (Err(status), _) => Some(refusal(self.row, status)),
        };
        if let Some(row) = recorded {
            self.state.audit.record(row).await.map_err(|Unrecorded| {
                Status::unavailable(
                    "this read cannot be recorded, and the server shows nothing off the record; try again later",
                )
            })?;
        }
        result.map(Response::new)
    }

    /// The workspace of that name, if it is there for the caller.
    pub(crate) async fn workspace(&mut self, name: &str, access: Access) -> Result<Place, Status> {
        validate::lookup("workspace name", name)?;
        let store = &self.state.store;
        let principal = &self.caller.principal;
        let workspace = match (&principal.user_id, access) {
            (Some(user_id), Access::Member) => store.workspace_of_user(name, user_id, &principal.id).await,
            _ => store.workspace_of_key_holder(name, &principal.id).await,
        };
        let workspace = workspace.map_err(from_store)?.ok_or_else(|| no_workspace(name))?;
        self.row.workspace_id = Some(workspace.id.clone());
        self.row.authority.add(match access {
            Access::Member => Need::Member(workspace.id.clone()),
            Access::KeyHolder => Need::KeyHolder(workspace.id.clone()),
        });
        self.rely_on_generation(&workspace.id);
        let scope = Scope { workspace_id: workspace.id.clone(), project_id: None, environment_id: None };
        Ok(Place { workspace, scope })
    }

    /// Makes the change depend on the caller's being in a workspace that a client named by its id.
    pub(crate) fn rely_on_membership(&mut self, workspace_id: &str) {
        self.row.authority.add(Need::Member(workspace_id.to_owned()));
        self.rely_on_generation(workspace_id);
    }

    /// Makes the change depend on the generation of the workspace's key that the request names, if it names one.
    fn rely_on_generation(&mut self, workspace_id: &str) {
        if let Some(generation) = self.key_generation {
            self.row.authority.add(Need::Generation(workspace_id.to_owned(), generation));
        }
    }

    /// The project of that name in a workspace.
    pub(crate) async fn project(&mut self, place: &mut Place, name: &str) -> Result<ProjectRow, Status> {
        validate::lookup("project name", name)?;
        let project = self
            .state
            .store
            .project(&place.workspace.id, name)
            .await
            .map_err(from_store)?
            .ok_or_else(|| no_project(name))?;
        self.row.project_id = Some(project.id.clone());
        place.scope.project_id = Some(project.id.clone());
        Ok(project)
    }

    /// The environment of that name in a project of a workspace.
    pub(crate) async fn environment(
        &mut self,
        place: &mut Place,
        project: &str,
        name: &str,
    ) -> Result<EnvironmentRow, Status> {
        validate::lookup("environment name", name)?;
        let project = self.project(place, project).await?;
        let environment = self
            .state
            .store
            .environment(&project.id, name)
            .await
            .map_err(from_store)?
            .ok_or_else(|| no_environment(name))?;
        self.row.environment_id = Some(environment.id.clone());
        place.scope.environment_id = Some(environment.id.clone());
        Ok(environment)
    }

    /// The environment of three names, if the caller has the role there. As [`Call::workspace`], [`Call::environment`] and [`Call::require`] one
    /// after the other, with one look at the database.
    pub(crate) async fn environment_with_role(
        &mut self,
        names: [&str; 3],
        role: Role,
    ) -> Result<(Place, EnvironmentRow), Status> {
        validate::lookup("workspace name", names[0])?;
        // These are refused only to a caller that sees the workspace.
        let valid =
            validate::lookup("environment name", names[2]).and_then(|()| validate::lookup("project name", names[1]));
        let bounded = if valid.is_ok() { names } else { [names[0], "", ""] };
        let located = match self.caller.place.take() {
            // It was looked up together with the caller.
            Some((names, located)) if names.each_ref().map(String::as_str) == bounded => located,
            _ => locate(&self.state.store, &self.caller.principal, bounded).await?,
        };
        if let Some(located) = &located {
            self.row.workspace_id = Some(located.workspace.id.clone());
            self.row.project_id.clone_from(&located.project_id);
            self.row.environment_id = located.environment.as_ref().map(|environment| environment.id.clone());
            valid?;
        }
        let grants = located.as_ref().map(|located| located.grants).unwrap_or_default();
        if let Some(located) = &located {
            self.content = located.content.clone();
        }
        let (place, environment) = admitted(located, names, role)?;
        self.row.authority.add(Need::Member(place.workspace.id.clone()));
        self.rely_on_generation(&place.workspace.id);
        self.row.authority.add(Need::Role(place.scope.clone(), role, grants));
        if let Some(remembered) = &self.caller.remembered {
            self.row.authority.add(Need::Restored(remembered.restored_at));
        }
        Ok((place, environment))
    }

    /// One secret of the environment that the call is about. If the place is remembered, the statement that reads depends on what is remembered.
    pub(crate) async fn secret(&self, environment_id: &str, key: &str) -> Result<Option<SecretRow>, StoreError> {
        let store = &self.state.store;
        if self.caller.remembered.is_none() {
            return store.secret(environment_id, key).await;
        }
        // The memory reserved for the value.
        let bytes = reading::largest(self.content.bytes, store.limits());
        store.secret_by(&self.row.authority, environment_id, key, bytes).await
    }

    /// Looks up anew what was remembered for the call, if that is why it failed. Then the call begins anew.
    pub(crate) async fn look_again(&mut self, error: &StoreError) -> Result<bool, Status> {
        let is_different =
            matches!(error, StoreError::RightsChanged | StoreError::Revoked(_) | StoreError::EnvironmentGone);
        if self.caller.remembered.is_none() || !is_different {
            return Ok(false);
        }
        if let Err(status) = self.caller.look_again(&self.state).await {
            if status.code() == Code::Unauthenticated {
                let AuditRow { principal_id, client_ip, action, .. } = &self.row;
                self.row = row_of_nobody(principal_id.clone(), client_ip.clone(), *action);
            }
            return Err(status);
        }
        let principal = &self.caller.principal;
        self.row.authority = Authority::of(&principal.id, principal.user_id.as_deref());
        (self.row.workspace_id, self.row.project_id, self.row.environment_id) = (None, None, None);
        Ok(true)
    }

    /// Refuses a caller whose role at the place is too low; a change is refused as well if the role is too low when it is written. A
    /// failure to find out is a failure, not a permission.
    pub(crate) async fn require(&mut self, place: &Place, role: Role) -> Result<(), Status> {
        let principal = &self.caller.principal;
        let grants = self
            .state
            .store
            .grants(&principal.id, principal.user_id.as_deref(), &place.scope)
            .await
            .map_err(from_store)?;
        if !grants.allow(role) {
            return Err(denied(role));
        }
        self.row.authority.add(Need::Role(place.scope.clone(), role, grants));
        Ok(())
    }
}

/// Lets an address make a call that nobody signs, unless it made too many of them.
pub(crate) async fn admit_open<M>(state: &State, request: &Request<M>, action: Action) -> Result<(), Status> {
    let Err(wait) = state.usage.open_calls.admit(client_address(request)) else { return Ok(()) };
    let limit = state.store.limits().open_calls;
    let reached = Reached { what: "open calls of an address within a minute", limit, flag: "--max-open-calls" };
    Err(refuse_address(state, request, &reached, wait, blank_row(action, "user")).await)
}

/// Lets an address guess a code, a passphrase or a principal, unless it guessed wrong too often.
pub(crate) async fn admit_guess<'a, M>(
    state: &'a State,
    request: &Request<M>,
    row: AuditRow,
) -> Result<Guess<'a>, Status> {
    match state.usage.guesses.admit(client_address(request)) {
        Ok(guess) => Ok(guess),
        Err(wait) => {
            let what = "wrong export codes, passphrases and logins of an address in a row";
            let reached = Reached { what, limit: guesses::BURST, flag: "of this build" };
            Err(refuse_address(state, request, &reached, wait, row).await)
        }
    }
}

/// Refuses a call that nobody signed because its address reached a limit, which ends after `wait`.
async fn refuse_address<M>(
    state: &State,
    request: &Request<M>,
    reached: &Reached,
    wait: Duration,
    row: AuditRow,
) -> Status {
    let status = exhausted(reached, Some(whole_seconds(wait)));
    let row = AuditRow { principal_id: NOBODY.into(), client_ip: client_ip(request), ..row };
    record_limit(state, row, &status).await;
    status
}

/// The refusal of a principal that read too often within a minute.
fn too_many_reads(state: &State, principal: &PrincipalRow) -> Option<Status> {
    let source = uuid::Uuid::try_parse(&principal.id).ok().map(|id| id.as_u128());
    let wait = state.usage.reads.admit_source(source).err()?;
    let limit = state.store.limits().reads;
    let reached = Reached { what: "calls of a principal that read within a minute", limit, flag: "--max-reads" };
    Some(exhausted(&reached, Some(whole_seconds(wait))))
}

/// In how many seconds the wait is over.
fn whole_seconds(wait: Duration) -> i64 {
    i64::try_from(wait.as_secs()).unwrap_or(i64::MAX).saturating_add(1)
}

/// Records that a caller, or an address for which nobody signed, reached a limit: once a minute for each action.
async fn record_limit(state: &State, row: AuditRow, status: &Status) {
    let caller = match &row.client_ip {
        Some(address) if row.principal_id == NOBODY => address,
        _ => &row.principal_id,
    };
    if state.usage.reached.is_news(caller, row.action) {
        // A refusal is never held up by its row.
        let _ = state.audit.record(refusal(row, status)).await;
    }
}

/// The row of a call by a principal that proved its identity.
fn row_of<M>(principal: &PrincipalRow, request: &Request<M>, action: Action, resource_type: &'static str) -> AuditRow {
    AuditRow {
        principal_id: principal.id.clone(),
        user_id: principal.user_id.clone(),
        client_ip: client_ip(request),
        authority: Authority::of(&principal.id, principal.user_id.as_deref()),
        ..blank_row(action, resource_type)
    }
}

/// Records a request whose signature is missing or wrong: nobody made it, in the name of the principal that it names.
async fn record_unproven<M>(state: &State, request: &Request<M>, action: Action, status: &Status) {
    let claimed = request.metadata().get(PRINCIPAL_ID_KEY).and_then(|id| id.to_str().ok());
    // Only what can be an id is worth a place in the record.
    let claimed = claimed.and_then(|id| uuid::Uuid::try_parse(id).ok()).map(|id| id.to_string());
    let row = row_of_nobody(claimed.unwrap_or_default(), client_ip(request), action);
    // A refusal is never held up by its row.
    let _ = state.audit.record(refusal(row, status)).await;
}

/// The audit row of an unauthenticated request that claims to come from a principal.
fn row_of_nobody(claimed: String, client_ip: Option<String>, action: Action) -> AuditRow {
    AuditRow { principal_id: NOBODY.into(), resource_id: claimed, client_ip, ..blank_row(action, "principal") }
}

/// The signature over the workspace key that a request hands over. Stock clients send none.
pub(crate) fn wrap_signature<M>(request: &Request<M>) -> Result<Option<Vec<u8>>, Status> {
    let Some(text) = request.metadata().get(WRAP_SIGNATURE_KEY) else { return Ok(None) };
    let mut signature = vec![0; SIGNATURE_LENGTH];
    hex::decode_to_slice(text.as_bytes(), &mut signature).map_err(|_| {
        Status::invalid_argument(format!("{WRAP_SIGNATURE_KEY} must be {} hexadecimal digits", 2 * SIGNATURE_LENGTH))
    })?;
    Ok(Some(signature))
}

/// The generation of the workspace key from which a request was made. Stock clients name none.
fn key_generation<M>(request: &Request<M>) -> Result<Option<u32>, Status> {
    let Some(text) = request.metadata().get(KEY_GENERATION_KEY) else { return Ok(None) };
    let number = text.to_str().ok().and_then(|text| text.parse().ok());
    let invalid = || Status::invalid_argument(format!("{KEY_GENERATION_KEY} must be a number"));
    number.ok_or_else(invalid).map(Some)
}
