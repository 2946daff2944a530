//! A program that is about to run.

use konverge_apply::{Applier, events::EventSink};
use konverge_runtime::{
    Manager, Metrics, Queue,
    cache::{Caches, Selection},
    lease::{Elector, Leadership, TimingsError},
    object::ObjectKey,
};
use kube::Client;

use crate::{
    flags::Flags, home::Home, metrics::ObjectMetrics, operator::server::Queues, options::Options, owner_keys::OwnerKeys,
};

/// A program that is about to run, for the parts that put themselves into it.
pub struct Setup {
    /// Tasks, checks, controllers.
    pub manager: Manager,
    /// The caches that all controllers share.
    pub caches: Caches,
    /// The client that all share. Every call has a deadline and is counted. With leader election, writes are sent only while the program
    /// leads; see [`client_of_each_replica`](Self::client_of_each_replica).
    pub client: Client,
    /// Writes as the program.
    pub applier: Applier,
    /// Tells events as the program.
    pub events: EventSink,
    /// The series of the program.
    pub metrics: Metrics,
    /// The name of the program.
    pub program: &'static str,
    pub(crate) series: SharedSeries,
    pub(crate) election: Election,
    pub(crate) settings: Settings,
    pub(crate) queues: Queues,
    pub(crate) owner_keys: OwnerKeys,
}

/// The values of the command line: the options of every program, and the flags that this one declares.
pub(crate) struct Settings {
    pub(crate) options: Options,
    pub(crate) flags: Flags,
}

/// The series that parts of the program share. They are registered once.
pub(crate) struct SharedSeries {
    pub(crate) objects: ObjectMetrics,
    /// Those of sources outside, once there is one.
    #[cfg(feature = "external")]
    pub(crate) outside: Option<konverge_external::Metrics>,
    /// Those of items on servers, once there are some.
    #[cfg(feature = "remote")]
    pub(crate) remote: Option<crate::remote_objects::metrics::RemoteMetrics>,
}

/// The clients and settings of elections.
pub(crate) struct Election {
    /// A client without the gate of a lease.
    pub(crate) ungated: Client,
    /// A client whose calls are short, if there are elections.
    pub(crate) lease_client: Option<Client>,
    /// Whether the program leads, if there are elections.
    pub(crate) leadership: Option<Leadership>,
}

impl Setup {
    pub(crate) fn new(
        program: &'static str,
        manager: Manager,
        client: Client,
        events: EventSink,
        settings: Settings,
    ) -> Self {
        let metrics = manager.metrics().clone();
        metrics.register(|registry| events.register(registry));
        let series = SharedSeries {
            objects: metrics.register(ObjectMetrics::register),
            #[cfg(feature = "external")]
            outside: None,
            #[cfg(feature = "remote")]
            remote: None,
        };
        let client_of_each_replica = client.clone();
        Self {
            caches: Caches::new(client.clone(), program, metrics.caches()),
            applier: Applier::new(client.clone(), program).with_dry_run(settings.options.dry_run),
            manager,
            client,
            events,
            metrics,
            program,
            series,
            election: Election { ungated: client_of_each_replica, lease_client: None, leadership: None },
            settings,
            queues: Queues::default(),
            owner_keys: OwnerKeys::default(),
        }
    }

    /// Narrows a selection to the namespaces and labels of the command line; for the objects that the program works on.
    pub fn narrowed(&self, selection: Selection) -> Selection {
        let label_selector = both(selection.label_selector.as_deref(), self.settings.options.selector.as_deref());
        self.within(selection).with(|selection| selection.label_selector = label_selector)
    }

    /// Narrows a selection to the namespaces of the command line; for other objects that the program reads. A selection
    /// that names namespaces itself keeps them.
    pub fn within(&self, selection: Selection) -> Selection {
        if selection.namespaces.is_empty() {
            selection.with(|selection| selection.namespaces.clone_from(&self.settings.options.namespaces))
        } else {
            selection
        }
    }

    /// The settings in force.
    pub fn options(&self) -> &Options {
        &self.settings.options
    }

    /// The values of flags that the program [declares](crate::Operator::flags).
    pub fn flags<F: Send + Sync + 'static>(&self) -> Option<&F> {
        self.settings.flags.get()
    }

    /// The namespace that the program runs in: that of its lease if one was named, else the client's own.
    pub fn namespace(&self) -> &str {
        self.settings.options.lease_namespace.as_deref().unwrap_or_else(|| self.client.default_namespace())
    }

    pub(crate) fn home(&self) -> Home<'_> {
        Home {
            program: self.program,
            namespace: self.namespace(),
            #[cfg(feature = "admission")]
            webhook_url: self.settings.options.webhook.url.as_deref(),
        }
    }

    /// The client without the lease's gate, for what each replica writes whether it leads or not, such as a certificate of its own.
    pub fn client_of_each_replica(&self) -> &Client {
        &self.election.ungated
    }

    /// An elector for one controller; `None` where there are no elections.
    pub(crate) fn elector_of(&self, controller: &str) -> Result<Option<Elector>, TimingsError> {
        let Some(client) = &self.election.lease_client else { return Ok(None) };
        let mut lease = self.settings.options.lease(self.program, client.default_namespace())?;
        lease.name = format!("{}-{controller}", lease.name);
        Ok(Some(Elector::new(client.clone(), lease)))
    }

    /// Whether the program leads; `None` where there are no elections.
    pub(crate) fn leadership(&self) -> Option<&Leadership> {
        self.election.leadership.as_ref()
    }

    /// As in a program that has lost its lease.
    #[cfg(feature = "testing")]
    pub(crate) fn set_leadership(&mut self, leadership: Leadership) {
        self.election.leadership = Some(leadership);
    }

    /// The owner keys of one controller, which writes with this client. One with a lease of its own may write while the program does not lead.
    pub(crate) fn owner_keys_with(&self, client: &Client, has_own_lease: bool) -> OwnerKeys {
        if has_own_lease {
            OwnerKeys::stored(client.clone(), self.namespace(), self.program, self.settings.options.dry_run)
        } else {
            self.owner_keys.clone()
        }
    }

    pub(crate) fn show_queue(&mut self, queue: &Queue<ObjectKey>) {
        self.queues.add(queue);
    }
}

/// Whether replicas elect a leader. A dry run writes nothing, not even a lease, and so takes the work away from nobody.
pub(crate) fn elects(options: &Options) -> bool {
    options.leader_election && !options.dry_run
}

/// Returns the selector for objects that fit both selectors. An empty one, such as that of an empty variable, fits everything.
pub(crate) fn both(of_the_author: Option<&str>, of_the_operator: Option<&str>) -> Option<String> {
    let labels: Vec<_> =
        [of_the_author, of_the_operator].into_iter().flatten().filter(|labels| !labels.is_empty()).collect();
    (!labels.is_empty()).then(|| labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_narrow_each_other_and_an_empty_one_nothing() {
        for (of_the_author, of_the_operator, expected) in [
            (None, None, None),
            (Some("a"), None, Some("a")),
            (None, Some("b"), Some("b")),
            (Some("a"), Some("b=c"), Some("a,b=c")),
            (Some("a"), Some(""), Some("a")),
            (None, Some(""), None),
        ] {
            assert_eq!(both(of_the_author, of_the_operator).as_deref(), expected);
        }
    }
}
