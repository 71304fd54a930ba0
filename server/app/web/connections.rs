//! Connections to the port: each is served requests, and none keeps a place for asking nothing.
//!
//! Lives here: how many connections there may be, who goes when there are more, how long a request may take to come in,
//! TLS before it, the orderly end.
//! May not live here: what is answered (`routes`). A call counts here only until its upgrade; then `sessions` and the
//! number of slots bound it.
//! Start reading at [`serve_within`].

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::serve::Listener;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::tls;

/// How much a connection is granted before it is a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How long the head of a request may take to come in, counted from the end of the one before it: also how long a
    /// connection may be idle. The handshake of TLS has as much time again.
    pub head_within: Duration,
    /// Connections at a time. When there is one more, the one that has asked nothing for the longest time is closed; if
    /// all are being answered, it is the newcomer.
    pub connections_max: usize,
    /// How long running answers may take once the server stops.
    pub finish_within: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            head_within: Duration::from_secs(10),
            // Half of the 1,024 open files that most systems grant a process; the other half is for calls and the rest.
            connections_max: 512,
            finish_within: Duration::from_secs(10),
        }
    }
}

/// As [`serve`](super::serve), within other limits than the default ones.
///
/// # Errors
/// None in practice: failures to accept are retried.
pub async fn serve_within(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_connections(listener, Answers::of(router, None), limits, shutdown).await
}

/// As [`serve_within`], over TLS. Who speaks plain http to the port is led to its https address.
///
/// # Errors
/// None in practice: failures to accept are retried.
pub async fn serve_tls_within(
    listener: TcpListener,
    router: Router,
    acceptor: TlsAcceptor,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let answers = Answers::of(router, Some(acceptor));
    serve_connections(listener, answers, limits, shutdown).await
}

/// What is answered to connections of either kind.
#[derive(Clone)]
struct Answers {
    /// Over TLS, or over plain http where there is none.
    router: Router,
    /// With what speaks plain http all the same.
    tls: Option<(TlsAcceptor, Router)>,
}

impl Answers {
    fn of(router: Router, acceptor: Option<TlsAcceptor>) -> Self {
        let tls = acceptor.map(|acceptor| (acceptor, tls::plain_router(router.clone())));
        Self { router, tls }
    }
}

async fn serve_connections(
    mut listener: TcpListener,
    answers: Answers,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let crowd = Arc::new(Crowd::new(limits.connections_max));
    let (stop, stopping) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, address) = tokio::select! {
            accepted = Listener::accept(&mut listener) => accepted,
            () = &mut shutdown => break,
        };
        // Every frame leaves at once.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::warn!(%error, "TCP_NODELAY could not be set");
        }
        match crowd.join() {
            Some(guest) => {
                let one = One {
                    address,
                    guest,
                    limits,
                    stopping: stopping.clone(),
                };
                tokio::spawn(one.serve(stream, answers.clone()));
            }
            None => tracing::debug!("a connection was closed: all others are being answered"),
        }
    }
    drop((listener, stopping));
    stop.send_replace(true);
    // Each connection holds a receiver until it ends.
    stop.closed().await;
    Ok(())
}

/// The other end of a connection; among the extensions of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Of the peer, or of the proxy before it.
    pub address: SocketAddr,
    /// Whether the connection is encrypted up to here.
    pub secure: bool,
}

/// One connection, until it is over or a call.
struct One {
    address: SocketAddr,
    guest: Guest,
    limits: ConnectionLimits,
    stopping: watch::Receiver<bool>,
}

/// First byte of a record of TLS that begins a handshake. Source: RFC 8446, 5.1. No request of HTTP begins with it.
const HANDSHAKE: u8 = 22;

impl One {
    async fn serve(mut self, stream: TcpStream, answers: Answers) {
        let Some((acceptor, plain)) = answers.tls else {
            return self.answer(stream, answers.router, false).await;
        };
        let greeting = async {
            let mut first = [0];
            match stream.peek(&mut first).await {
                Ok(1) if first[0] == HANDSHAKE => {}
                Ok(1) => return Some(Err(stream)),
                _ => return None,
            }
            // Whose handshake fails has been told by an alert.
            acceptor.accept(stream).await.ok().map(Ok)
        };
        let greeted = tokio::select! {
            greeted = timeout(self.limits.head_within, greeting) => greeted.ok().flatten(),
            () = self.guest.is_shown_out() => None,
            _ = self.stopping.wait_for(|&stops| stops) => None,
        };
        match greeted {
            Some(Ok(stream)) => self.answer(stream, answers.router, true).await,
            Some(Err(stream)) => self.answer(stream, plain, false).await,
            None => {}
        }
    }

    async fn answer<S>(mut self, stream: S, router: Router, secure: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = self.address;
        let router = router.layer(Extension(Peer { address, secure }));
        let answers = TowerToHyperService::new(router);
        let guest = &self.guest;
        let service = service_fn(move |request| {
            guest.asks();
            let answer = answers.call(request);
            async move {
                let answer = answer.await;
                guest.is_answered();
                answer
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_within);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection.with_upgrades());
        // A connection that fails is over like any other, and its peer is gone or broken: there is nobody to tell.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = guest.is_shown_out() => return,
            _ = self.stopping.wait_for(|&stops| stops) => {}
        }
        if guest.is_idle() {
            return;
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(self.limits.finish_within, connection).await;
    }
}

/// All connections that are not calls.
struct Crowd {
    max: usize,
    // Locked by the tasks of connections for a few instructions; never by the tick.
    state: Mutex<CrowdState>,
}

#[derive(Default)]
struct CrowdState {
    /// Connections on which a request is being answered.
    asking: usize,
    /// Those on which none is, by their turn: the first has waited longest.
    idle: BTreeMap<u64, Arc<Notify>>,
    turns: u64,
}

/// Turn of a connection that is being answered.
const ASKING: u64 = 0;

impl CrowdState {
    fn line_up(&mut self, shown_out: Arc<Notify>) -> u64 {
        self.turns += 1;
        self.idle.insert(self.turns, shown_out);
        self.turns
    }
}

impl Crowd {
    fn new(max: usize) -> Self {
        Self {
            max,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CrowdState> {
        // Each change is whole before the lock goes, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection; `None` if all are being answered.
    fn join(self: &Arc<Self>) -> Option<Guest> {
        let mut state = self.lock();
        if state.asking + state.idle.len() >= self.max {
            let (_, longest) = state.idle.pop_first()?;
            longest.notify_one();
        }
        let shown_out = Arc::new(Notify::new());
        let turn = AtomicU64::new(state.line_up(shown_out.clone()));
        drop(state);
        Some(Guest {
            crowd: self.clone(),
            shown_out,
            turn,
        })
    }
}

/// The place of one connection; given back when dropped.
struct Guest {
    crowd: Arc<Crowd>,
    shown_out: Arc<Notify>,
    /// Written under the crowd's lock. [`ASKING`], or else a place among the idle ones, if it was not taken away.
    turn: AtomicU64,
}

impl Guest {
    fn asks(&self) {
        let mut state = self.crowd.lock();
        if state.idle.remove(&self.turn.load(Relaxed)).is_some() {
            state.asking += 1;
            self.turn.store(ASKING, Relaxed);
        }
    }

    fn is_answered(&self) {
        let mut state = self.crowd.lock();
        if self.turn.load(Relaxed) == ASKING {
            state.asking -= 1;
            let turn = state.line_up(self.shown_out.clone());
            self.turn.store(turn, Relaxed);
        }
    }

    fn is_idle(&self) -> bool {
        self.turn.load(Relaxed) != ASKING
    }

    async fn is_shown_out(&self) {
        self.shown_out.notified().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut state = self.crowd.lock();
        match self.turn.load(Relaxed) {
            ASKING => state.asking -= 1,
            turn => drop(state.idle.remove(&turn)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_out(guest: &Guest) -> bool {
        guest.is_shown_out().now_or_never().is_some()
    }

    #[test]
    fn who_has_asked_nothing_for_longest_makes_room() {
        let crowd = Arc::new(Crowd::new(3));
        let [first, second, third] = [(); 3].map(|()| crowd.join().unwrap());
        // The first one asks, so it has waited least.
        first.asks();
        first.is_answered();
        let fourth = crowd.join().unwrap();
        assert!(is_out(&second) && ![&first, &third, &fourth].into_iter().any(is_out));
        // Whoever was shown out takes nothing along, whatever it does in its last moments.
        second.asks();
        second.is_answered();
        drop(second);
        third.asks();
        let _fifth = crowd.join().unwrap();
        assert!(is_out(&first) && !is_out(&third));
    }

    #[test]
    fn nobody_is_interrupted_for_a_newcomer() {
        let crowd = Arc::new(Crowd::new(2));
        let [first, second] = [(); 2].map(|()| crowd.join().unwrap());
        first.asks();
        second.asks();
        assert!(crowd.join().is_none());
        second.is_answered();
        let third = crowd.join().unwrap();
        assert!(is_out(&second) && !is_out(&first));
        drop((first, second, third));
        let state = crowd.lock();
        assert_eq!((state.asking, state.idle.len()), (0, 0));
    }
}
