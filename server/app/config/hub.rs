//! How the model hub is reached: endpoint, token, cache. The variables are the hub's own, so that one setup fits all tools.
//!
//! Lives here: reading `HF_*`, and the order in which a token is looked for.
//! May not live here: requests.

use std::path::PathBuf;

use hf_hub::{Cache, Repo, RepoType};

use super::sources::{Environment, Setting, Source};
use super::values::{Secret, Switch};

/// Where the hub is when `HF_ENDPOINT` does not say so.
pub const ENDPOINT: &str = "https://huggingface.co";

/// What the hub's usual variables say.
#[derive(Clone, Debug)]
pub struct HubSettings {
    /// Base address, without a slash at the end.
    pub endpoint: String,
    /// The token, and where it was found.
    pub token: Option<(Secret, Source)>,
    /// The cache other tools of the hub use; files found there are not fetched again. `None` without a home.
    pub cache_dir: Option<PathBuf>,
    offline: (Switch, Source),
    endpoint_source: Source,
    cache_source: Source,
}

impl HubSettings {
    /// Reads `HF_ENDPOINT`, `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_HOME`, `HF_HUB_CACHE` and `HF_HUB_OFFLINE`.
    pub fn read(environment: &Environment) -> Self {
        let variable = |name: &str| {
            let value = environment.get(name)?;
            Some((value.to_owned(), Source::Variable(name.to_owned())))
        };
        let (endpoint, endpoint_source) =
            variable("HF_ENDPOINT").unwrap_or((ENDPOINT.to_owned(), Source::Default));
        let home = variable("HF_HOME").map(|(home, source)| (PathBuf::from(home), source));
        let home = home.or_else(|| {
            let cache = environment.get("XDG_CACHE_HOME").map(PathBuf::from);
            let cache =
                cache.or_else(|| Some(PathBuf::from(environment.get("HOME")?).join(".cache")));
            Some((cache?.join("huggingface"), Source::Default))
        });
        let cache = variable("HF_HUB_CACHE").map(|(dir, source)| (PathBuf::from(dir), source));
        let cache = cache.or_else(|| {
            home.clone()
                .map(|(home, source)| (home.join("hub"), source))
        });
        let offline =
            variable("HF_HUB_OFFLINE").filter(|(value, _)| value.parse() == Ok(Switch(true)));
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: find_token(environment, home.map(|(home, _)| home)),
            cache_source: cache
                .as_ref()
                .map_or(Source::Default, |(_, source)| source.clone()),
            cache_dir: cache.map(|(dir, _)| dir),
            offline: match offline {
                Some((_, source)) => (Switch(true), source),
                None => (Switch(false), Source::Default),
            },
            endpoint_source,
        }
    }

    /// Where the hub's own tools have put `revision` of model `name` on this machine, if they have.
    pub fn cached_snapshot(&self, name: &str, revision: &str) -> Option<PathBuf> {
        let repo = Repo::with_revision(name.to_owned(), RepoType::Model, revision.to_owned());
        let dir = self.cache_dir.clone()?;
        let named =
            std::fs::read_to_string(dir.join(repo.folder_name()).join("refs").join(revision));
        // A branch or tag names a commit in a file; a commit names itself.
        let commit = named.map_or(revision.to_owned(), |text| text.trim().to_owned());
        let snapshot = Cache::new(dir).repo(repo).pointer_path(&commit);
        snapshot.is_dir().then_some(snapshot)
    }

    /// What `offline` is when no setting says anything: `HF_HUB_OFFLINE`, else off.
    pub(super) fn offline_default(&self) -> (Switch, Source) {
        self.offline.clone()
    }

    /// The lines for `doctor`; the token prints as stars.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let setting = |key: &str, value: String, source: &Source| Setting {
            key: key.to_owned(),
            value,
            source: source.clone(),
        };
        let cache = self.cache_dir.as_ref().map(|dir| dir.display().to_string());
        let token = match &self.token {
            Some((token, source)) => setting("hub token", token.to_string(), source),
            None => setting("hub token", "none".to_owned(), &Source::Default),
        };
        vec![
            setting("hub endpoint", self.endpoint.clone(), &self.endpoint_source),
            setting(
                "hub cache",
                cache.unwrap_or("none".to_owned()),
                &self.cache_source,
            ),
            token,
        ]
    }
}

/// `HF_TOKEN`, then the file of `HF_TOKEN_PATH`, then `token` in the hub's home, which is where its login tool puts it.
fn find_token(environment: &Environment, home: Option<PathBuf>) -> Option<(Secret, Source)> {
    for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        if let Some(token) = environment.get(name).and_then(Secret::new) {
            return Some((token, Source::Variable(name.to_owned())));
        }
    }
    let named = environment.get("HF_TOKEN_PATH").map(PathBuf::from);
    let file = named.or_else(|| Some(home?.join("token")))?;
    let token = Secret::new(&std::fs::read_to_string(&file).ok()?)?;
    Some((token, Source::File(file)))
}
