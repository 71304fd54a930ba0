//! What every handler can reach, and its settings. The engine comes later than the port.
//!
//! May not live here: handlers.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use slots::call::PrepareCall;

use super::access::Access;
use super::cors::Origins;
use super::desk::{Desk, DeskFacts};
use super::live;
use super::room::Room;
use crate::journal::Journal;
use crate::sessions::counters::SessionCounters;
use crate::sessions::host::SessionHost;
use crate::sessions::limits::SessionLimits;
use crate::stepper::handle::StepperHandle;
use crate::store::{Store, StoreError};

/// How the web room behaves.
#[derive(Clone, Debug)]
pub struct WebSettings {
    /// Who is let in.
    pub access: Access,
    /// Anybody may call, without a link or a token.
    pub open_calls: bool,
    /// Other sites whose pages may ask.
    pub origins: Origins,
    /// Limits of sessions.
    pub limits: SessionLimits,
    /// Folder for recordings; without one nothing is recorded.
    pub recordings: Option<PathBuf>,
    /// What pages show of this server.
    pub facts: DeskFacts,
    /// A tick older than this means that the engine hangs: `/livez` and `/readyz` go red.
    pub watchdog: Duration,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            access: Access::Loopback,
            open_calls: false,
            origins: Origins::default(),
            recordings: None,
            facts: DeskFacts::default(),
            limits: SessionLimits::default(),
            watchdog: Duration::from_secs(20),
        }
    }
}

/// Shared by all handlers; cheap to clone.
pub struct AppState<P: PrepareCall> {
    inner: Arc<Inner<P>>,
}

struct Inner<P: PrepareCall> {
    settings: WebSettings,
    counters: Arc<SessionCounters>,
    desk: Desk,
    loaded: OnceLock<Loaded<P>>,
}

/// What there is once the engine is loaded.
pub(super) struct Loaded<P: PrepareCall> {
    pub(super) host: Arc<SessionHost<P::Call>>,
    pub(super) prepare: Arc<P>,
}

/// [`AppState::set_loaded`] was called before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an engine is loaded already")]
pub struct AlreadyLoaded;

impl<P: PrepareCall> Clone for AppState<P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<P: PrepareCall> AppState<P> {
    /// A state without an engine: the port can open, and everything that needs the engine says that it is loading.
    ///
    /// # Errors
    /// The log of sessions in `store` cannot be read.
    pub async fn open(settings: WebSettings, store: Store) -> Result<Self, StoreError> {
        let facts = DeskFacts {
            open_calls: settings.open_calls,
            ..settings.facts.clone()
        };
        let journal = Journal::start(store.clone(), settings.recordings.clone()).await?;
        let app = Self {
            inner: Arc::new(Inner {
                settings,
                counters: Arc::default(),
                desk: Desk::new(store, journal, facts),
                loaded: OnceLock::new(),
            }),
        };
        tokio::spawn(live::sample(app.desk().weak()));
        Ok(app)
    }

    /// The engine is there: from now on callers are taken.
    ///
    /// # Errors
    /// [`AlreadyLoaded`]: it was there before; nothing changes.
    pub fn set_loaded(
        &self,
        stepper: StepperHandle<P::Call>,
        prepare: Arc<P>,
    ) -> Result<(), AlreadyLoaded> {
        let host = SessionHost::new(
            stepper,
            self.inner.settings.limits,
            self.inner.counters.clone(),
            self.inner.desk.journal().clone(),
        );
        let room = Room::new(prepare.clone(), host.stepper().clone());
        self.inner.desk.set_room(Arc::new(room));
        let loaded = Loaded {
            host: Arc::new(host),
            prepare,
        };
        self.inner.loaded.set(loaded).map_err(|_| AlreadyLoaded)
    }

    /// Resolves when no caller is connected any more, each having been told why. To be awaited after draining or
    /// stopping the stepper, before the process ends.
    pub async fn calls_ended(&self) {
        if let Some(loaded) = self.loaded() {
            loaded.host.all_ended().await;
        }
    }

    /// What the handlers of the HTTP API share.
    pub fn desk(&self) -> &Desk {
        &self.inner.desk
    }

    pub(super) fn loaded(&self) -> Option<&Loaded<P>> {
        self.inner.loaded.get()
    }

    pub(super) fn settings(&self) -> &WebSettings {
        &self.inner.settings
    }

    pub(super) fn counters(&self) -> &SessionCounters {
        &self.inner.counters
    }
}
