//! Takes connections in: finds a seat for a new caller, or the session that a returning one belongs to.
//!
//! Lives here: [`SessionHost`], refusals, the log line of each call, waiting for the last call to end.
//! May not live here: HTTP, the call itself (`session`).

use std::sync::Arc;
use std::time::Instant;

use axum::extract::ws::WebSocket;
use futures_util::StreamExt;
use slots::units::SessionKey;
use tokio::sync::watch;
use wire::notice::EndReason;

use super::counters::SessionCounters;
use super::limits::SessionLimits;
use super::registry::{Registry, random_u128};
use super::session::Session;
use super::socket::farewell;
use crate::journal::{CallFacts, Journal};
use crate::stepper::handle::{JoinError, JoinRequest, StepperHandle};

pub use super::socket::limited;

/// All sessions of one stepping thread.
pub struct SessionHost<C> {
    stepper: StepperHandle<C>,
    limits: SessionLimits,
    counters: Arc<SessionCounters>,
    registry: Registry,
    journal: Arc<Journal>,
    open: watch::Sender<usize>,
}

/// One new call, ready to be seated.
#[derive(Debug)]
pub struct Wish<C> {
    /// The engine's call.
    pub call: C,
    /// Its seed, told to clients with `ext`.
    pub seed: u64,
    /// Whether the client asked for notices, a waiting place and a resume token.
    pub ext: bool,
    /// For the log.
    pub facts: CallFacts,
    /// The agent is not heard until the caller has spoken.
    pub caller_first: bool,
}

/// Counts one open session for as long as it lives.
struct Open<'a> {
    open: &'a watch::Sender<usize>,
    counters: &'a SessionCounters,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.counters.open.sub(1);
        self.open.send_modify(|open| *open -= 1);
    }
}

impl<C: Send + 'static> SessionHost<C> {
    /// Sessions that take their seats from `stepper`.
    pub fn new(
        stepper: StepperHandle<C>,
        limits: SessionLimits,
        counters: Arc<SessionCounters>,
        journal: Arc<Journal>,
    ) -> Self {
        Self {
            stepper,
            limits,
            counters,
            registry: Registry::default(),
            journal,
            open: watch::Sender::new(0),
        }
    }

    /// Where seats come from.
    pub fn stepper(&self) -> &StepperHandle<C> {
        &self.stepper
    }

    /// Resolves when no session is open: after a drain, when everybody has been told.
    pub async fn all_ended(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.open.subscribe().wait_for(|&open| open == 0).await;
    }

    /// Runs a new call from its upgrade to its end.
    pub async fn run(&self, socket: WebSocket, wish: Wish<C>) {
        let _open = self.count_in();
        let began = Instant::now();
        let ext = wish.ext;
        let seed = wish.seed;
        let (mut sink, mut stream) = socket.split();
        let notes = self.journal.begin(wish.facts);
        let seat = match random_u128() {
            Ok(key) => {
                let request = JoinRequest {
                    call: wish.call,
                    session: SessionKey(key),
                    generation: 0,
                    may_wait: ext,
                };
                self.stepper
                    .join(request)
                    .await
                    .map_err(|error| (refusal(error), error.to_string()))
            }
            Err(error) => Err((EndReason::EngineFault, format!("no randomness: {error}"))),
        };
        let reason = match seat {
            Ok(seat) => {
                let session = Session {
                    seat,
                    ext,
                    seed,
                    notes: &notes,
                    caller_first: wish.caller_first,
                    board: self.stepper.board(),
                    counters: &self.counters,
                    limits: &self.limits,
                    registry: &self.registry,
                };
                session.run(sink, stream).await
            }
            Err((reason, text)) => {
                notes.ended(reason, None, &text);
                farewell(&mut sink, &mut stream, ext, (reason, &text), &self.limits).await;
                reason
            }
        };
        self.counters.count_end(reason);
        let seconds = began.elapsed().as_secs_f32();
        let session = notes.session();
        tracing::info!(session, reason = reason.name(), seconds, seed, "call ended");
    }

    /// Hands a returning connection to the call that `token` was given for.
    pub async fn resume(&self, socket: WebSocket, token: &str) {
        let refused = match self.registry.claim(token) {
            Some(door) => door.try_send(socket).map_err(|error| error.into_inner()),
            None => Err(socket),
        };
        let Err(socket) = refused else {
            self.counters.connections.add(1);
            return;
        };
        let _open = self.count_in();
        let (mut sink, mut stream) = socket.split();
        let why = (
            EndReason::ResumeUnknown,
            "this call is over, or its token was used before",
        );
        farewell(&mut sink, &mut stream, true, why, &self.limits).await;
        self.counters.count_end(EndReason::ResumeUnknown);
    }

    fn count_in(&self) -> Open<'_> {
        self.counters.connections.add(1);
        self.counters.open.add(1);
        self.open.send_modify(|open| *open += 1);
        Open {
            open: &self.open,
            counters: &self.counters,
        }
    }
}

/// Why somebody was not seated, in the words of the wire.
fn refusal(error: JoinError) -> EndReason {
    match error {
        JoinError::Full { .. } => EndReason::Full,
        JoinError::Draining => EndReason::Draining,
        JoinError::AdmissionStopped { .. } | JoinError::Loading | JoinError::Busy => {
            EndReason::Late
        }
        JoinError::EngineStopped => EndReason::EngineFault,
        JoinError::Stale { .. } => EndReason::Replaced,
    }
}
