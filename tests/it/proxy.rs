//! A server behind a proxy: below a path, and with https in front.

use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_tungstenite::client_async;
use vivavoce::store::Store;
use vivavoce::web::desk::DeskFacts;
use vivavoce::web::{AppState, WebSettings};

use crate::support::{TestPrepare, listen};

/// A server without an engine, told that it is shown below `base`.
struct Below {
    address: std::net::SocketAddr,
    client: Client,
    _state: AppState<TestPrepare>,
    _stop: oneshot::Sender<()>,
}

impl Below {
    async fn start(base: &str) -> Self {
        let settings = WebSettings {
            facts: DeskFacts {
                base: base.parse().unwrap(),
                ..DeskFacts::default()
            },
            ..WebSettings::default()
        };
        let store = Store::in_memory().await.unwrap();
        let state = AppState::open(settings, store).await.unwrap();
        let (address, stop) = listen(&state);
        Self {
            address,
            client: Client::builder().redirect(Policy::none()).build().unwrap(),
            _state: state,
            _stop: stop,
        }
    }

    async fn ask(&self, method: Method, path: &str) -> Response {
        let url = format!("http://127.0.0.1:{}{path}", self.address.port());
        self.client.request(method, url).send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.ask(Method::GET, path).await
    }

    /// Sets the first password; the cookie that comes with the answer.
    async fn password(&self, path: &str, headers: &[(&str, &str)]) -> String {
        let url = format!("http://127.0.0.1:{}{path}", self.address.port());
        let set = self.client.put(url).json(&json!({"new": "correct horse"}));
        let set = headers
            .iter()
            .fold(set, |set, (name, value)| set.header(*name, *value));
        let set = set.send().await.unwrap();
        assert_eq!(set.status(), 200);
        set.headers()["set-cookie"].to_str().unwrap().to_owned()
    }
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response
        .headers()
        .get(name)
        .map(|value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_path_everything_is_there_with_its_type() {
    let below = Below::start("/voice").await;
    for (path, status, kind) in [
        ("/voice/", 200, "text/html; charset=utf-8"),
        ("/voice/personas/3", 200, "text/html; charset=utf-8"),
        ("/voice/talk/some-token", 200, "text/html; charset=utf-8"),
        ("/voice/api/account?x=1", 200, "application/json"),
        ("/voice/livez", 200, "application/json"),
        // A proxy that takes the path off, and whoever looks after the container.
        ("/personas/3", 200, "text/html; charset=utf-8"),
        ("/livez", 200, "application/json"),
        // Never a page in place of a script.
        ("/voice/assets/nothing.js", 404, "application/json"),
        ("/voice/voice/", 404, "application/json"),
        ("/voices-not", 404, "application/json"),
    ] {
        let response = below.get(path).await;
        assert_eq!(response.status().as_u16(), status, "{path}");
        assert_eq!(header(&response, "content-type"), Some(kind), "{path}");
        assert!(
            header(&response, "content-security-policy").is_some(),
            "{path}"
        );
    }
    // Without its slash the page's relative addresses would lead beside the path.
    let door = below.get("/voice?a=b").await;
    assert_eq!(door.status(), 307);
    assert_eq!(header(&door, "location"), Some("/voice/?a=b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_below_a_path_gets_as_far_as_one_without() {
    let below = Below::start("/voice/").await;
    for path in ["/voice/api/chat", "/api/chat"] {
        let stream = TcpStream::connect(below.address).await.unwrap();
        let url = format!("ws://127.0.0.1:{}{path}", below.address.port());
        let refused = client_async(url, stream).await.err().unwrap();
        // No engine is loaded here; what matters is who answers.
        assert!(refused.to_string().contains("503"), "{path}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_stay_below_the_path() {
    let below = Below::start("/voice").await;
    let cookie = below.password("/voice/api/account/password", &[]).await;
    assert!(cookie.contains("; Path=/voice;"), "{cookie}");
    let out = below.ask(Method::POST, "/voice/api/account/sign-out").await;
    let gone = header(&out, "set-cookie").unwrap();
    assert!(
        gone.contains("; Path=/voice;") && gone.contains("Max-Age=0"),
        "{gone}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_https_the_cookie_is_for_https_only() {
    for (name, value, is_secure) in [
        ("x-forwarded-proto", "https", true),
        ("x-forwarded-proto", "HTTPS, http", true),
        ("x-forwarded-proto", "http, https", false),
        (
            "forwarded",
            "for=192.0.2.1;proto=https;by=203.0.113.1",
            true,
        ),
        (
            "forwarded",
            "for=192.0.2.1;Proto=\"https\", proto=http",
            true,
        ),
        ("forwarded", "for=192.0.2.1;proto=http", false),
        ("x-other", "https", false),
    ] {
        let below = Below::start("/").await;
        // Requests through a proxy are taken once there is a password.
        below.password("/api/account/password", &[]).await;
        let url = format!(
            "http://127.0.0.1:{}/api/account/sign-in",
            below.address.port()
        );
        let asked = below
            .client
            .post(url)
            .json(&json!({"password": "correct horse"}));
        let answer = asked.header(name, value).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let cookie = header(&answer, "set-cookie").unwrap().to_owned();
        assert_eq!(
            cookie.ends_with("; Secure"),
            is_secure,
            "{name}: {value}: {cookie}"
        );
        let account: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(account["secure"], is_secure, "{name}: {value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_known_is_not_sent_again() {
    let below = Below::start("/").await;
    let first = below.get("/live").await;
    assert_eq!(header(&first, "cache-control"), Some("no-cache"));
    let Some(tag) = header(&first, "etag").map(str::to_owned) else {
        // A development build without pages says how to make them, and that changes.
        assert!(first.text().await.unwrap().contains("ui-bundle"));
        return;
    };
    let again = async |path: &str, tags: &str| {
        let url = format!("http://127.0.0.1:{}{path}", below.address.port());
        let asked = below.client.get(url).header("if-none-match", tags);
        let answer = asked.send().await.unwrap();
        (
            answer.status().as_u16(),
            answer.bytes().await.unwrap().len(),
        )
    };
    for tags in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}")] {
        assert_eq!(again("/live", &tags).await, (304, 0), "{tags}");
    }
    assert_eq!(again("/live", "\"other\"").await.0, 200);
    // Another depth has other ways to the files, so it is another page.
    assert_eq!(again("/personas/1", &tag).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_names_its_files_by_the_way_from_where_it_is() {
    // Whoever takes the path off sends the same requests as whoever asks without a proxy.
    for (base, before) in [("/", ""), ("/voice", "/voice"), ("/voice", "")] {
        let below = Below::start(base).await;
        for (path, root) in [
            ("/", "./"),
            ("/live", "./"),
            ("/personas/3", "../"),
            ("/talk/some-token", "../"),
        ] {
            let page = below.get(&format!("{before}{path}")).await;
            let page = page.text().await.unwrap();
            if page.contains("ui-bundle") {
                // A development build without pages.
                continue;
            }
            assert!(
                page.contains(&format!("data-root=\"{root}\"")),
                "{path}: {page}"
            );
            let values = page
                .split("=\"")
                .map(|rest| rest.split('"').next().unwrap_or_default());
            let files: Vec<_> = values.filter(|value| value.contains("assets/")).collect();
            assert!(files.len() > 3, "{page}");
            for file in files {
                assert!(
                    file.starts_with(&format!("{root}assets/")),
                    "{path}: {file}"
                );
            }
        }
    }
}
