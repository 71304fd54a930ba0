//! Chromium, driven by its own driver.
//!
//! Lives here: finding or installing both, [`Chromium`] (one window of a fresh profile), waiting for what a page shows.
//! May not live here: what the pages of this project look like.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The longest any test waits for anything. Only a failing test ever does.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// How long a browser may take to end.
const GONE_WITHIN: Duration = Duration::from_secs(20);

const CURE: &str = "apt-get install chromium chromium-driver";

/// One window of a fresh profile. Gone when dropped.
pub struct Chromium {
    pub client: Client,
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

/// What a test wants of its window.
pub struct Window<'a> {
    /// Played into the microphone once; `None`: the microphone is refused.
    pub microphone: Option<&'a Path>,
    pub size: (u32, u32),
    pub dark: bool,
    /// Further flags of Chromium.
    pub flags: &'a [&'a str],
}

impl Default for Window<'_> {
    fn default() -> Self {
        Self {
            microphone: None,
            size: (1280, 900),
            dark: false,
            flags: &[],
        }
    }
}

/// Both programs, if they can be had. Asked once; the answer is loud when it is no.
fn programs() -> Option<&'static (PathBuf, PathBuf)> {
    static FOUND: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    FOUND.get_or_init(|| find().or_else(install)).as_ref()
}

fn find() -> Option<(PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH")?;
    let on_path = |name: &str| {
        let mut places = std::env::split_paths(&path).map(|dir| dir.join(name));
        places.find(|file| file.is_file())
    };
    let browser = on_path("chromium").or_else(|| on_path("chromium-browser"))?;
    Some((browser, on_path("chromedriver")?))
}

/// Debian's packages, where this may be done without asking anybody: as root.
fn install() -> Option<(PathBuf, PathBuf)> {
    let id = Command::new("id").arg("-u").output().ok()?;
    if id.stdout.trim_ascii() != b"0" {
        return None;
    }
    eprintln!("installing Chromium for the browser tests ({CURE}), about a minute");
    for args in [
        &["update"][..],
        &["install", "-y", "chromium", "chromium-driver"],
    ] {
        let mut apt = Command::new("apt-get");
        apt.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        let done = apt.stdin(Stdio::null()).stdout(Stdio::null()).status();
        if !done.is_ok_and(|status| status.success()) {
            return None;
        }
    }
    find()
}

/// Whether there is a browser. `test` names what is left out when there is none.
pub fn at_hand(test: &str) -> bool {
    if programs().is_some() {
        return true;
    }
    let required = std::env::var("VIVAVOCE_BROWSER").is_ok_and(|value| value == "required");
    assert!(!required, "{test}: no Chromium here; {CURE}");
    eprintln!(
        "\n*** LEFT OUT: {test}\n*** There is no Chromium with chromedriver here. To run it: {CURE}\n"
    );
    false
}

impl Chromium {
    pub async fn open(window: Window<'_>) -> Self {
        let (browser, driver) = programs().expect("asked before");
        let profile = TempDir::new().expect("a temp folder");
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let port = port_of(&mut driver);
        let mut flags: Vec<String> = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--autoplay-policy=no-user-gesture-required",
            "--use-fake-device-for-media-stream",
            "--hide-scrollbars",
        ]
        .map(str::to_owned)
        .into();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        flags.push(format!("--window-size={},{}", window.size.0, window.size.1));
        match window.microphone {
            Some(file) => {
                flags.push("--use-fake-ui-for-media-stream".to_owned());
                flags.push(format!(
                    "--use-file-for-fake-audio-capture={}%noloop",
                    file.display()
                ));
            }
            None => flags.push("--deny-permission-prompts".to_owned()),
        }
        flags.extend(window.flags.iter().map(|&flag| flag.to_owned()));
        let options = json!({"args": flags, "binary": browser});
        let Value::Object(capabilities) = json!({
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "acceptInsecureCerts": true,
        }) else {
            unreachable!("an object was written");
        };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("Chromium starts");
        let session = client.session_id().await.expect("the driver answers");
        let chromium = Self {
            client,
            driver,
            port,
            session: session.expect("a session has begun"),
            _profile: profile,
        };
        if window.dark {
            let features = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
            let params = json!({"features": features});
            chromium
                .devtools("Emulation.setEmulatedMedia", params)
                .await;
        }
        chromium
    }

    pub async fn goto(&self, url: &str) {
        self.client.goto(url).await.expect("a page");
    }

    /// The first element that `css` finds, as soon as there is one.
    pub async fn find(&self, css: &str) -> Element {
        let wait = self.client.wait().at_most(PATIENCE);
        match wait.for_element(Locator::Css(css)).await {
            Ok(element) => element,
            Err(error) => panic!("no {css}: {error}\n{}", self.state().await),
        }
    }

    /// The button or link whose visible or spoken name begins with `name`, as soon as there is one that can be used.
    pub async fn button(&self, name: &str) -> Element {
        let script = "const name = arguments[0].toLowerCase(); \
            const all = document.querySelectorAll('button, a, summary, [role=button], [role=tab]'); \
            return [...all].find(e => { \
                const said = (e.getAttribute('aria-label') || e.innerText || '').trim().toLowerCase(); \
                return said.startsWith(name) && !e.disabled && e.offsetParent !== null; }) || null";
        let found = self
            .until(&format!("a button {name:?}"), script, json!(name))
            .await;
        Element::from_element_id(self.client.clone(), element_id(&found))
    }

    pub async fn press(&self, name: &str) {
        let button = self.button(name).await;
        if let Err(error) = button.click().await {
            panic!(
                "{name:?} cannot be clicked: {error}\n{}",
                self.state().await
            );
        }
    }

    /// Clears the field labelled `label` (exactly, or by its beginning) and types `text` into it.
    pub async fn fill(&self, label: &str, text: &str) {
        let script = "const label = arguments[0].toLowerCase(); \
            const all = document.querySelectorAll('input, textarea, select'); \
            return [...all].find(e => { \
                const own = e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].innerText) || ''; \
                return own.trim().toLowerCase().startsWith(label) && e.offsetParent !== null; }) || null";
        let found = self
            .until(&format!("a field {label:?}"), script, json!(label))
            .await;
        let field = Element::from_element_id(self.client.clone(), element_id(&found));
        field.clear().await.expect("a field that can be cleared");
        field
            .send_keys(text)
            .await
            .expect("a field that takes text");
    }

    /// Waits until the text that can be seen contains `text`.
    pub async fn sees(&self, text: &str) {
        let script = "return document.body.innerText.toLowerCase().includes(arguments[0].toLowerCase()) || null";
        self.until(&format!("the text {text:?}"), script, json!(text))
            .await;
    }

    /// Waits until `script` returns something other than null.
    pub async fn until(&self, what: &str, script: &str, argument: Value) -> Value {
        let waiting = async {
            loop {
                match self.client.execute(script, vec![argument.clone()]).await {
                    Ok(Value::Null) | Err(_) => pause().await,
                    Ok(value) => return value,
                }
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(value) => value,
            Err(_) => panic!("{what} never came\n{}", self.state().await),
        }
    }

    pub async fn text(&self) -> String {
        let text = self
            .client
            .execute("return document.body.innerText", vec![])
            .await;
        text.ok()
            .and_then(|text| text.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Writes what can be seen to `target/screenshots/NAME.png`.
    pub async fn screenshot(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
        std::fs::create_dir_all(&folder).expect("a folder for screenshots");
        let png = self.client.screenshot().await.expect("a screenshot");
        std::fs::write(folder.join(format!("{name}.png")), png).expect("a screenshot is written");
    }

    /// Errors in the console since the last time it was asked.
    pub async fn console_errors(&self) -> Vec<String> {
        let log = self.post("se/log", json!({"type": "browser"})).await;
        let lines = log.as_array().cloned().unwrap_or_default();
        let severe = lines.iter().filter(|line| line["level"] == "SEVERE");
        severe
            .map(|line| line["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// A command of the DevTools protocol.
    pub async fn devtools(&self, command: &str, params: Value) -> Value {
        self.post(
            "goog/cdp/execute",
            json!({"cmd": command, "params": params}),
        )
        .await
    }

    async fn post(&self, path: &'static str, body: Value) -> Value {
        let command = Vendor { path, body };
        let answer: Result<Value, CmdError> = self.client.issue_cmd(command).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// For a failing test: where the page is and what it shows.
    async fn state(&self) -> String {
        let url = self.client.current_url().await;
        let errors = self.console_errors().await;
        format!(
            "at {url:?}, console {errors:#?}, page:\n{}",
            self.text().await
        )
    }
}

/// How often a page is looked at while a test waits for it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Between two looks.
pub async fn pause() {
    tokio::time::sleep(LOOK_EVERY).await;
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // A driver that is killed leaves its browser behind, so it is asked to end it first.
        if self.end_session().is_err() {
            eprintln!("a browser may be left running: its driver does not answer");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Chromium {
    /// Ends the browser, and returns when that is done. Without the client, which cannot be waited for here.
    fn end_session(&self) -> std::io::Result<()> {
        let mut driver = TcpStream::connect(("127.0.0.1", self.port))?;
        driver.set_read_timeout(Some(GONE_WITHIN))?;
        let path = format!("/session/{}", self.session);
        write!(
            driver,
            "DELETE {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )?;
        // Whatever it says, it has ended the session by then.
        driver.read(&mut [0]).map(drop)
    }
}

/// A command that only Chromium's driver knows.
#[derive(Debug)]
struct Vendor {
    path: &'static str,
    body: Value,
}

impl fantoccini::wd::WebDriverCompatibleCommand for Vendor {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!(
            "session/{}/{}",
            session.unwrap_or_default(),
            self.path
        ))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

fn element_id(found: &Value) -> fantoccini::elements::ElementRef {
    // Source: WebDriver, section 12.1, "web element identifier".
    let id = found["element-6066-11e4-a52e-4f735466cecf"].as_str();
    id.unwrap_or_else(|| panic!("{found} is no element"))
        .to_owned()
        .into()
}

fn port_of(driver: &mut Child) -> u16 {
    let out = driver.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let (_, port) = line.split_once("successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    std::thread::spawn(move || lines.for_each(drop));
    port.expect("chromedriver names its port")
}
