//! Every setting, checked once: the flag wins over `VIVAVOCE_*`, that over the file, that over the default.
//!
//! Lives here: [`Config`], which is all that the rest of the program sees of flags, environment and file.
//! May not live here: what the settings do. Nobody else reads the environment.
//! Start reading at [`Config::load`].

pub mod flags;
pub mod hub;
pub mod sources;
pub mod values;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flags::{EngineFlags, PlaceFlags, ServerFlags};
use hub::HubSettings;
use sources::{Environment, Sources};
use values::{
    DeviceChoice, DrainLimit, Dtype, KvDtype, Listen, LogFormat, ModelName, Order, PasswordFile,
    PinPrompt, Ring, Secret, SlotCount, Switch, ThreadCount, TlsChoice, Watchdog,
};

use crate::web::base::BasePath;
use crate::web::cors::Origins;

pub use sources::{ConfigError, Setting, Source};

/// The variable that holds the operator's password.
const PASSWORD: &str = "VIVAVOCE_PASSWORD";

/// All settings of the program, in range and in agreement with each other.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder for models, recordings, the database and `vivavoce.toml`. May not exist yet.
    pub data_dir: PathBuf,
    /// What the log looks like.
    pub log_format: LogFormat,
    /// Nothing may be downloaded.
    pub offline: bool,
    /// Which model answers.
    pub model: ModelName,
    /// Where it runs.
    pub device: DeviceChoice,
    /// Number format of its weights.
    pub dtype: Dtype,
    /// Number format of its attention memory.
    pub kv_dtype: KvDtype,
    /// CPU threads of the engine.
    pub threads: ThreadCount,
    /// Order of encode, model and decode inside a tick.
    pub order: Order,
    /// How many keys a full attention window shows.
    pub ring: Ring,
    /// Whether the persona's prompt stays in the window for ever.
    pub pin_prompt: PinPrompt,
    /// How many callers may talk at once.
    pub slots: SlotCount,
    /// Address of the server.
    pub listen: SocketAddr,
    /// Whether callers are refused while ticks take too long.
    pub admission: bool,
    /// How long running calls may go on after SIGTERM.
    pub drain_limit: Duration,
    /// How long a tick may take before the process ends itself.
    pub watchdog: Duration,
    /// Anybody who reaches the port may call, without a link or a token.
    pub open_calls: bool,
    /// How the port is encrypted.
    pub tls: TlsChoice,
    /// Other sites whose pages may ask.
    pub allow_origin: Origins,
    /// The path below which a proxy shows this server.
    pub base_path: BasePath,
    /// Holds the operator's password in its first line; counts from each start on.
    pub password_file: PasswordFile,
    /// The operator's password itself; only from the environment, where other users cannot see it.
    pub password: Option<Secret>,
    /// How the model hub is reached.
    pub hub: HubSettings,
    /// Every setting with its value and where it came from, secrets as stars, in the order of the help.
    pub settings: Vec<Setting>,
    /// `VIVAVOCE_*` variables that no setting has; most likely misspelt.
    pub unknown_variables: Vec<String>,
}

/// The flags of one command line, as far as they are settings; the rest belongs to the command.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Where things are.
    pub place: PlaceFlags,
    /// How the engine computes.
    pub engine: EngineFlags,
    /// How callers are served.
    pub server: ServerFlags,
}

impl Config {
    /// Puts the layers together.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting, its value, where it stands and what is taken.
    pub fn load(flags: &Flags, environment: &Environment) -> Result<Self, ConfigError> {
        let (config, problems) = Self::read(flags, environment);
        problems.into_iter().next().map_or(Ok(config), Err)
    }

    /// Puts the layers together, with defaults in place of all that cannot be used; the second half says what that is.
    /// For `doctor`; nothing may be done with settings that have problems.
    pub fn read(flags: &Flags, environment: &Environment) -> (Self, Vec<ConfigError>) {
        let Flags {
            place,
            engine,
            server,
        } = flags;
        let (mut from, data_dir) = Sources::open(place, environment);
        let hub = HubSettings::read(environment);
        let config = Self {
            log_format: from.pick("log-format", &place.log_format, LogFormat::Text),
            offline: from
                .pick_or("offline", &place.offline, hub.offline_default())
                .0,
            model: from.pick("model", &engine.model, ModelName::Demo),
            device: from.pick("device", &engine.device, DeviceChoice::Auto),
            dtype: from.pick("dtype", &engine.dtype, Dtype::Auto),
            kv_dtype: from.pick("kv-dtype", &engine.kv_dtype, KvDtype::Auto),
            threads: from.pick("threads", &engine.threads, ThreadCount::Auto),
            order: from.pick("order", &engine.order, Order::Sooner),
            ring: from.pick("ring", &engine.ring, Ring::Full),
            pin_prompt: from.pick("pin-prompt", &engine.pin_prompt, PinPrompt::Auto),
            slots: from.pick("slots", &server.slots, SlotCount::Auto),
            listen: from.pick("listen", &server.listen, Listen::default()).0,
            admission: from.pick("admission", &server.admission, Switch(true)).0,
            drain_limit: from
                .pick("drain-limit", &server.drain_limit, DrainLimit::default())
                .0,
            watchdog: from
                .pick("watchdog", &server.watchdog, Watchdog::default())
                .0,
            open_calls: from.pick("open-calls", &server.open_calls, Switch(false)).0,
            tls: from.pick("tls", &server.tls, TlsChoice::default()),
            allow_origin: from.pick("allow-origin", &server.allow_origin, Origins::default()),
            base_path: from.pick("base-path", &server.base_path, BasePath::default()),
            password: environment.get(PASSWORD).and_then(Secret::new),
            password_file: from.pick(
                "password-file",
                &server.password_file,
                PasswordFile::default(),
            ),
            data_dir,
            hub,
            settings: Vec::new(),
            unknown_variables: from.unknown_variables(),
        };
        let (mut settings, problems) = from.finish();
        settings.extend(config.password.as_ref().map(|password| Setting {
            key: "password".to_owned(),
            value: password.to_string(),
            source: Source::Variable(PASSWORD.to_owned()),
        }));
        settings.extend(config.hub.settings());
        (Self { settings, ..config }, problems)
    }

    /// Whether the server can be reached from this machine only.
    pub fn is_local(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    /// The database of the data folder.
    pub fn database(&self) -> PathBuf {
        self.data_dir.join("vivavoce.db")
    }

    /// The folder of a fetched hub model.
    pub fn hub_model_dir(&self, name: &str) -> PathBuf {
        self.models_dir().join(name)
    }

    /// Where fetched models are kept.
    pub fn models_dir(&self) -> PathBuf {
        self.data_dir.join("models")
    }

    /// The folder that [`Config::model`] names; `None` for models that need none. A hub name is looked for where `fetch`
    /// puts it, then in the cache of the hub's own tools.
    ///
    /// # Errors
    /// [`ConfigError::NoSuchModel`]: nothing is there, with the line that mends it.
    pub fn model_dir(&self) -> Result<Option<PathBuf>, ConfigError> {
        let no_model = |dir, cure| ConfigError::NoSuchModel {
            model: self.model.to_string(),
            dir,
            cure,
        };
        match &self.model {
            ModelName::Demo | ModelName::Random => Ok(None),
            ModelName::Folder(dir) if dir.is_dir() => Ok(Some(dir.clone())),
            ModelName::Folder(dir) => {
                let cure = "give the folder that holds model.safetensors".to_owned();
                Err(no_model(dir.clone(), cure))
            }
            ModelName::Hub(name) => {
                // A download that broke off early leaves a folder without it.
                let fetched = self.hub_model_dir(name);
                if fetched.join("model.safetensors").exists() {
                    return Ok(Some(fetched));
                }
                if let Some(cached) = self.hub.cached_snapshot(name, "main") {
                    return Ok(Some(cached));
                }
                let cure = format!("run `vivavoce fetch {name}` first");
                Err(no_model(fetched, cure))
            }
        }
    }
}

/// The platform's folder for data of programs, with `vivavoce` in it.
///
/// Linux and the like: `$XDG_DATA_HOME` or `~/.local/share`; macOS: `~/Library/Application Support`.
pub fn default_data_dir(environment: &Environment) -> Option<PathBuf> {
    let home = environment.get("HOME").map(PathBuf::from);
    let base = if cfg!(target_os = "macos") {
        home.map(|home| home.join("Library/Application Support"))
    } else if cfg!(windows) {
        environment.get("APPDATA").map(PathBuf::from)
    } else {
        let xdg = environment.get("XDG_DATA_HOME").map(PathBuf::from);
        xdg.filter(|dir| Path::is_absolute(dir))
            .or_else(|| home.map(|home| home.join(".local/share")))
    };
    base.map(|base| base.join("vivavoce"))
}

#[cfg(test)]
mod tests;
