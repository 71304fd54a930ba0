//! Who talks now, for pages and for operators who listen in or hang up. Sessions write, everybody else reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, broadcast};

/// Frames that may wait for somebody who listens in.
const TAP_FRAMES_MAX: usize = 25;
/// Characters of the agent's last words.
pub const WORDS_CHARS_MAX: usize = 120;
/// Row of a session that has none.
const NO_ROW: u32 = u32::MAX;

/// All sessions that run.
#[derive(Debug, Default)]
pub struct LiveCalls {
    // Locked for a look-up or a change of the map; never by the tick.
    calls: Mutex<BTreeMap<i64, Arc<LiveCall>>>,
}

/// One session that runs.
#[derive(Debug)]
pub struct LiveCall {
    /// Its number in the log.
    pub session: i64,
    /// As in the log.
    pub caller: String,
    /// Name of the persona.
    pub persona: String,
    /// Name of the voice.
    pub voice: String,
    pub(super) row: AtomicU32,
    pub(super) live_at_ms: AtomicI64,
    pub(super) caller_level: AtomicU8,
    pub(super) agent_level: AtomicU8,
    pub(super) deficit: AtomicU32,
    pub(super) drops: AtomicU32,
    pub(super) mic_wait_us: AtomicU32,
    pub(super) recorded: AtomicBool,
    words: Mutex<VecDeque<char>>,
    hang_up: Notify,
    tap: broadcast::Sender<Arc<[i16]>>,
}

impl LiveCalls {
    /// The session of this number, while it runs.
    pub fn get(&self, session: i64) -> Option<Arc<LiveCall>> {
        self.lock().get(&session).cloned()
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<Arc<LiveCall>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn add(&self, call: Arc<LiveCall>) {
        self.lock().insert(call.session, call);
    }

    pub(super) fn remove(&self, session: i64) {
        self.lock().remove(&session);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Arc<LiveCall>>> {
        // Each change is one call of the map.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveCall {
    pub(super) fn new(session: i64, caller: &str, persona: &str, voice: &str) -> Self {
        Self {
            session,
            caller: caller.to_owned(),
            persona: persona.to_owned(),
            voice: voice.to_owned(),
            row: AtomicU32::new(NO_ROW),
            live_at_ms: AtomicI64::new(0),
            caller_level: AtomicU8::new(0),
            agent_level: AtomicU8::new(0),
            deficit: AtomicU32::new(0),
            drops: AtomicU32::new(0),
            mic_wait_us: AtomicU32::new(0),
            recorded: AtomicBool::new(false),
            words: Mutex::default(),
            hang_up: Notify::new(),
            tap: broadcast::Sender::new(TAP_FRAMES_MAX),
        }
    }

    /// The slot it holds.
    pub fn row(&self) -> Option<usize> {
        let row = self.row.load(Relaxed);
        (row != NO_ROW).then_some(row as usize)
    }

    /// Unix milliseconds of its ready byte.
    pub fn live_at_ms(&self) -> Option<i64> {
        let at_ms = self.live_at_ms.load(Relaxed);
        (at_ms != 0).then_some(at_ms)
    }

    /// Loudness of the newest frame of caller and agent.
    pub fn levels(&self) -> (u8, u8) {
        (
            self.caller_level.load(Relaxed),
            self.agent_level.load(Relaxed),
        )
    }

    /// Frames due and not delivered.
    pub fn deficit(&self) -> u32 {
        self.deficit.load(Relaxed)
    }

    /// Frames of the caller that were dropped.
    pub fn drops(&self) -> u32 {
        self.drops.load(Relaxed)
    }

    /// How long its last frame waited for the tick, in microseconds.
    pub fn mic_wait_us(&self) -> u32 {
        self.mic_wait_us.load(Relaxed)
    }

    /// Whether it is being recorded.
    pub fn recorded(&self) -> bool {
        self.recorded.load(Relaxed)
    }

    /// The last words of the agent.
    pub fn words(&self) -> String {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.iter().collect()
    }

    /// Ends it from outside.
    pub fn hang_up(&self) {
        // Kept for a session that is not waiting at this moment.
        self.hang_up.notify_one();
    }

    /// Resolves when it is to be ended from outside.
    pub async fn hung_up(&self) {
        self.hang_up.notified().await;
    }

    /// What is said from now on: interleaved stereo at 24 kHz, caller left, agent right, one frame each.
    pub fn listen_in(&self) -> broadcast::Receiver<Arc<[i16]>> {
        self.tap.subscribe()
    }

    /// How many listen in.
    pub fn listeners(&self) -> u32 {
        self.tap.receiver_count() as u32
    }

    pub(super) fn say(&self, text: &str) {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend(text.chars());
        let excess = words.len().saturating_sub(WORDS_CHARS_MAX);
        words.drain(..excess);
    }

    pub(super) fn let_hear(&self, frame: Arc<[i16]>) {
        // Nobody listens any more: fine.
        let _ = self.tap.send(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_words_are_shown() {
        let call = LiveCall::new(1, "c", "p", "v");
        call.say(&"é".repeat(WORDS_CHARS_MAX));
        call.say(" end");
        let words = call.words();
        assert_eq!(words.chars().count(), WORDS_CHARS_MAX);
        assert!(words.ends_with("é end"));
    }
}
