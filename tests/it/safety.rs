//! TLS, other sites that are let in, the first password: the port itself, and the program as it is started.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Method, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::client_async;
use vivavoce::store::Store;
use vivavoce::web::connections::{ConnectionLimits, serve_tls_within};
use vivavoce::web::tls::{Certificates, Origin};
use vivavoce::web::{self, AppState, WebSettings};

use crate::program::Home;
use crate::support::{PATIENCE, Setup, TestPrepare, listen, within};

/// A port with TLS and a certificate of its own.
struct Door {
    address: SocketAddr,
    folder: tempfile::TempDir,
    certificates: Arc<Certificates>,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

fn origin(folder: &Path, name: &str) -> Origin {
    Origin::SelfSigned {
        folder: folder.to_owned(),
        names: vec!["localhost".to_owned(), name.to_owned()],
    }
}

fn open(state: &AppState<TestPrepare>, limits: ConnectionLimits) -> Door {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::open(origin(folder.path(), "127.0.0.1")).unwrap();
    let listener = web::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        let _ = stopped.await;
    };
    let acceptor = certificates.acceptor().unwrap();
    let router = web::router(state.clone());
    let served = tokio::spawn(serve_tls_within(
        listener, router, acceptor, limits, shutdown,
    ));
    Door {
        address,
        folder,
        certificates,
        stop,
        served,
    }
}

async fn empty() -> AppState<TestPrepare> {
    let store = Store::in_memory().await.unwrap();
    AppState::open(WebSettings::default(), store).await.unwrap()
}

impl Door {
    fn pem(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("self-signed.pem")).unwrap()
    }

    /// A client that trusts this certificate and no other, and follows no redirects.
    fn client(&self) -> Client {
        let own = Certificate::from_pem(&self.pem()).unwrap();
        Client::builder()
            .tls_built_in_root_certs(false)
            .add_root_certificate(own)
            .redirect(Policy::none())
            .build()
            .unwrap()
    }

    fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://localhost:{}{path}", self.address.port())
    }

    async fn get(&self, scheme: &str, path: &str) -> Response {
        let request = self.client().get(self.url(scheme, path));
        within("an answer", request.send()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_the_page_is_secure_and_its_cookie_stays_on_it() {
    let door = open(&empty().await, ConnectionLimits::default());
    let account: Value = door
        .get("https", "/api/account")
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(account["secure"], true);
    let set = door
        .client()
        .put(door.url("https", "/api/account/password"))
        .json(&json!({"new": "correct horse"}));
    let set = set.send().await.unwrap();
    assert_eq!(set.status(), 200);
    let cookie = set.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_to_a_port_with_tls_is_led_to_https() {
    let door = open(&empty().await, ConnectionLimits::default());
    let page = door.get("http", "/talk?x=1").await;
    assert_eq!(page.status(), 307);
    assert_eq!(
        page.headers()["location"].to_str().unwrap(),
        door.url("https", "/talk?x=1")
    );
    let change = door.client().post(door.url("http", "/api/account/sign-in"));
    let change = change.json(&json!({"password": "x"})).send().await.unwrap();
    assert_eq!(change.status(), 400);
    let body: Value = change.json().await.unwrap();
    assert_eq!(body["error"]["code"], "tls_needed");
    // Whoever watches over a container asks from inside it.
    assert_eq!(door.get("http", "/livez").await.status(), 200);
    assert_eq!(door.get("http", "/metrics").await.status(), 307);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_works_over_tls() {
    let app = Setup::echo().start().await;
    let door = open(&app.state, ConnectionLimits::default());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&door.pem()).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(door.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await.unwrap();
    let (mut socket, _) = client_async(door.url("wss", "/api/chat"), stream)
        .await
        .unwrap();
    let ready = async {
        loop {
            let message = socket.next().await.unwrap().unwrap();
            if message.is_binary() && message.into_data()[0] == 0 {
                return;
            }
        }
    };
    within("the call to be live", ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_shown_without_a_restart() {
    let door = open(&empty().await, ConnectionLimits::default());
    let old = door.client();
    let url = door.url("https", "/livez");
    assert_eq!(old.get(&url).send().await.unwrap().status(), 200);
    // Made anew, because it lacks a name.
    Certificates::open(origin(door.folder.path(), "box.example")).unwrap();
    let without_127 = door.certificates.state();
    door.certificates.look_again();
    assert_ne!(door.certificates.state(), without_127);
    // Connections that are open go on; a new one is shown the new certificate, which the old client does not know.
    assert_eq!(old.get(&url).send().await.unwrap().status(), 200);
    let stranger = Client::builder()
        .tls_built_in_root_certs(false)
        .build()
        .unwrap();
    assert!(stranger.get(&url).send().await.is_err());
    assert_eq!(door.client().get(&url).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_finish_the_handshake_is_let_go() {
    let limits = ConnectionLimits {
        head_within: Duration::from_millis(100),
        ..ConnectionLimits::default()
    };
    let door = open(&empty().await, limits);
    for words in [&b""[..], &[22, 3, 1], &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]] {
        let mut stream = TcpStream::connect(door.address).await.unwrap();
        stream.write_all(words).await.unwrap();
        let mut heard = Vec::new();
        let _ = within("the end", stream.read_to_end(&mut heard)).await;
        assert!(!heard.starts_with(b"HTTP"), "{heard:?}");
    }
    // The server ends although somebody is in the middle of a handshake.
    let door = open(
        &empty().await,
        ConnectionLimits {
            head_within: PATIENCE * 2,
            ..ConnectionLimits::default()
        },
    );
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    stream.write_all(&[22, 3, 1]).await.unwrap();
    let _ = door.stop.send(());
    within("the server's end", door.served)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_front_end_elsewhere_is_let_in_only_when_it_is_named() {
    const DESK: &str = "https://desk.example";
    let settings = |origins: &str| WebSettings {
        origins: origins.parse().unwrap(),
        ..WebSettings::default()
    };
    for (origins, is_let_in) in [("none", false), (DESK, true)] {
        let store = Store::in_memory().await.unwrap();
        let state = AppState::open(settings(origins), store).await.unwrap();
        let (address, _stop) = listen(&state);
        let url = |path: &str| format!("http://127.0.0.1:{}{path}", address.port());
        let client = Client::new();
        let ask = async |method: Method, path: &str, origin: &str| {
            let asked = client.request(method, url(path)).header("origin", origin);
            let asked = asked.header("access-control-request-method", "PUT");
            asked.send().await.unwrap()
        };
        let told = |response: &Response| {
            let value = response.headers().get("access-control-allow-origin");
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let reading = ask(Method::GET, "/api/personas", DESK).await;
        let preflight = ask(Method::OPTIONS, "/api/personas/1", DESK).await;
        let stranger = ask(Method::GET, "/api/personas", "https://evil.example").await;
        assert_eq!((stranger.status().as_u16(), told(&stranger)), (403, None));
        match is_let_in {
            true => {
                assert_eq!(reading.status(), 200);
                assert_eq!(told(&reading).as_deref(), Some(DESK));
                assert_eq!(reading.headers()["vary"], "origin");
                assert_eq!(preflight.status(), 204);
                assert_eq!(told(&preflight).as_deref(), Some(DESK));
                let headers = &preflight.headers()["access-control-allow-headers"];
                assert!(headers.to_str().unwrap().contains("authorization"));
            }
            false => {
                assert_eq!((reading.status().as_u16(), told(&reading)), (403, None));
                assert_eq!((preflight.status().as_u16(), told(&preflight)), (403, None));
            }
        }
    }
}

/// What the program says until it listens and has said the rest of it, or ends.
fn words(home: &Home, variables: &[(&str, &str)], args: &[&str]) -> (Vec<String>, Option<i32>) {
    let fixed = ["serve", "--device", "cpu", "--slots", "1"];
    let mut server = home.spawn_with(variables, &[&fixed, args].concat());
    let log = BufReader::new(server.stderr.take().expect("it is piped"));
    let mut said = Vec::new();
    for line in log.lines() {
        let line = line.expect("the log is UTF-8");
        let is_ready = line.contains(" ready ");
        said.push(line);
        if is_ready {
            let _ = server.kill();
        }
    }
    (said, server.wait().expect("it ends").code())
}

#[test]
fn the_first_start_for_other_machines_prints_a_password_once() {
    let home = Home::new();
    let args = ["--listen", "0.0.0.0:0"];
    let password = |said: &[String]| {
        let line = said.iter().find(|line| line.contains("password is "))?;
        assert!(line.contains("sign in at http://"), "{line}");
        Some(
            line.split("password is ")
                .nth(1)?
                .split(' ')
                .next()?
                .to_owned(),
        )
    };
    let (said, _) = words(&home, &[], &args);
    let first = password(&said).expect("a password");
    assert_eq!(first.len(), 20, "{first}");
    let (said, _) = words(&home, &[], &args);
    assert_eq!(password(&said), None);
    let (said, _) = words(&Home::new(), &[], &["--listen", "127.0.0.1:0"]);
    assert_eq!(password(&said), None);
    let (said, _) = words(
        &Home::new(),
        &[("VIVAVOCE_PASSWORD", "from outside")],
        &args,
    );
    assert_eq!(password(&said), None);
    assert!(
        !said.iter().any(|line| line.contains("from outside")),
        "{said:?}"
    );
    let (said, code) = words(&Home::new(), &[("VIVAVOCE_PASSWORD", "short")], &args);
    assert_eq!(code, Some(1));
    assert!(
        said.last()
            .is_some_and(|line| line.contains("VIVAVOCE_PASSWORD")),
        "{said:?}"
    );
}

#[test]
fn the_program_serves_its_own_certificate_and_refuses_broken_files() {
    let home = Home::new();
    let own = ["--listen", "127.0.0.1:0", "--tls", "self-signed"];
    let (said, _) = words(&home, &[], &own);
    let has = |words: &str| said.iter().any(|line| line.contains(words));
    assert!(
        has("listening on https://127.0.0.1:") && has("self-signed"),
        "{said:?}"
    );
    let file = home.data().join("tls/self-signed.pem");
    assert!(file.is_file());
    let file = file.to_str().expect("plain path");
    let files = format!("{file},{file}");
    let (said, _) = words(&home, &[], &["--listen", "127.0.0.1:0", "--tls", &files]);
    assert!(
        said.iter()
            .any(|line| line.contains("listening on https://")),
        "{said:?}"
    );
    let (said, code) = words(
        &home,
        &[],
        &["--listen", "127.0.0.1:0", "--tls", "no.pem,no.pem"],
    );
    assert_eq!(code, Some(1));
    assert!(
        said.last().is_some_and(|line| line.contains("no.pem")),
        "{said:?}"
    );
    let wrong = home.run(&["serve", "--tls", "on"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.complaint().contains("self-signed"), "{wrong:?}");
}

#[test]
fn doctor_says_who_is_let_in_and_over_what() {
    let home = Home::new();
    let look = |args: &[&str]| {
        let finished = home.run(&[&["doctor", "--json", "--device", "cpu"][..], args].concat());
        let report: Value = serde_json::from_str(&finished.stdout).expect("doctor prints JSON");
        let state = |name: &str| {
            let checks = report["checks"].as_array().expect("a list");
            let check = checks.iter().find(|check| check["name"] == name);
            check.expect("it is looked at")["state"]
                .as_str()
                .expect("text")
                .to_owned()
        };
        ["password", "tls", "microphone"].map(state)
    };
    let cases: [(&[&str], [&str; 3]); 6] = [
        (&["--listen", "127.0.0.1:0"], ["ok", "ok", "ok"]),
        (&["--listen", "0.0.0.0:0"], ["note", "note", "note"]),
        (
            &["--listen", "0.0.0.0:0", "--tls", "self-signed"],
            ["note", "ok", "ok"],
        ),
        (
            &["--listen", "0.0.0.0:0", "--tls", "no.pem,no.pem"],
            ["note", "fail", "ok"],
        ),
        (
            &["--listen", "127.0.0.1:0", "--password-file", "none"],
            ["fail", "ok", "ok"],
        ),
        (
            &["--listen", "127.0.0.1:0", "--tls", "off"],
            ["ok", "ok", "ok"],
        ),
    ];
    for (args, expected) in cases {
        assert_eq!(look(args), expected, "{args:?}");
    }
    assert!(!home.data().join("tls").exists(), "looking makes nothing");
}
