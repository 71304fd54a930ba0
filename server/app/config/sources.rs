//! Where settings come from: the layers, their order, and the words for a value that is wrong in one of them.
//!
//! Lives here: [`Environment`], the settings file, `Sources::pick`, [`ConfigError`].
//! May not live here: which settings there are (that is [`Config::load`](super::Config::load)).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::default_data_dir;
use super::flags::PlaceFlags;
use super::values::ValueError;

/// Name of the settings file in the data folder.
pub const FILE_NAME: &str = "vivavoce.toml";
/// What every environment variable of a setting starts with.
pub const PREFIX: &str = "VIVAVOCE_";

/// The environment of the process, taken once; tests make their own. An empty variable counts as not set.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// What the process was started with.
    pub fn of_process() -> Self {
        let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
        std::env::vars_os()
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    /// The value of variable `name`, unless it is missing or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        Self(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// Where the value of a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// An environment variable.
    Variable(String),
    /// A file.
    File(PathBuf),
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Variable(name) => f.write_str(name),
            Self::File(file) => file.display().fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One setting as `doctor` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag without its dashes, which is also the key in the file.
    pub key: String,
    /// The value; stars for a secret.
    pub value: String,
    /// Where it came from.
    pub source: Source,
}

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value out of range in the environment or the file. (On the command line clap says so.)
    #[error("{place} is \"{value}\": {reason}")]
    Value {
        /// The variable, or the key and its file.
        place: String,
        /// What stands there.
        value: String,
        /// What is taken.
        reason: ValueError,
    },
    /// A key that no setting has.
    #[error("unknown key \"{key}\" in {}; known keys: {known}", file.display())]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stands.
        file: PathBuf,
        /// All keys, joined by commas.
        known: String,
    },
    /// The same setting twice, as `kv-dtype` and `kv_dtype`.
    #[error("key \"{key}\" stands twice in {}", file.display())]
    KeyTwice {
        /// The key.
        key: String,
        /// Where it stands.
        file: PathBuf,
    },
    /// The file is not TOML.
    #[error("{}, line {line}: {what}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What the parser says.
        what: String,
    },
    /// The file cannot be read.
    #[error("the settings file {} cannot be read: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No data folder was given, and the platform names none.
    #[error("no place for data: HOME is not set; give --data-dir DIR or VIVAVOCE_DATA_DIR")]
    NoDataDir,
    /// The model is not where it would be.
    #[error("--model {model}: there is no model in {}; {cure}", dir.display())]
    NoSuchModel {
        /// What was asked for.
        model: String,
        /// Where it would be.
        dir: PathBuf,
        /// What to do.
        cure: String,
    },
}

impl ConfigError {
    /// Whether the settings themselves are wrong (exit code 2), not what they ask for (1).
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::NoSuchModel { .. })
    }
}

/// The layers below the flags, and what was picked from them so far.
pub struct Sources<'a> {
    environment: &'a Environment,
    file: Option<SettingsFile>,
    picked: Vec<Setting>,
    /// What cannot be used, in the order in which it was found; a default stands in for it.
    problems: Vec<ConfigError>,
}

struct SettingsFile {
    path: PathBuf,
    values: toml::Table,
}

impl<'a> Sources<'a> {
    /// Finds the data folder and reads the settings file: the one of `--config`, else the data folder's if it has one.
    pub(super) fn open(place: &PlaceFlags, environment: &'a Environment) -> (Self, PathBuf) {
        let mut sources = Self {
            environment,
            file: None,
            picked: Vec::new(),
            problems: Vec::new(),
        };
        let given = place.config.clone();
        let given = given.or_else(|| environment.get("VIVAVOCE_CONFIG").map(PathBuf::from));
        if let Some(path) = &given {
            sources.read_file(path);
        }
        let default = default_data_dir(environment).map(PathText);
        let flag = place.data_dir.clone().map(PathText);
        let data_dir = sources
            .pick("data-dir", &flag, default.unwrap_or_default())
            .0;
        let own = data_dir.join(FILE_NAME);
        if data_dir.as_os_str().is_empty() {
            sources.problems.push(ConfigError::NoDataDir);
        } else if given.is_none() && own.is_file() {
            sources.read_file(&own);
        }
        (sources, data_dir)
    }

    fn read_file(&mut self, path: &Path) {
        match SettingsFile::read(path) {
            Ok(file) => self.file = Some(file),
            Err(err) => self.problems.push(err),
        }
    }

    /// The value of setting `key` from the highest layer that has one; the default where that one cannot be used.
    pub(super) fn pick<T>(&mut self, key: &'static str, flag: &Option<T>, default: T) -> T
    where
        T: FromStr<Err = ValueError> + fmt::Display + Clone,
    {
        self.pick_or(key, flag, (default, Source::Default))
    }

    /// The same where the default itself was found somewhere.
    pub(super) fn pick_or<T>(
        &mut self,
        key: &'static str,
        flag: &Option<T>,
        default: (T, Source),
    ) -> T
    where
        T: FromStr<Err = ValueError> + fmt::Display + Clone,
    {
        let variable = format!("{PREFIX}{}", key.to_uppercase().replace('-', "_"));
        let found = if let Some(value) = flag {
            Ok((value.clone(), Source::Flag))
        } else if let Some(text) = self.environment.get(&variable) {
            parse(&variable, text).map(|value| (value, Source::Variable(variable)))
        } else if let Some((text, path)) = self.in_file(key) {
            let place = format!("{key} in {}", path.display());
            parse(&place, &text).map(|value| (value, Source::File(path)))
        } else {
            Ok(default.clone())
        };
        let (value, source) = found.unwrap_or_else(|problem| {
            self.problems.push(problem);
            default
        });
        self.picked.push(Setting {
            key: key.to_owned(),
            value: value.to_string(),
            source,
        });
        value
    }

    fn in_file(&self, key: &str) -> Option<(String, PathBuf)> {
        let file = self.file.as_ref()?;
        let text = match file.values.get(key)? {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some((text, file.path.clone()))
    }

    /// `VIVAVOCE_*` variables that no setting has picked or could pick.
    pub(super) fn unknown_variables(&self) -> Vec<String> {
        let known = self.picked.iter().map(|setting| &setting.key);
        let mut known: BTreeSet<String> = known
            .map(|key| format!("{PREFIX}{}", key.to_uppercase().replace('-', "_")))
            .collect();
        // Not settings of the program, but of where it finds them, of its log, and of one command; and a secret, which has
        // no flag.
        known.extend(
            ["CONFIG", "LOG", "LOAD_TOKEN", "PASSWORD"].map(|name| format!("{PREFIX}{name}")),
        );
        #[cfg(debug_assertions)]
        known.insert(format!("{PREFIX}TEST_FAULT"));
        let names = self.environment.0.keys();
        names
            .filter(|name| name.starts_with(PREFIX) && !known.contains(*name))
            .cloned()
            .collect()
    }

    /// Everything that was picked, and everything that cannot be used: now every key of the file must belong to a
    /// setting.
    pub(super) fn finish(mut self) -> (Vec<Setting>, Vec<ConfigError>) {
        if let Some(file) = self.file {
            let known: BTreeSet<&str> = self.picked.iter().map(|s| s.key.as_str()).collect();
            if let Some(key) = file.values.keys().find(|key| !known.contains(key.as_str())) {
                self.problems.push(ConfigError::UnknownKey {
                    key: key.clone(),
                    file: file.path,
                    known: Vec::from_iter(known).join(", "),
                });
            }
        }
        (self.picked, self.problems)
    }
}

impl SettingsFile {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            file: path.to_owned(),
            source,
        })?;
        let table: toml::Table = toml::from_str(&text).map_err(|err| ConfigError::Syntax {
            file: path.to_owned(),
            line: err
                .span()
                .map_or(1, |span| text[..span.start].lines().count().max(1)),
            what: err.message().replace('\n', " "),
        })?;
        let mut values = toml::Table::new();
        for (key, value) in table {
            if values.insert(key.replace('_', "-"), value).is_some() {
                return Err(ConfigError::KeyTwice {
                    key,
                    file: path.to_owned(),
                });
            }
        }
        Ok(Self {
            path: path.to_owned(),
            values,
        })
    }
}

fn parse<T: FromStr<Err = ValueError>>(place: &str, text: &str) -> Result<T, ConfigError> {
    text.trim().parse().map_err(|reason| ConfigError::Value {
        place: place.to_owned(),
        value: text.to_owned(),
        reason,
    })
}

/// A path as a setting value.
#[derive(Clone, Default)]
struct PathText(PathBuf);

impl FromStr for PathText {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(Self(PathBuf::from(text)))
    }
}

impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}
