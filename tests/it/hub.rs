//! A stand-in for the model hub: its answers, redirects and refusals, with faults on demand.
//!
//! Large files are answered with a redirect to a second port, as the hub redirects to its storage; the two see different
//! headers, and the token must reach the first only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

pub const NAME: &str = "owner/voice-model";
const COMMIT: &str = "00112233445566778899aabbccddeeff00112233";

/// What happens to a transfer after so many of its bytes.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    CutAfter(usize),
    SilentAfter(usize),
}

/// Who is let in.
#[derive(Clone, Copy, Debug)]
pub enum Gate {
    Open,
    /// Only this token; `accepted` tells whether its owner has accepted the licence.
    Token {
        token: &'static str,
        accepted: bool,
    },
}

#[derive(Clone, Debug)]
pub struct HubFile {
    pub bytes: Vec<u8>,
    /// SHA-256 for large files; anything else makes it a small one.
    pub etag: String,
    /// Announced instead of the real size.
    pub size: Option<u64>,
}

/// One request for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub file: String,
    pub range: String,
    pub had_token: bool,
    pub at_storage: bool,
}

struct Inner {
    files: Mutex<HashMap<String, HubFile>>,
    faults: Mutex<Vec<(String, Fault)>>,
    asked: Mutex<Vec<Asked>>,
    gate: Gate,
    knows_ranges: bool,
    storage: String,
}

pub struct Hub {
    inner: Arc<Inner>,
    pub endpoint: String,
    _runtime: tokio::runtime::Runtime,
}

impl Hub {
    /// A hub with one complete small model.
    pub fn start() -> Self {
        Self::with(Gate::Open, true)
    }

    pub fn with(gate: Gate, knows_ranges: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let bind = || {
            runtime
                .block_on(TcpListener::bind("127.0.0.1:0"))
                .expect("a free port")
        };
        let (hub, storage) = (bind(), bind());
        let address = |l: &TcpListener| format!("http://{}", l.local_addr().expect("it is bound"));
        let inner = Arc::new(Inner {
            files: Mutex::new(model()),
            faults: Mutex::default(),
            asked: Mutex::default(),
            gate,
            knows_ranges,
            storage: address(&storage),
        });
        let endpoint = address(&hub);
        let pages = Router::new()
            .route("/api/models/{owner}/{name}/revision/{revision}", get(info))
            .route("/{owner}/{name}/resolve/{revision}/{*file}", get(resolve))
            .with_state(Arc::clone(&inner));
        let blobs = Router::new()
            .route("/{*file}", get(from_storage))
            .with_state(Arc::clone(&inner));
        runtime.spawn(async move { axum::serve(hub, pages).await });
        runtime.spawn(async move { axum::serve(storage, blobs).await });
        Self {
            inner,
            endpoint,
            _runtime: runtime,
        }
    }

    pub fn file(&self, name: &str) -> HubFile {
        self.inner.files.lock().expect("no panic holds it")[name].clone()
    }

    pub fn put(&self, name: &str, file: HubFile) {
        self.inner
            .files
            .lock()
            .expect("no panic holds it")
            .insert(name.to_owned(), file);
    }

    pub fn remove(&self, name: &str) {
        self.inner
            .files
            .lock()
            .expect("no panic holds it")
            .remove(name);
    }

    /// The next transfer of `file` meets `fault`.
    pub fn next_transfer(&self, file: &str, fault: Fault) {
        self.inner
            .faults
            .lock()
            .expect("no panic holds it")
            .push((file.to_owned(), fault));
    }

    /// Transfers since the last call, without the questions for one byte that only ask for the size.
    pub fn transfers(&self) -> Vec<Asked> {
        let asked = std::mem::take(&mut *self.inner.asked.lock().expect("no panic holds it"));
        asked
            .into_iter()
            .filter(|asked| asked.range != "bytes=0-0")
            .collect()
    }
}

impl HubFile {
    pub fn large(bytes: Vec<u8>) -> Self {
        let etag = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            bytes,
            etag,
            size: None,
        }
    }

    pub fn small(bytes: Vec<u8>) -> Self {
        Self {
            etag: format!("{:040x}", bytes.len()),
            bytes,
            size: None,
        }
    }

    fn is_large(&self) -> bool {
        self.etag.len() == 64
    }
}

/// A safetensors file with `bytes` bytes of noise in one tensor.
pub fn safetensors(bytes: usize, seed: u32) -> Vec<u8> {
    let header =
        format!(r#"{{"a":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}}}"#);
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    let mut state = seed;
    file.extend((0..bytes).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }));
    file
}

fn model() -> HashMap<String, HubFile> {
    let files = [
        ("config.json", HubFile::small(b"{}".to_vec())),
        (".gitattributes", HubFile::small(b"x".to_vec())),
        ("dist.tgz", HubFile::large(b"a web client".to_vec())),
        ("model.safetensors", HubFile::large(safetensors(400_000, 1))),
        (
            "tokenizer-abc-checkpoint125.safetensors",
            HubFile::large(safetensors(3_000, 2)),
        ),
        (
            "tokenizer_spm_32k_3.model",
            HubFile::large(b"pieces".to_vec()),
        ),
        ("voices.tgz", HubFile::large(b"voices".to_vec())),
    ];
    files
        .into_iter()
        .map(|(name, file)| (name.to_owned(), file))
        .collect()
}

async fn info(
    State(hub): State<Arc<Inner>>,
    Path((owner, name, _)): Path<(String, String, String)>,
) -> Response {
    if format!("{owner}/{name}") != NAME {
        return refusal(
            StatusCode::UNAUTHORIZED,
            "RepoNotFound",
            "Repository not found",
        );
    }
    let files = hub.files.lock().expect("no panic holds it");
    let siblings: Vec<_> = files
        .keys()
        .map(|name| serde_json::json!({ "rfilename": name }))
        .collect();
    axum::Json(serde_json::json!({ "sha": COMMIT, "siblings": siblings })).into_response()
}

async fn resolve(
    State(hub): State<Arc<Inner>>,
    Path((_, _, revision, name)): Path<(String, String, String, String)>,
    headers: HeaderMap,
) -> Response {
    hub.note(&name, &headers, false);
    let given = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    if let Gate::Token { token, accepted } = hub.gate {
        let message = "Access to this model is restricted.";
        match given {
            None => return refusal(StatusCode::UNAUTHORIZED, "GatedRepo", message),
            Some(given) if given != format!("Bearer {token}") => {
                let message = "Invalid credentials in Authorization header";
                return refusal(StatusCode::UNAUTHORIZED, "", message);
            }
            Some(_) if !accepted => return refusal(StatusCode::FORBIDDEN, "GatedRepo", message),
            Some(_) => {}
        }
    }
    if revision != COMMIT {
        return refusal(StatusCode::NOT_FOUND, "RevisionNotFound", "Invalid rev id");
    }
    let file = hub
        .files
        .lock()
        .expect("no panic holds it")
        .get(&name)
        .cloned();
    let Some(file) = file else {
        return refusal(StatusCode::NOT_FOUND, "EntryNotFound", "Entry not found");
    };
    if !file.is_large() {
        return hub.transfer(&name, &file, &headers);
    }
    let location = format!("{}/{name}", hub.storage);
    Response::builder()
        .status(StatusCode::FOUND)
        .header("location", location)
        .header("x-repo-commit", COMMIT)
        .header("x-linked-etag", format!("\"{}\"", file.etag))
        .header("x-linked-size", file.bytes.len())
        .body(Body::empty())
        .expect("plain headers")
}

async fn from_storage(
    State(hub): State<Arc<Inner>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    hub.note(&name, &headers, true);
    let file = hub.files.lock().expect("no panic holds it")[&name].clone();
    hub.transfer(&name, &file, &headers)
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    (
        status,
        [("x-error-code", code), ("x-error-message", message)],
        message.to_owned(),
    )
        .into_response()
}

impl Inner {
    fn note(&self, file: &str, headers: &HeaderMap, at_storage: bool) {
        let range = headers
            .get("range")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        self.asked.lock().expect("no panic holds it").push(Asked {
            file: file.to_owned(),
            range: range.to_owned(),
            had_token: headers.contains_key("authorization"),
            at_storage,
        });
    }

    fn transfer(&self, name: &str, file: &HubFile, headers: &HeaderMap) -> Response {
        let range = headers.get("range").and_then(|value| value.to_str().ok());
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let total = file.size.unwrap_or(file.bytes.len() as u64);
        let is_question = range == Some(("0", "0"));
        let response = Response::builder()
            .header("etag", format!("\"{}\"", file.etag))
            .header("x-repo-commit", COMMIT);
        let start = match range {
            Some((start, _)) if self.knows_ranges || is_question => start.parse().unwrap_or(0),
            _ => 0,
        };
        let end = if is_question { 1 } else { file.bytes.len() };
        let bytes = file.bytes[start.min(end)..end].to_vec();
        let response = match self.knows_ranges || is_question {
            true => response.status(StatusCode::PARTIAL_CONTENT).header(
                "content-range",
                format!("bytes {start}-{}/{total}", end.max(start + 1) - 1),
            ),
            false => response,
        };
        let response = response.header("content-length", bytes.len());
        let fault = (!is_question).then(|| self.fault(name)).flatten();
        response.body(body(bytes, fault)).expect("plain headers")
    }

    fn fault(&self, name: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().expect("no panic holds it");
        let index = faults.iter().position(|(file, _)| file == name)?;
        Some(faults.remove(index).1)
    }
}

fn body(bytes: Vec<u8>, fault: Option<Fault>) -> Body {
    let first = |bytes: &[u8], count: usize| {
        let bytes = bytes[..count.min(bytes.len())].to_vec();
        stream::iter([Ok::<_, std::io::Error>(bytes)])
    };
    match fault {
        None => Body::from(bytes),
        Some(Fault::CutAfter(count)) => {
            // Not at once: what was sent before must leave first.
            let cut = stream::once(async {
                tokio::task::yield_now().await;
                Err(std::io::ErrorKind::ConnectionReset.into())
            });
            Body::from_stream(first(&bytes, count).chain(cut))
        }
        Some(Fault::SilentAfter(count)) => {
            Body::from_stream(first(&bytes, count).chain(stream::pending()))
        }
    }
}
