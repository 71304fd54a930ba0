//! Questions to the hub: which files, how large, with which sums; and what its refusals mean.
//!
//! Lives here: [`Hub`], over hf-hub's addresses and client. May not live here: the disk.

use std::path::PathBuf;
use std::time::Duration;

use hf_hub::api::tokio::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use reqwest::Response;
use serde::Deserialize;

use super::super::model_files::Part;
use super::error::FetchError;
use crate::config::hub::HubSettings;

/// How long the hub may take to answer, or to send the next byte of a file.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// One file as the hub has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// Relative to the model's folder; always a name that [`Part::of`] knows.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// Its size.
    pub bytes: u64,
    /// What the hub calls this version of the file; safe as a file name.
    pub etag: String,
}

impl RemoteFile {
    /// The SHA-256 in hex. Small files have none: their tag is another kind of sum.
    pub fn sha256(&self) -> Option<&str> {
        (self.etag.len() == 64).then_some(self.etag.as_str())
    }
}

/// One model at one commit.
pub struct Hub {
    settings: HubSettings,
    name: String,
    api: Api,
    repo: ApiRepo,
    cache_repo: hf_hub::CacheRepo,
    file_names: Vec<String>,
}

/// The hub's description of a model, as far as it is needed.
#[derive(Deserialize)]
struct ModelInfo {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// A response that is no success, taken apart.
struct Refusal {
    url: String,
    status: u16,
    code: String,
    message: String,
}

impl Hub {
    /// Asks for the list of files, and so for the commit, so that all files come from the same one.
    pub async fn connect(
        settings: &HubSettings,
        name: &str,
        revision: &str,
    ) -> Result<Self, FetchError> {
        let cache = settings
            .cache_dir
            .clone()
            .map(Cache::new)
            .unwrap_or_default();
        let token = settings
            .token
            .as_ref()
            .map(|(token, _)| token.expose().to_owned());
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(settings.endpoint.clone())
            .with_token(token)
            .with_progress(false)
            .with_user_agent("vivavoce", env!("CARGO_PKG_VERSION"))
            .build();
        let api = api.map_err(|err| FetchError::Connection {
            url: settings.endpoint.clone(),
            what: innermost(&err),
            kept_bytes: 0,
        })?;
        let repo = |revision: &str| {
            Repo::with_revision(name.to_owned(), RepoType::Model, revision.to_owned())
        };
        let mut hub = Self {
            settings: settings.clone(),
            name: name.to_owned(),
            repo: api.repo(repo(revision)),
            cache_repo: cache.repo(repo(revision)),
            api,
            file_names: Vec::new(),
        };
        let url = format!("{}/api/models/{name}", settings.endpoint);
        let response = within(&url, hub.repo.info_request().send()).await?;
        if !response.status().is_success() {
            let (status, code, message) = taken_apart(&response);
            return Err(hub.refused(Refusal {
                url,
                status,
                code,
                message,
            }));
        }
        let info: ModelInfo = within(&url, response.json()).await?;
        let is_commit = !info.sha.is_empty() && info.sha.chars().all(|c| c.is_ascii_hexdigit());
        if !is_commit {
            return Err(FetchError::Answer {
                url,
                what: "no commit is named".to_owned(),
            });
        }
        hub.repo = hub.api.repo(repo(&info.sha));
        hub.file_names = info
            .siblings
            .into_iter()
            .map(|sibling| sibling.rfilename)
            .collect();
        Ok(hub)
    }

    /// The files a model folder needs, largest last, so that what is refused is refused early.
    pub async fn model_files(&self) -> Result<Vec<RemoteFile>, FetchError> {
        let parts: Vec<_> = self
            .file_names
            .iter()
            .filter_map(|name| Some((Part::of(name)?, name)))
            .collect();
        let has = |part| parts.iter().any(|(p, _)| *p == part);
        let has_archive = has(Part::VoiceArchive);
        let needed = [
            (has(Part::Weights), "model.safetensors"),
            (has(Part::Codec), "tokenizer-*.safetensors"),
            (has(Part::Tokenizer), "tokenizer_spm_*.model"),
            (has_archive || has(Part::Voice), "voices.tgz"),
        ];
        if let Some((_, what)) = needed.iter().find(|(is_there, _)| !is_there) {
            return Err(FetchError::NotAModel {
                name: self.name.clone(),
                what,
            });
        }
        let mut files = Vec::new();
        for (part, name) in parts {
            // The archive holds the same voices.
            if part != Part::Voice || !has_archive {
                files.push(self.remote_file(name).await?);
            }
        }
        files.sort_by_key(|file| file.bytes);
        Ok(files)
    }

    async fn remote_file(&self, name: &str) -> Result<RemoteFile, FetchError> {
        let url = self.repo.url(name);
        let asked = tokio::time::timeout(SILENCE_MAX, self.api.metadata(&url)).await;
        let metadata = match asked.map_err(|_| silent(&url))? {
            Ok(metadata) => metadata,
            Err(ApiError::RequestError(err)) if err.is_status() => {
                return Err(self.why_refused(&url).await?);
            }
            Err(err @ ApiError::RequestError(_)) => {
                return Err(FetchError::Connection {
                    url,
                    what: innermost(&err),
                    kept_bytes: 0,
                });
            }
            Err(err) => {
                return Err(FetchError::Answer {
                    url,
                    what: err.to_string(),
                });
            }
        };
        // It becomes a file name, and nothing the hub says may leave the folder.
        let etag = metadata.etag().trim_start_matches("W/");
        if etag.is_empty() || !etag.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(FetchError::Answer {
                url,
                what: format!("its tag is {etag:?}"),
            });
        }
        Ok(RemoteFile {
            name: name.to_owned(),
            bytes: metadata.size() as u64,
            etag: etag.to_ascii_lowercase(),
            url,
        })
    }

    /// Asks again for what was refused: hf-hub's metadata call keeps the status but not the reason.
    async fn why_refused(&self, url: &str) -> Result<FetchError, FetchError> {
        let request = self.api.client().get(url).header("range", "bytes=0-0");
        let response = within(url, request.send()).await?;
        let (status, code, message) = taken_apart(&response);
        Ok(self.refused(Refusal {
            url: url.to_owned(),
            status,
            code,
            message,
        }))
    }

    /// What a refusal means for the person who has to mend it.
    fn refused(&self, refusal: Refusal) -> FetchError {
        let name = self.name.clone();
        let endpoint = self.settings.endpoint.clone();
        let page = format!("{endpoint}/{name}");
        let Refusal {
            url,
            status,
            code,
            message,
        } = refusal;
        let is_gated = code == "GatedRepo";
        let token_source = self
            .settings
            .token
            .as_ref()
            .map(|(_, source)| source.to_string());
        match (status, token_source) {
            (401 | 403, None) if is_gated => FetchError::GatedNoToken {
                name,
                page,
                endpoint,
            },
            (403, Some(token_source)) if is_gated => FetchError::GatedNotAccepted {
                name,
                page,
                token_source,
            },
            (404, _) | (401, None) => FetchError::NotFound {
                what: match code.as_str() {
                    "RevisionNotFound" => format!("such revision of {name}"),
                    "EntryNotFound" => url,
                    _ => format!("model {name}"),
                },
                endpoint,
            },
            (401, Some(token_source)) => FetchError::WrongToken {
                name,
                page,
                token_source,
                endpoint,
            },
            _ => FetchError::Status {
                url,
                status,
                message,
            },
        }
    }

    /// Starts the transfer of `file` from byte `start`.
    ///
    /// # Errors
    /// Inner: worth another try. Outer: not.
    pub async fn open(
        &self,
        file: &RemoteFile,
        start: u64,
    ) -> Result<Result<Transfer, String>, FetchError> {
        let request = self
            .api
            .client()
            .get(&file.url)
            .header("range", format!("bytes={start}-"));
        let response = match tokio::time::timeout(SILENCE_MAX, request.send()).await {
            Err(_) => return Ok(Err(silence_text())),
            Ok(Err(err)) => return Ok(Err(innermost(&err))),
            Ok(Ok(response)) => response,
        };
        match response.status().as_u16() {
            206 => {
                let range = response
                    .headers()
                    .get("content-range")
                    .and_then(|r| r.to_str().ok());
                let is_asked = range.is_some_and(|r| r.starts_with(&format!("bytes {start}-")));
                match is_asked {
                    true => Ok(Ok(Transfer { start, response })),
                    false => Err(FetchError::Answer {
                        url: file.url.clone(),
                        what: format!("asked for bytes from {start}, got {range:?}"),
                    }),
                }
            }
            // It does not know ranges, or starts anew for its own reasons.
            200 => Ok(Ok(Transfer { start: 0, response })),
            429 | 500.. => {
                let (status, _, message) = taken_apart(&response);
                Ok(Err(format!("the hub answered {status}{message}")))
            }
            _ => {
                let (status, code, message) = taken_apart(&response);
                Err(self.refused(Refusal {
                    url: file.url.clone(),
                    status,
                    code,
                    message,
                }))
            }
        }
    }

    /// Where the hub's cache of this machine keeps `file`, if it has it.
    pub fn cached(&self, file: &RemoteFile) -> Option<PathBuf> {
        self.settings.cache_dir.as_ref()?;
        let path = self.cache_repo.blob_path(&file.etag);
        let metadata = std::fs::metadata(&path).ok()?;
        (metadata.is_file() && metadata.len() == file.bytes).then_some(path)
    }
}

/// Bytes on their way.
pub struct Transfer {
    /// Where in the file they begin.
    pub start: u64,
    response: Response,
}

impl Transfer {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// One line: the connection broke, or nothing came for [`SILENCE_MAX`].
    pub async fn next(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, String> {
        match tokio::time::timeout(SILENCE_MAX, self.response.chunk()).await {
            Err(_) => Err(silence_text()),
            Ok(Err(err)) => Err(innermost(&err)),
            Ok(Ok(bytes)) => Ok(bytes),
        }
    }
}

/// Files of `name` in the hub's cache, by their names; nothing is asked of the network.
pub fn cached_files(settings: &HubSettings, name: &str, revision: &str) -> Vec<(String, PathBuf)> {
    let Some(snapshot) = settings.cached_snapshot(name, revision) else {
        return Vec::new();
    };
    let files = ["", "voices/"].into_iter().flat_map(|prefix| {
        let entries = std::fs::read_dir(snapshot.join(prefix))
            .into_iter()
            .flatten()
            .flatten();
        entries.map(move |entry| format!("{prefix}{}", entry.file_name().to_string_lossy()))
    });
    let files = files.filter(|name| Part::of(name).is_some());
    files
        .map(|name| (name.clone(), snapshot.join(name)))
        .collect()
}

/// Waits for an answer, no longer than [`SILENCE_MAX`].
async fn within<T>(
    url: &str,
    asked: impl Future<Output = Result<T, reqwest::Error>>,
) -> Result<T, FetchError> {
    let answer = tokio::time::timeout(SILENCE_MAX, asked)
        .await
        .map_err(|_| silent(url))?;
    answer.map_err(|err| match err.is_decode() {
        true => FetchError::Answer {
            url: url.to_owned(),
            what: innermost(&err),
        },
        false => FetchError::Connection {
            url: url.to_owned(),
            what: innermost(&err),
            kept_bytes: 0,
        },
    })
}

fn silent(url: &str) -> FetchError {
    FetchError::Connection {
        url: url.to_owned(),
        what: silence_text(),
        kept_bytes: 0,
    }
}

fn silence_text() -> String {
    format!("nothing came for {} s", SILENCE_MAX.as_secs())
}

/// The last cause of an error, which is the one that helps; the outer ones repeat the address.
fn innermost(err: &dyn std::error::Error) -> String {
    let mut err = err;
    while let Some(source) = err.source() {
        err = source;
    }
    err.to_string()
}

/// Status, error code and message of a refusal, as the hub puts them into headers. The message begins with a colon.
fn taken_apart(response: &Response) -> (u16, String, String) {
    let header = |name: &str| {
        let value = response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok());
        value
            .unwrap_or_default()
            .chars()
            .filter(|c| !c.is_control())
            .take(200)
            .collect::<String>()
    };
    let message = header("x-error-message");
    let message = if message.is_empty() {
        message
    } else {
        format!(": {message}")
    };
    (response.status().as_u16(), header("x-error-code"), message)
}
