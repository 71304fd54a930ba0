//! What the handlers of the HTTP API share: the store, the engine once it is there, and news for open pages.
//!
//! May not live here: handlers, SQL, anything that knows the engine's type.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::broadcast;
use wire::api::live::Changed;

use super::account::Tries;
use super::base::BasePath;
use super::error::ApiError;
use super::live::Feed;
use super::room::EngineRoom;
use super::tls::Certificates;
use super::voices::Bench;
use crate::journal::Journal;
use crate::store::Store;

/// News that may wait for a page that does not read; a page that misses some asks for its lists anew.
const NEWS_MAX: usize = 64;

/// Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    journal: Arc<Journal>,
    room: OnceLock<Arc<dyn EngineRoom>>,
    news: broadcast::Sender<Changed>,
    prepare_us_per_position: AtomicU64,
    tries: Tries,
    feed: Feed,
    voices: Bench,
    began: Instant,
    facts: DeskFacts,
}

/// Looks at the machine anew; blocks for some milliseconds.
#[derive(Clone)]
pub struct Look(pub Arc<dyn Fn() -> Vec<wire::api::system::Check> + Send + Sync>);

impl Default for Look {
    fn default() -> Self {
        Self(Arc::new(Vec::new))
    }
}

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Look")
    }
}

/// Asks the device how many bytes of its memory are in use, and how many it has; blocks for a moment.
#[derive(Clone)]
pub struct DeviceMemory(pub Arc<dyn Fn() -> Option<(u64, u64)> + Send + Sync>);

impl std::fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceMemory")
    }
}

/// What does not change while the server runs.
#[derive(Clone, Debug, Default)]
pub struct DeskFacts {
    /// Anybody may call, without a link or a token.
    pub open_calls: bool,
    /// The path below which a proxy shows this server.
    pub base: BasePath,
    /// An https address of this server.
    pub https_url: Option<String>,
    /// What answers, for people.
    pub model: String,
    /// What computes, for people.
    pub device: String,
    /// Absent on a CPU, which has no memory of its own.
    pub device_memory: Option<DeviceMemory>,
    /// Whose the model and the program are, one line each.
    pub licences: Vec<String>,
    /// Every setting, secrets as stars.
    pub settings: Vec<wire::api::system::Setting>,
    /// Looks at the machine anew, as `doctor` does.
    pub look: Look,
    /// The certificate that is shown, where there is TLS.
    pub certificates: Option<Arc<Certificates>>,
}

impl Desk {
    /// Without an engine.
    pub fn new(store: Store, journal: Arc<Journal>, facts: DeskFacts) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                journal,
                room: OnceLock::new(),
                news: broadcast::Sender::new(NEWS_MAX),
                prepare_us_per_position: AtomicU64::new(0),
                tries: Tries::default(),
                feed: Feed::default(),
                voices: Bench::default(),
                began: Instant::now(),
                facts,
            }),
        }
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// How often somebody may try to sign in.
    pub(super) fn tries(&self) -> &Tries {
        &self.inner.tries
    }

    /// What does not change while the server runs.
    pub(super) fn facts(&self) -> &DeskFacts {
        &self.inner.facts
    }

    /// Whose turn it is to make or change voices.
    pub(super) fn voices(&self) -> &Bench {
        &self.inner.voices
    }

    /// What open pages are told.
    pub(super) fn feed(&self) -> &Feed {
        &self.inner.feed
    }

    /// The server stops: streams of events end, so that nobody waits for them.
    pub fn close_pages(&self) {
        self.inner.feed.close();
    }

    /// When the server began.
    pub(super) fn began(&self) -> Instant {
        self.inner.began
    }

    /// A reference that does not keep it alive.
    pub(super) fn weak(&self) -> impl Fn() -> Option<Self> + Send + 'static {
        let inner = Arc::downgrade(&self.inner);
        move || inner.upgrade().map(|inner| Self { inner })
    }

    /// Whether anybody may call, without a link or a token.
    pub fn open_calls(&self) -> bool {
        self.inner.facts.open_calls
    }

    /// An https address of this server.
    pub fn https_url(&self) -> Option<&str> {
        self.inner.facts.https_url.as_deref()
    }

    /// Whether there is an operator's password.
    ///
    /// # Errors
    /// The store's.
    pub async fn password_set(&self) -> Result<bool, ApiError> {
        Ok(self.inner.store.password_hash().await?.is_some())
    }

    /// The engine.
    ///
    /// # Errors
    /// [`ApiError::Loading`] until it is loaded.
    pub fn room(&self) -> Result<&Arc<dyn EngineRoom>, ApiError> {
        self.inner.room.get().ok_or(ApiError::Loading)
    }

    /// Who talks now, and the pens of their sessions.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.inner.journal
    }

    /// Tells open pages that a list has changed.
    pub fn tell(&self, what: Changed) {
        // Nobody listening is fine.
        let _ = self.inner.news.send(what);
    }

    /// What reading one position of a new prompt took the last time, in microseconds; 0 before the first.
    pub fn prepare_us_per_position(&self) -> &AtomicU64 {
        &self.inner.prepare_us_per_position
    }

    /// News from now on.
    pub fn news(&self) -> broadcast::Receiver<Changed> {
        self.inner.news.subscribe()
    }

    /// The engine is there. A second one is ignored.
    pub(super) fn set_room(&self, room: Arc<dyn EngineRoom>) {
        let _ = self.inner.room.set(room);
    }
}
