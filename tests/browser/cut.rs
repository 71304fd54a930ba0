//! A line between browser and server that can be cut, or left standing dead.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A port of its own that leads to another.
pub struct Line {
    pub url: String,
    state: watch::Sender<State>,
    opened: Arc<AtomicU64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// What is open ends, what is new ends at once.
    Cut,
    /// Connections before this one carry nothing, and do not end either.
    Stalled {
        before: u64,
    },
}

impl Line {
    pub async fn to(url: &str) -> Self {
        let there: SocketAddr = url
            .trim_start_matches("http://")
            .parse()
            .expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let here = listener.local_addr().expect("it is bound");
        let (state, seen) = watch::channel(State::Whole);
        let opened = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&opened);
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let number = counter.fetch_add(1, SeqCst);
                tokio::spawn(carry(caller, there, number, seen.clone()));
            }
        });
        Self {
            url: format!("http://{here}"),
            state,
            opened,
        }
    }

    /// From now on nothing comes through.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// What is open now carries nothing from now on; what is opened later is whole.
    pub fn stall(&self) {
        let before = self.opened.load(SeqCst);
        self.state.send_replace(State::Stalled { before });
    }

    /// Everything comes through, also what a stalled connection held back.
    pub fn mend(&self) {
        self.state.send_replace(State::Whole);
    }
}

/// Carries bytes until either side ends or the line is cut.
async fn carry(
    caller: TcpStream,
    there: SocketAddr,
    number: u64,
    mut state: watch::Receiver<State>,
) {
    if *state.borrow() == State::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(there).await else {
        return;
    };
    let (from_caller, to_caller) = caller.into_split();
    let (from_server, to_server) = server.into_split();
    let up = pour(from_caller, to_server, number, state.clone());
    let down = pour(from_server, to_caller, number, state.clone());
    tokio::select! {
        _ = async { tokio::join!(up, down) } => {}
        _ = state.wait_for(|&state| state == State::Cut) => {}
    }
}

async fn pour(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: u64,
    mut state: watch::Receiver<State>,
) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let carries =
            |state: &State| !matches!(state, State::Stalled { before } if number < *before);
        if state.wait_for(carries).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
