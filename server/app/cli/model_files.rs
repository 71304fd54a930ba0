//! What a model folder must hold, and whether one does.
//!
//! Lives here: names and completeness of the files.
//! May not live here: their contents; the engine checks those when it loads.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::disk::bytes_text;
use crate::config::values::ModelName;

/// The part a file plays in a model folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `config.json`; the published numbers apply without it.
    Config,
    /// `model.safetensors`.
    Weights,
    /// `tokenizer-*.safetensors`.
    Codec,
    /// `tokenizer_spm_*.model`.
    Tokenizer,
    /// `voices.tgz`.
    VoiceArchive,
    /// `voices/NAME.pt`.
    Voice,
}

impl Part {
    /// The part that a file of this name plays; `None`: none. `name` is relative to the folder, with `/`.
    pub fn of(name: &str) -> Option<Self> {
        let is_between = |start: &str, end: &str| {
            name.len() > start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        };
        let in_folder = name.strip_prefix("voices/");
        match name {
            "config.json" => Some(Self::Config),
            "model.safetensors" => Some(Self::Weights),
            "voices.tgz" => Some(Self::VoiceArchive),
            _ if name.contains(['\\', '\0']) => None,
            _ if in_folder.is_some_and(is_voice_file) => Some(Self::Voice),
            _ if name.contains('/') => None,
            _ if is_between("tokenizer-", ".safetensors") => Some(Self::Codec),
            _ if is_between("tokenizer_spm_", ".model") => Some(Self::Tokenizer),
            _ => None,
        }
    }
}

fn is_voice_file(name: &str) -> bool {
    name.len() > 3 && name.ends_with(".pt") && !name.starts_with('.') && !name.contains('/')
}

/// A file of a model folder.
#[derive(Clone, Debug)]
pub struct ModelFile {
    /// Relative to the folder.
    pub name: String,
    /// Its part.
    pub part: Part,
    /// Its size.
    pub bytes: u64,
}

/// Why a folder cannot be served from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no such folder, or it cannot be read.
    Unreadable(PathBuf, String),
    /// A part is missing.
    Missing(PathBuf, &'static str),
    /// A file is shorter than its own header says.
    Truncated(PathBuf, u64, u64),
    /// A file does not begin as such a file does.
    NotSafetensors(PathBuf),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, why) => write!(f, "{}: {why}", path.display()),
            Self::Missing(dir, what) => write!(f, "{} has no {what}", dir.display()),
            Self::Truncated(path, bytes, due) => write!(
                f,
                "{} has {bytes} bytes, its header names {due}: it is truncated",
                path.display()
            ),
            Self::NotSafetensors(path) => {
                write!(f, "{} is not a safetensors file", path.display())
            }
        }
    }
}

impl Problem {
    /// Whether a server can be started all the same: without voices callers get no voice prompt.
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::Missing(_, VOICES))
    }

    /// What to do about it in the folder of `model`.
    pub fn cure(&self, model: &ModelName) -> String {
        match model {
            ModelName::Hub(name) => format!("run `vivavoce fetch {name}` again"),
            _ => "give the folder that holds all files of the model, or copy them there again"
                .to_owned(),
        }
    }
}

/// What is missing where there is no voice.
const VOICES: &str = "voices (voices.tgz or voices/*.pt)";

/// What the published model takes on a disk.
pub const PUBLISHED_BYTES: u64 = 17_000_000_000;

/// What is in a model folder.
#[derive(Clone, Debug, Default)]
pub struct ModelFiles {
    /// Files that play a part, sorted by name.
    pub files: Vec<ModelFile>,
    /// What is wrong; empty: the folder is complete.
    pub problems: Vec<Problem>,
}

impl ModelFiles {
    /// Looks through `dir` without reading more than headers.
    pub fn inspect(dir: &Path) -> Self {
        let mut found = Self::default();
        for sub in ["", "voices"] {
            match list(&dir.join(sub), sub) {
                Ok(files) => found.files.extend(files),
                // A folder that is not there lacks every part.
                Err(err) if sub.is_empty() && err.kind() != ErrorKind::NotFound => {
                    found
                        .problems
                        .push(Problem::Unreadable(dir.to_owned(), err.to_string()));
                    return found;
                }
                Err(_) => {} // A folder of voices is one of two ways to have voices.
            }
        }
        found.files.sort_by(|a, b| a.name.cmp(&b.name));
        let has = |part| found.files.iter().any(|file| file.part == part);
        let needed = [
            (has(Part::Weights), "model.safetensors"),
            (has(Part::Codec), "tokenizer-*.safetensors (the codec)"),
            (has(Part::Tokenizer), "tokenizer_spm_*.model"),
            (has(Part::VoiceArchive) || has(Part::Voice), VOICES),
        ];
        let missing = needed.iter().filter(|(is_there, _)| !is_there);
        found.problems = missing
            .map(|(_, what)| Problem::Missing(dir.to_owned(), what))
            .collect();
        let weights = found
            .files
            .iter()
            .filter(|f| matches!(f.part, Part::Weights | Part::Codec));
        let broken = weights.filter_map(|file| check_safetensors(&dir.join(&file.name)).err());
        found.problems.extend(broken.collect::<Vec<_>>());
        found
    }

    /// Size of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The files in words.
    pub fn summary(&self) -> String {
        let voices = self
            .files
            .iter()
            .filter(|file| file.part == Part::Voice)
            .count();
        let named = self.files.iter().filter(|file| file.part != Part::Voice);
        let mut words: Vec<String> = named
            .map(|file| format!("{} ({})", file.name, bytes_text(file.bytes)))
            .collect();
        if voices > 0 {
            words.push(format!("{voices} voices"));
        }
        words.join(", ")
    }
}

fn list(dir: &Path, prefix: &str) -> std::io::Result<Vec<ModelFile>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}/{name}")
        };
        // Through a link: files may be links into the hub's cache.
        let metadata = std::fs::metadata(entry.path());
        if let (Some(part), Ok(metadata)) = (Part::of(&name), metadata)
            && metadata.is_file()
        {
            files.push(ModelFile {
                name,
                part,
                bytes: metadata.len(),
            });
        }
    }
    Ok(files)
}

/// Largest header that is read; the published one has 60 kB.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// The tensors of a header, as far as their place in the file goes.
#[derive(serde::Deserialize)]
struct TensorPlace {
    data_offsets: (u64, u64),
}

fn check_safetensors(path: &Path) -> Result<(), Problem> {
    let unreadable = |err: std::io::Error| Problem::Unreadable(path.to_owned(), err.to_string());
    let not_one = || Problem::NotSafetensors(path.to_owned());
    let mut file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| not_one())?;
    let header_bytes = u64::from_le_bytes(length);
    if header_bytes > HEADER_BYTES_MAX {
        return Err(not_one());
    }
    if 8 + header_bytes > bytes {
        return Err(Problem::Truncated(path.to_owned(), bytes, 8 + header_bytes));
    }
    let mut header = Vec::new();
    file.take(header_bytes)
        .read_to_end(&mut header)
        .map_err(unreadable)?;
    let mut header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&header).map_err(|_| not_one())?;
    header.remove("__metadata__");
    let mut end = 0;
    for (_, tensor) in header {
        let place: TensorPlace = serde_json::from_value(tensor).map_err(|_| not_one())?;
        end = end.max(place.data_offsets.1);
    }
    let due = end.saturating_add(8 + header_bytes);
    match bytes < due {
        true => Err(Problem::Truncated(path.to_owned(), bytes, due)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_model_play_a_part() {
        let cases = [
            ("config.json", Some(Part::Config)),
            ("model.safetensors", Some(Part::Weights)),
            (
                "tokenizer-e351c8d8-checkpoint125.safetensors",
                Some(Part::Codec),
            ),
            ("tokenizer_spm_32k_3.model", Some(Part::Tokenizer)),
            ("voices.tgz", Some(Part::VoiceArchive)),
            ("voices/NATF0.pt", Some(Part::Voice)),
            ("dist.tgz", None),
            ("README.md", None),
            ("../model.safetensors", None),
            ("voices/../../x.pt", None),
            ("voices/.pt", None),
            ("sub/tokenizer-a.safetensors", None),
            ("tokenizer-../a.safetensors", None),
            ("tokenizer-.safetensors", None),
        ];
        for (name, part) in cases {
            assert_eq!(Part::of(name), part, "{name}");
        }
    }

    /// A safetensors file with one tensor of `bytes` bytes, of which `present` are there.
    fn safetensors(bytes: usize, present: usize) -> Vec<u8> {
        let header =
            format!(r#"{{"a":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}}}"#);
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(vec![7; present]);
        file
    }

    #[test]
    fn a_folder_is_complete_when_every_part_is_there_and_whole() {
        let dir = tempfile::tempdir().expect("a temp folder");
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(dir.path().join(name), bytes).expect("writable");
        };
        let problems = || {
            let problems = ModelFiles::inspect(dir.path()).problems;
            problems
                .iter()
                .map(|p| {
                    p.to_string()
                        .replace(&dir.path().display().to_string(), "DIR")
                })
                .collect::<Vec<_>>()
        };
        write("model.safetensors", &safetensors(100, 60));
        write("tokenizer-a.safetensors", b"<html>not found</html>");
        write("tokenizer_spm_a.model", b"x");
        let header_and_60 = safetensors(100, 60).len();
        assert_eq!(
            problems(),
            [
                "DIR has no voices (voices.tgz or voices/*.pt)".to_owned(),
                format!(
                    "DIR/model.safetensors has {header_and_60} bytes, its header names {}: it is truncated",
                    header_and_60 + 40
                ),
                "DIR/tokenizer-a.safetensors is not a safetensors file".to_owned(),
            ]
        );
        write("model.safetensors", &safetensors(100, 100));
        write("tokenizer-a.safetensors", &safetensors(1, 1));
        write("voices.tgz", b"x");
        assert_eq!(problems(), Vec::<String>::new());
    }
}
