//! Connections that ask nothing, or slowly: they go, and keep nobody else out.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use vivavoce::store::Store;
use vivavoce::web::connections::{ConnectionLimits, serve_within};
use vivavoce::web::{self, AppState, WebSettings};

use crate::support::{PATIENCE, Setup, TestPrepare, dial_over, within};

/// Nothing in these tests takes that long unless it is to.
const FOR_EVER: ConnectionLimits = ConnectionLimits {
    head_within: PATIENCE,
    connections_max: 1_000,
    finish_within: PATIENCE,
};

struct Door {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

fn open(state: &AppState<TestPrepare>, limits: ConnectionLimits) -> Door {
    let listener = web::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        let _ = stopped.await;
    };
    let router = web::router(state.clone());
    let served = tokio::spawn(serve_within(listener, router, limits, shutdown));
    Door {
        address,
        stop,
        served,
    }
}

async fn loading(limits: ConnectionLimits) -> Door {
    open(
        &AppState::open(WebSettings::default(), Store::in_memory().await.unwrap())
            .await
            .unwrap(),
        limits,
    )
}

impl Door {
    async fn knock(&self, words: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(words.as_bytes()).await.unwrap();
        stream
    }

    async fn is_alive(&self) -> bool {
        let url = format!("http://{}/livez", self.address);
        // A client of its own, so that no connection is used twice.
        let response = reqwest::get(url).await;
        response.is_ok_and(|response| response.status() == 200)
    }
}

/// Waits until the other side has closed, and returns what came before.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut heard = Vec::new();
    // An end and a reset are the same here.
    let _ = within("the end of a connection", stream.read_to_end(&mut heard)).await;
    String::from_utf8_lossy(&heard).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_half_a_request_line_is_closed() {
    let door = loading(ConnectionLimits {
        head_within: Duration::from_millis(100),
        ..FOR_EVER
    })
    .await;
    let halves = [
        "",
        "GET /liv",
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Half: ",
    ];
    for half in halves {
        let mut stream = door.knock(half).await;
        let heard = until_closed(&mut stream).await;
        assert!(!heard.starts_with("HTTP/1.1 200"), "{half}: {heard}");
    }
    assert!(door.is_alive().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_a_byte_now_and_then_gains_no_time() {
    let door = loading(ConnectionLimits {
        head_within: Duration::from_millis(200),
        ..FOR_EVER
    })
    .await;
    let mut stream = door.knock("GET /").await;
    let mut answer = [0; 1];
    let trickle = async {
        loop {
            match timeout(Duration::from_millis(5), stream.read(&mut answer)).await {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(_)) => {}
                Err(_) => drop(stream.write_all(b"x").await),
            }
        }
    };
    within("the trickle to be cut off", trickle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_kept_for_the_next_request_and_not_for_ever() {
    let door = loading(ConnectionLimits {
        head_within: Duration::from_millis(500),
        ..FOR_EVER
    })
    .await;
    let request = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut stream = door.knock(&request.repeat(2)).await;
    let heard = until_closed(&mut stream).await;
    assert_eq!(heard.matches("HTTP/1.1 200 OK").count(), 2, "{heard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_idle_connections_keep_nobody_out_and_end_no_call() {
    let app = Setup::echo().start().await;
    let door = open(
        &app.state,
        ConnectionLimits {
            connections_max: 8,
            ..FOR_EVER
        },
    );
    let stream = TcpStream::connect(door.address).await.unwrap();
    let mut caller = dial_over(stream, "").await.unwrap();
    caller.until_ready().await;
    let mut idle = Vec::new();
    for n in 0..50 {
        idle.push(door.knock(["", "GET /"][n % 2]).await);
    }
    for _ in 0..3 {
        assert!(door.is_alive().await);
    }
    for stream in &mut idle[..42] {
        assert_eq!(until_closed(stream).await, "");
    }
    caller.talk(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_waits_for_nobody_who_asks_nothing() {
    let door = loading(FOR_EVER).await;
    let mut idle = [door.knock("").await, door.knock("GET /l").await];
    // Both have been taken when a later one was answered.
    assert!(door.is_alive().await);
    door.stop.send(()).unwrap();
    within("the server to stop", door.served)
        .await
        .unwrap()
        .unwrap();
    for stream in &mut idle {
        assert_eq!(until_closed(stream).await, "");
    }
    assert!(TcpStream::connect(door.address).await.is_err());
}
