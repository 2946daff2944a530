//! The reasons that the framework itself gives: in conditions, events and the metric `konverge_reconcile_errors_total`. Authors have
//! their own besides. Sources outside have theirs in `konverge_external_errors_total`.

/// Makes a constant of each reason, and the list of all.
macro_rules! reasons {
    ($($name:ident = $word:literal: $meaning:literal,)*) => {
        $(#[doc = concat!($meaning, ".")]
        pub const $name: &str = $word;)*

        /// All of them with their meanings, for the reference.
        pub const ALL: &[(&str, &str)] = &[$(($word, $meaning)),*];
    };
}

reasons! {
    ALTERED_BY_ADMISSION = "AlteredByAdmission":
        "An admission policy or webhook stored other values than were sent; it is tried again",
    API_SERVER_ANSWER_UNREADABLE = "ApiServerAnswerUnreadable":
        "The API server answered something that cannot be read",
    API_SERVER_BUSY = "ApiServerBusy":
        "The API server has too much to do; it is tried again when it says so",
    API_SERVER_FAILING = "ApiServerFailing":
        "The API server failed; it is tried again",
    API_SERVER_UNAUTHORIZED = "ApiServerUnauthorized":
        "The API server does not know who the operator is",
    API_SERVER_UNREACHABLE = "ApiServerUnreachable":
        "The API server did not answer",
    CHILDREN_APPLIED_TWICE = "ChildrenAppliedTwice":
        "Two sets of children were applied in one run, and each would delete the children of the other; a bug in the operator",
    CHILD_ORDER = "ChildOrder":
        "A child waits for one that the run does not add, or children wait for each other; a bug in the operator",
    CONFLICT = "Conflict":
        "Another client wrote at the same time; the run is repeated",
    EVENTS_LIMITED = "EventsLimited":
        "The object has had many events in a short time, so more are left out; its status and the operator's log have the rest",
    FAILED = "Failed":
        "The run failed, and the error's own reason is not a single word",
    FIELD_CONFLICT = "FieldConflict":
        "Another field manager owns fields of the write",
    FORBIDDEN = "Forbidden":
        "The operator's role does not allow a request",
    GONE = "Gone":
        "The object of a write was deleted, or another object has its name now",
    IMMUTABLE = "Immutable":
        "A write would change a field that cannot change",
    INPUT_OUTPUT = "InputOutput":
        "Input or output failed; it is tried again",
    INVALID_DATA = "InvalidData":
        "Data could not be converted",
    INVALID_FINALIZER = "InvalidFinalizer":
        "A finalizer that Kubernetes does not allow; a bug in the operator",
    INVALID_NAME = "InvalidName":
        "A name or namespace that Kubernetes does not allow",
    MISSING_FIELD = "MissingField":
        "The object of a write lacks a field such as its name; a bug in the operator",
    NOT_ENCODABLE = "NotEncodable":
        "The object of a write cannot be encoded as JSON; a bug in the operator",
    NOT_ESTABLISHED = "NotEstablished":
        "An installed definition is not served yet; the operator checks it again",
    NOT_FOUND = "NotFound":
        "A write refers to an object that does not exist, such as a namespace or a definition",
    NOT_LEADING = "NotLeading":
        "This process does not hold its lease, so it writes nothing; the leader will",
    NOT_OURS = "NotOurs":
        "An object has the name of a child and belongs to somebody else; it is left alone",
    NOT_SELECTED = "NotSelected":
        "An object with the operator's finalizer is being deleted, and perhaps no process selects it; change its labels so that one does",
    NOT_UNDERSTOOD = "NotUnderstood":
        "An object does not match the schema of its kind; it is left alone until somebody changes it",
    OWNER_KEY_UNAVAILABLE = "OwnerKeyUnavailable":
        "The Secret with the key that proves which children are the operator's cannot be read; it is tried again",
    OWNED_BY_ANOTHER = "OwnedByAnother":
        "The child has another owner already; it is left alone",
    PANICKED = "Panicked":
        "A bug in the operator ended the run; it is tried again",
    RECONCILED = "Reconciled":
        "The object is in its desired state",
    REJECTED = "Rejected":
        "The API server, a quota or a webhook refuses the write of an object",
    REQUEST_FAILED = "RequestFailed":
        "A request of the author's own to the API server failed",
    SECRET_IMMUTABLE = "SecretImmutable":
        "As Immutable, of a Secret",
    SECRET_REJECTED = "SecretRejected":
        "As Rejected, of a Secret; the message is kept back, because it may show a value",
    SECRET_TOO_LARGE = "SecretTooLarge":
        "As TooLarge, of a Secret",
    STORED_VERSION_MISSING = "StoredVersionMissing":
        "A definition lacks a version in which objects are stored; it is not installed",
    TERMINATING = "Terminating":
        "The object of a write is being deleted, so the write has no use any more",
    TIMED_OUT = "TimedOut":
        "The run took longer than its time limit and was given up; it is tried again",
    TOO_LARGE = "TooLarge":
        "An object is larger than the API server accepts",
    TOO_MANY_DELETIONS = "TooManyDeletions":
        "More children would be deleted than the budget allows; an annotation allows it",
    UNDECLARED = "Undeclared":
        "The run used a kind that the controller does not declare; a bug in the operator",
    UNPROVEN_CHILD = "UnprovenChild":
        "An object carries the label of a child, and nothing proves that the operator made it; it is left alone",
    WAITING_FOR_CHILDREN = "WaitingForChildren":
        "Children are not ready yet, or wait for others that are not",
    WANTED_TWICE = "WantedTwice":
        "One run adds the same child twice; a bug in the operator",
}
