//! HTTP: routes, who is let in, TLS, health, metrics, the embedded page, and the upgrade of `/api/chat`.
//!
//! Lives here: everything that knows of requests and statuses.
//! May not live here: what happens on a socket after its upgrade (`sessions`), names of metrics (`telemetry`).
//! Start reading at [`routes::router`].

pub mod access;
pub mod api;
pub mod base;
pub mod body;
pub mod connections;
pub mod cors;
pub mod desk;
pub mod error;
pub mod identity;
pub mod room;
pub mod routes;
pub mod state;
pub mod tls;

mod account;
mod assets;
mod chat;
mod health;
mod layers;
mod live;
mod personas;
mod rehearsal;
mod sessions;
mod system;
mod talk;
mod tokens;
mod voices;
mod wav;

pub(crate) use account::{check_password, password_shall_be, set_password};
pub use routes::router;
pub use state::{AppState, WebSettings};
pub use voices::load_voices;

use std::io;
use std::net::SocketAddr;

use axum::Router;
use connections::{ConnectionLimits, serve_tls_within, serve_within};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

/// Bytes the system may hold for a peer that does not read. At 8 kB/s this is a few seconds of audio; with the
/// system's own choice it would be minutes, and nobody would notice that the peer stopped reading.
pub const SEND_BUFFER_BYTES: u32 = 64 * 1024;
/// Connections the system holds until they are accepted.
const BACKLOG: u32 = 1_024;

/// Opens the port, with sockets made for audio: little is buffered for a peer that does not read.
///
/// # Errors
/// The system's, mostly that the address is in use.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restart must not wait for old connections to fade. On Windows it would let two servers share a port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves `router` until `shutdown` resolves; then takes no new connections, closes those that wait for a request, and
/// returns when running requests are answered. Upgraded sockets are not waited for, see [`AppState::calls_ended`].
/// Every frame leaves at once (TCP_NODELAY).
///
/// # Errors
/// None in practice: failures to accept are retried.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_within(listener, router, ConnectionLimits::default(), shutdown).await
}

/// As [`serve`], over TLS.
///
/// # Errors
/// None in practice: failures to accept are retried.
pub async fn serve_tls(
    listener: TcpListener,
    router: Router,
    acceptor: TlsAcceptor,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_tls_within(
        listener,
        router,
        acceptor,
        ConnectionLimits::default(),
        shutdown,
    )
    .await
}
