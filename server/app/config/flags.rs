//! The flags that are settings. Their documentation is the help text.
//!
//! Lives here: the groups of flags that commands share; what belongs to one command stands with that command.
//! May not live here: defaults (they stand in [`Config::load`](super::Config::load)), and the other layers.
//! The default of each flag is named in its text, because it applies only after environment and file.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::values::{
    DeviceChoice, DrainLimit, Dtype, KvDtype, Listen, LogFormat, ModelName, Order, PasswordFile,
    PinPrompt, Ring, SlotCount, Switch, ThreadCount, TlsChoice, Watchdog,
};
use crate::web::base::BasePath;
use crate::web::cors::Origins;

/// Where things are, and how the program speaks; taken by every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings")]
pub struct PlaceFlags {
    /// Read settings from this file instead [default: vivavoce.toml in the data folder, if it is there]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Folder for models and vivavoce.toml [default: vivavoce in the platform's data folder, as `doctor` shows]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data_dir: Option<PathBuf>,
    /// What the log looks like: text (colours only on a terminal) or json [default: text]
    #[arg(long, global = true, value_name = "text|json")]
    pub log_format: Option<LogFormat>,
    /// Download nothing; also HF_HUB_OFFLINE=1 [default: off]
    #[arg(long, global = true, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub offline: Option<Switch>,
}

/// How the engine computes; taken by every command that runs a model.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Engine")]
pub struct EngineFlags {
    /// Which model answers: demo (built in), random (weights of the published size, for measuring), a folder, or a
    /// hub name that was fetched before [default: demo]
    #[arg(long, value_name = "demo|random|DIR|HUBNAME")]
    pub model: Option<ModelName>,
    /// Where it runs; auto is the first GPU where this build and machine have one, else the CPU [default: auto]
    #[arg(long, value_name = "auto|cpu|cuda:N")]
    pub device: Option<DeviceChoice>,
    /// Number format of the weights; auto is f32 for small models, else bf16 [default: auto]
    #[arg(long, value_name = "auto|f32|bf16|q8_0")]
    pub dtype: Option<Dtype>,
    /// Number format of the attention memory; auto is f32 beside f32 weights, else bf16; fp8 takes half of that, on a
    /// GPU [default: auto]
    #[arg(long, value_name = "auto|f32|bf16|fp8")]
    pub kv_dtype: Option<KvDtype>,
    /// CPU threads of the engine, 1 to 1024 [default: auto, one per core]
    #[arg(long, value_name = "N|auto")]
    pub threads: Option<ThreadCount>,
    /// Order inside a tick: sooner (the answer to a frame leaves in the tick that brought it) or overlapped (encoder
    /// beside model and decoder, for a device at its limit; the answer leaves one tick later) [default: sooner]
    #[arg(long, value_name = "sooner|overlapped")]
    pub order: Option<Order>,
    /// Keys a full attention window shows: full (all of `context`) or short (one fewer, as the published sources do)
    /// [default: full]
    #[arg(long, value_name = "full|short")]
    pub ring: Option<Ring>,
    /// Keep the persona's prompt in the window when older speech is overwritten; auto is off for the demo
    /// and on for every other model [default: auto]
    #[arg(long, value_name = "on|off|auto")]
    pub pin_prompt: Option<PinPrompt>,
}

/// How callers are served.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub struct ServerFlags {
    /// How many callers may talk at once, 1 to 256; auto is 4 on a CPU and, on a GPU, what fits into its memory, and no
    /// more than stay in time when it is measured at start (not with --admission off) [default: auto]
    #[arg(long, value_name = "N|auto")]
    pub slots: Option<SlotCount>,
    /// Address of the server; port 0 takes any free port. On an address that other machines can reach, an operator's
    /// password is needed: the one that is set, or one that is made and printed at the first start [default: 127.0.0.1:8998]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<Listen>,
    /// Refuse new callers while ticks take too long (p99 of the last 60 s above 72 ms) [default: on]
    #[arg(long, value_name = "on|off")]
    pub admission: Option<Switch>,
    /// How long running calls may go on after SIGTERM, 0 to 86400 s, or 10m, 1h [default: 600s]
    #[arg(long, value_name = "TIME")]
    pub drain_limit: Option<DrainLimit>,
    /// End the process with exit code 4 when one tick takes this long, 2 to 3600 s [default: 20s]
    #[arg(long, value_name = "TIME")]
    pub watchdog: Option<Watchdog>,
    /// Let anybody who reaches the port call, without a link or a token; operating still needs the password [default: off]
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub open_calls: Option<Switch>,
    /// Encrypt the port: off, self-signed (a certificate made here and kept in the data folder; browsers warn once), or
    /// the PEM files of a certificate and its key, which are read again when they change [default: off]
    #[arg(long, value_name = "off|self-signed|CERT,KEY")]
    pub tls: Option<TlsChoice>,
    /// Let pages of other sites use the API with a token: their origins, joined by commas [default: none]
    #[arg(long, value_name = "ORIGINS")]
    pub allow_origin: Option<Origins>,
    /// The path below which a proxy shows this server, such as /voice, if the proxy leaves it in what it passes on; also
    /// keeps cookies to that path [default: /]
    #[arg(long, value_name = "PATH")]
    pub base_path: Option<BasePath>,
    /// File whose first line is the operator's password, for containers (or VIVAVOCE_PASSWORD); else it is set in the
    /// browser or with `vivavoce password` [default: none]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub password_file: Option<PasswordFile>,
}
