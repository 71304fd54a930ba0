//! The types of setting values: each parses itself and says what it takes.
//!
//! Lives here: one type per kind of value, with its limits and the words for them.
//! May not live here: where a value comes from, and what it does.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use slots::units::SLOTS_MAX;

/// The port Moshi clients expect.
pub const PORT: u16 = 8998;
/// Most CPU threads that can be asked for.
pub const THREADS_MAX: usize = 1_024;

/// A value that is not taken; says what is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be {expected}")]
pub struct ValueError {
    /// The range or the choices, in words.
    pub expected: String,
}

/// The refusal of a value, with what is taken instead.
pub(crate) fn expected<T>(what: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError {
        expected: what.into(),
    })
}

/// A fieldless enum whose variants have names on the command line.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// Every name that is taken.
            pub const NAMES: &'static [&'static str] = &[$($text),+];
        }

        impl FromStr for $name {
            type Err = ValueError;
            fn from_str(text: &str) -> Result<Self, ValueError> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => expected(format!("one of {}", Self::NAMES.join(", "))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
}

named! {
    /// Number format of the weights.
    Dtype {
        /// What suits the model and the device.
        Auto = "auto",
        /// 32-bit floats.
        F32 = "f32",
        /// 16-bit brain floats.
        Bf16 = "bf16",
        /// 8-bit integers with one scale per block of 32.
        Q8_0 = "q8_0",
    }
}

named! {
    /// Number format of the attention memory.
    KvDtype {
        /// Like the activations: f32 on a CPU, bf16 on a GPU.
        Auto = "auto",
        /// 32-bit floats.
        F32 = "f32",
        /// 16-bit brain floats.
        Bf16 = "bf16",
        /// Eight bits with scales, on a GPU: half the memory of bf16.
        Fp8 = "fp8",
    }
}

named! {
    /// Order of encode, model and decode inside a tick.
    Order {
        /// The answer to a frame leaves in the tick that brought it.
        Sooner = "sooner",
        /// Encoding runs beside model and decoder; the answer leaves one tick later.
        Overlapped = "overlapped",
    }
}

named! {
    /// How many keys a full attention window shows.
    Ring {
        /// As many as `context` says.
        Full = "full",
        /// One fewer, as the published sources do.
        Short = "short",
    }
}

named! {
    /// Whether the prompt's part of the window is kept when older parts are overwritten.
    PinPrompt {
        /// On for published weights, off for the demo.
        Auto = "auto",
        /// Kept.
        On = "on",
        /// Overwritten like the rest.
        Off = "off",
    }
}

named! {
    /// What the log looks like.
    LogFormat {
        /// Lines for people; colours only on a terminal.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch(pub bool);

impl FromStr for Switch {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => Ok(Self(true)),
            "off" | "false" | "no" | "0" => Ok(Self(false)),
            _ => expected("on or off"),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}

/// A count that may be left to the program: `None` for `auto`.
fn parse_count(text: &str, count_max: usize) -> Result<Option<usize>, ValueError> {
    match (text, text.parse::<usize>()) {
        ("auto", _) => Ok(None),
        (_, Ok(count)) if (1..=count_max).contains(&count) => Ok(Some(count)),
        _ => expected(format!("auto or a whole number from 1 to {count_max}")),
    }
}

/// How many rows the batch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotCount {
    /// 4 on a CPU; on a GPU as many as fit in memory and in real time.
    Auto,
    /// Exactly this many, 1 to [`SLOTS_MAX`].
    Fixed(usize),
}

impl FromStr for SlotCount {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(parse_count(text, SLOTS_MAX)?.map_or(Self::Auto, Self::Fixed))
    }
}

impl fmt::Display for SlotCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(count) => count.fmt(f),
        }
    }
}

/// How many CPU threads the engine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadCount {
    /// One per core this process may use.
    Auto,
    /// Exactly this many, 1 to [`THREADS_MAX`].
    Fixed(usize),
}

impl FromStr for ThreadCount {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(parse_count(text, THREADS_MAX)?.map_or(Self::Auto, Self::Fixed))
    }
}

impl fmt::Display for ThreadCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(count) => count.fmt(f),
        }
    }
}

/// Where the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU if this build and this machine can use one, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with this number, counted as the driver does.
    Cuda(u32),
}

impl FromStr for DeviceChoice {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = text.strip_prefix("cuda:").and_then(|n| n.parse().ok());
        match (text, number) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            (_, Some(number @ 0..=63)) => Ok(Self::Cuda(number)),
            _ => expected("auto, cpu, or cuda:N with N from 0 to 63"),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// Which model answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelName {
    /// The small model inside the binary.
    Demo,
    /// Random weights of the published size: for measuring, not for talking.
    Random,
    /// A folder in the published layout.
    Folder(PathBuf),
    /// A model of the hub, `owner/name`, fetched before.
    Hub(String),
}

impl FromStr for ModelName {
    type Err = ValueError;
    /// A folder that exists wins over a hub name of the same spelling.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let path = Path::new(text);
        let is_path_like = path.is_absolute() || text.starts_with('.') || path.is_dir();
        match text {
            "demo" => Ok(Self::Demo),
            "random" => Ok(Self::Random),
            _ if is_path_like => Ok(Self::Folder(path.to_owned())),
            _ if is_hub_name(text) => Ok(Self::Hub(text.to_owned())),
            _ => expected("demo, random, an existing folder, or a hub name like owner/name"),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demo => f.write_str("demo"),
            Self::Random => f.write_str("random"),
            Self::Folder(dir) => dir.display().fmt(f),
            Self::Hub(name) => f.write_str(name),
        }
    }
}

/// Whether `text` is `owner/name` as the hub spells it. Such a name can never leave the folder it is joined to.
pub fn is_hub_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        (1..=96).contains(&part.len())
            && part.chars().all(is_plain)
            && !part.starts_with(['.', '-'])
            && !part.contains("..")
    };
    matches!(text.split_once('/'), Some((owner, name)) if is_part(owner) && is_part(name))
}

/// The address of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

impl Default for Listen {
    fn default() -> Self {
        Self(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))
    }
}

impl FromStr for Listen {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
            None => text.to_owned(),
        };
        let address = numeric.parse().map(Self);
        address.or_else(|_| {
            expected("ADDRESS:PORT, such as 127.0.0.1:8998 or [::1]:8998, with a port from 0 (any free one) to 65535")
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A file that holds the operator's password, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PasswordFile(pub Option<PathBuf>);

impl FromStr for PasswordFile {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(Self((!text.is_empty()).then(|| text.into())))
    }
}

impl fmt::Display for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(file) => file.display().fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// How the port is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsChoice {
    /// Plain http.
    #[default]
    Off,
    /// With a certificate that the server makes itself.
    SelfSigned,
    /// With a certificate and its key from PEM files.
    Files(PathBuf, PathBuf),
}

impl FromStr for TlsChoice {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match (text, text.split_once(',')) {
            ("off", _) => Ok(Self::Off),
            ("self-signed", _) => Ok(Self::SelfSigned),
            (_, Some((certificate, key))) if !certificate.is_empty() && !key.is_empty() => {
                Ok(Self::Files(certificate.into(), key.into()))
            }
            _ => expected(
                "off, self-signed, or the PEM files of a certificate and its key joined by a comma: cert.pem,key.pem",
            ),
        }
    }
}

impl fmt::Display for TlsChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::SelfSigned => f.write_str("self-signed"),
            Self::Files(certificate, key) => {
                write!(f, "{},{}", certificate.display(), key.display())
            }
        }
    }
}

/// Whole seconds, or with a unit: `90`, `90s`, `10m`, `1h`.
fn parse_seconds(text: &str, least_s: u64, most_s: u64) -> Result<Duration, ValueError> {
    let digits = text.trim_end_matches(['s', 'm', 'h']);
    let unit_s = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        _ => None,
    };
    let seconds = unit_s.and_then(|unit_s| digits.parse::<u64>().ok()?.checked_mul(unit_s));
    match seconds {
        Some(seconds) if (least_s..=most_s).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => expected(format!(
            "from {least_s} to {most_s} seconds, written as 90, 90s, 10m or 1h"
        )),
    }
}

/// How long running calls may go on after SIGTERM: 0 s to a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainLimit(pub Duration);

impl Default for DrainLimit {
    /// 10 minutes: longer than most calls, shorter than an upgrade window.
    fn default() -> Self {
        Self(Duration::from_secs(600))
    }
}

impl FromStr for DrainLimit {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        parse_seconds(text, 0, 86_400).map(Self)
    }
}

impl fmt::Display for DrainLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs())
    }
}

/// How long one tick may take before the process ends itself: 2 s (25 ticks) to an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog(pub Duration);

impl Default for Watchdog {
    fn default() -> Self {
        Self(Duration::from_secs(20))
    }
}

impl FromStr for Watchdog {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        parse_seconds(text, 2, 3_600).map(Self)
    }
}

impl fmt::Display for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs())
    }
}

/// A password or token. It prints as stars, also in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text`, trimmed; `None` if nothing is left.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The secret itself, for the request that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        Self::new(text).map_or_else(|| expected("a token that is not empty"), Ok)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("********")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("********")
    }
}
