//! The model's folder while it fills: parts, finished files, links into the hub's cache, one process at a time.
//!
//! Lives here: every change to the folder but the writing of a part. May not live here: requests.
//!
//! `DIR/.fetch/` holds `lock`, `TAG.part` for each file on its way, and `files.json`, which says which version of each
//! finished file is there, so that 17 GB are not summed again to learn that nothing is to be done.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::FetchError;
use super::hub::{Hub, RemoteFile};
use super::progress::Progress;

/// A model's folder that this process alone fills.
pub struct Place {
    dir: PathBuf,
    work: PathBuf,
    finished: BTreeMap<String, Finished>,
    /// Held until the end; the system lets go of it with the process. `None`: there is no folder yet.
    lock: Option<File>,
}

/// A file that has its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Finished {
    etag: String,
    bytes: u64,
}

impl Place {
    /// The folder, locked if it is there. It is made with the first file, so that a refusal leaves none behind.
    pub fn open(dir: PathBuf) -> Result<Self, FetchError> {
        let mut place = Self {
            work: dir.join(".fetch"),
            dir,
            finished: BTreeMap::new(),
            lock: None,
        };
        if place.dir.is_dir() {
            place.begin()?;
        }
        Ok(place)
    }

    /// Makes the folder if need be and locks it; to be called before anything is written.
    pub fn begin(&mut self) -> Result<(), FetchError> {
        if self.lock.is_some() {
            return Ok(());
        }
        fs::create_dir_all(&self.work).map_err(at(&self.work))?;
        let lock_path = self.work.join("lock");
        let lock = File::create(&lock_path).map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let dir = self.dir.clone();
                return Err(FetchError::Busy { dir });
            }
            Err(TryLockError::Error(err)) => return Err(at(&lock_path)(err)),
        }
        // Missing or damaged, it only costs summing again.
        let list = fs::read(self.work.join("files.json")).unwrap_or_default();
        self.finished = serde_json::from_slice(&list).unwrap_or_default();
        self.lock = Some(lock);
        Ok(())
    }

    /// Bytes of finished files and parts that are here.
    pub fn kept_bytes(&self) -> u64 {
        let finished: u64 = self.finished.values().map(|file| file.bytes).sum();
        let parts: u64 = self
            .parts()
            .filter_map(|path| Some(fs::metadata(path).ok()?.len()))
            .sum();
        finished + parts
    }

    fn parts(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.work).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "part")
        })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where `remote` is written until it is whole. Named by its version: parts of two versions never mix.
    pub fn part_file(&self, remote: &RemoteFile) -> PathBuf {
        self.work.join(format!("{}.part", remote.etag))
    }

    /// How much of `remote` is here already.
    pub fn part_bytes(&self, remote: &RemoteFile) -> u64 {
        fs::metadata(self.part_file(remote)).map_or(0, |metadata| metadata.len())
    }

    /// Whether `remote` is here, whole. A file put there by hand is summed once.
    pub fn has(&mut self, remote: &RemoteFile) -> Result<bool, FetchError> {
        let path = self.dir.join(&remote.name);
        let is_whole = fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() == remote.bytes);
        let version = Finished {
            etag: remote.etag.clone(),
            bytes: remote.bytes,
        };
        if !is_whole || self.finished.get(&remote.name) == Some(&version) {
            return Ok(is_whole);
        }
        if !sum_matches(&path, remote)? {
            return Ok(false);
        }
        self.note(remote)?;
        Ok(true)
    }

    /// Links `remote` from the hub's cache of this machine, if it is there and its sum is right.
    pub fn take_from_cache(&mut self, hub: &Hub, remote: &RemoteFile) -> Result<bool, FetchError> {
        let Some(cached) = hub.cached(remote) else {
            return Ok(false);
        };
        if !sum_matches(&cached, remote)? {
            return Ok(false);
        }
        self.link(&cached, &remote.name)?;
        self.note(remote)?;
        Ok(true)
    }

    /// Puts a link to `target` in the folder as `name`: hard on the same disk, else symbolic.
    pub fn link(&mut self, target: &Path, name: &str) -> Result<(), FetchError> {
        self.begin()?;
        let target = fs::canonicalize(target).map_err(at(target))?;
        let path = self.path_for(name)?;
        match fs::remove_file(&path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(at(&path)(err)),
            _ => {}
        }
        if fs::hard_link(&target, &path).is_ok() {
            return Ok(());
        }
        #[cfg(unix)]
        let linked = std::os::unix::fs::symlink(&target, &path);
        #[cfg(not(unix))]
        let linked = fs::copy(&target, &path).map(|_| ());
        linked.map_err(at(&path))
    }

    /// Gives the finished part its name.
    pub fn accept(&mut self, remote: &RemoteFile) -> Result<(), FetchError> {
        let path = self.path_for(&remote.name)?;
        let part = self.part_file(remote);
        fs::rename(&part, &path).map_err(at(&path))?;
        self.note(remote)
    }

    /// Clears parts of versions that nobody asks for any more.
    pub fn finish(&self) -> Result<(), FetchError> {
        for path in self.parts() {
            fs::remove_file(&path).map_err(at(&path))?;
        }
        Ok(())
    }

    fn path_for(&self, name: &str) -> Result<PathBuf, FetchError> {
        let path = self.dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(at(parent))?;
        }
        Ok(path)
    }

    fn note(&mut self, remote: &RemoteFile) -> Result<(), FetchError> {
        let version = Finished {
            etag: remote.etag.clone(),
            bytes: remote.bytes,
        };
        self.finished.insert(remote.name.clone(), version);
        let list = self.work.join("files.json");
        let new = self.work.join("files.json.new");
        let text = serde_json::to_vec_pretty(&self.finished).map_err(io::Error::from);
        text.and_then(|text| fs::write(&new, text))
            .map_err(at(&new))?;
        fs::rename(&new, &list).map_err(at(&list))
    }
}

/// Whether the file at `path` has the sum of `remote`. A small file has no sum to compare with: false, it is quicker
/// fetched than doubted.
fn sum_matches(path: &Path, remote: &RemoteFile) -> Result<bool, FetchError> {
    let Some(expected) = remote.sha256() else {
        return Ok(false);
    };
    let mut progress = Progress::start(&format!("checking {}", path.display()), remote.bytes);
    let (sum, _) = sum_of(path, u64::MAX, &mut progress)?;
    progress.finish();
    Ok(hex(&sum.finalize()) == expected)
}

/// The SHA-256 so far of the first `bytes_max` bytes at `path`, and how many those were.
pub fn sum_of(
    path: &Path,
    bytes_max: u64,
    progress: &mut Progress,
) -> Result<(Sha256, u64), FetchError> {
    let mut file = File::open(path).map_err(at(path))?.take(bytes_max);
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer).map_err(at(path))?;
        if read == 0 {
            return Ok((sum, bytes));
        }
        sum.update(&buffer[..read]);
        bytes += read as u64;
        progress.add(read as u64);
    }
}

/// Bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Puts the path to an error of the system.
pub fn at(path: &Path) -> impl Fn(io::Error) -> FetchError {
    move |source| FetchError::File {
        path: path.to_owned(),
        source,
    }
}
