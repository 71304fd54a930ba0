//! One file on its way from the hub to its part file: going on after a break, summing on the way.
//!
//! Lives here: [`Download::run`]. May not live here: which files, and what becomes of the part.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::super::disk::free_bytes;
use super::error::FetchError;
use super::hub::{Hub, RemoteFile};
use super::place::{at, hex, sum_of};
use super::progress::Progress;

/// What is to be fetched, and where it goes until it is whole.
pub struct Download<'a> {
    /// Where it comes from.
    pub hub: &'a Hub,
    /// What.
    pub remote: &'a RemoteFile,
    /// Where to.
    pub part: PathBuf,
    /// How often to try again without a single byte in between.
    pub retries: u32,
}

/// The part file and the sum of what is in it.
struct Part {
    file: File,
    sum: Sha256,
    bytes: u64,
}

impl Download<'_> {
    /// Fetches what is missing, and compares the sum.
    ///
    /// # Errors
    /// [`FetchError`]. The part is kept, except when its sum is wrong.
    pub async fn run(&self, progress: &mut Progress) -> Result<(), FetchError> {
        let mut part = self.open_part(progress)?;
        let mut tries_left = self.retries;
        while part.bytes < self.remote.bytes {
            let before = part.bytes;
            let Err(what) = self.go_on(&mut part, progress).await? else {
                continue;
            };
            if part.bytes > before {
                tries_left = self.retries;
            }
            if tries_left == 0 {
                let url = self.remote.url.clone();
                return Err(FetchError::Connection {
                    url,
                    what,
                    kept_bytes: part.bytes,
                });
            }
            // At once after progress, then 1, 2, 4, ... s, at most half a minute.
            let tries = self.retries - tries_left;
            let wait = if tries == 0 {
                0
            } else {
                (1 << (tries - 1).min(5)).min(30)
            };
            progress.say(&format!("{what}; trying again in {wait} s"));
            tokio::time::sleep(Duration::from_secs(wait)).await;
            tries_left -= 1;
        }
        part.file
            .sync_all()
            .map_err(|err| self.disk_error(err, part.bytes))?;
        self.check_sum(part)
    }

    /// Opens the part and sums what is there.
    fn open_part(&self, progress: &mut Progress) -> Result<Part, FetchError> {
        let path: &Path = &self.part;
        let open = OpenOptions::new().create(true).append(true).open(path);
        let file = open.map_err(at(path))?;
        let (mut sum, mut bytes) = sum_of_part(path, self.remote.bytes, progress)?;
        if file.metadata().map_err(at(path))?.len() > self.remote.bytes {
            file.set_len(0).map_err(at(path))?;
            (sum, bytes) = (Sha256::new(), 0);
            progress.start_over();
        }
        progress.rest_begins();
        Ok(Part { file, sum, bytes })
    }

    /// One connection. Inner error: it broke, and another try may help.
    async fn go_on(
        &self,
        part: &mut Part,
        progress: &mut Progress,
    ) -> Result<Result<(), String>, FetchError> {
        let mut transfer = match self.hub.open(self.remote, part.bytes).await? {
            Ok(transfer) => transfer,
            Err(what) => return Ok(Err(what)),
        };
        if transfer.start != part.bytes {
            part.file.set_len(0).map_err(at(&self.part))?;
            part.file.seek(SeekFrom::Start(0)).map_err(at(&self.part))?;
            (part.sum, part.bytes) = (Sha256::new(), 0);
            progress.start_over();
        }
        loop {
            let bytes = match transfer.next().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) if part.bytes < self.remote.bytes => {
                    return Ok(Err("the connection ended early".to_owned()));
                }
                Ok(None) => return Ok(Ok(())),
                Err(what) => return Ok(Err(what)),
            };
            let bytes = bytes.as_ref();
            // More than promised is not wanted; the sum tells whether the rest is right.
            let room = usize::try_from(self.remote.bytes - part.bytes).unwrap_or(usize::MAX);
            let bytes = &bytes[..bytes.len().min(room)];
            part.file
                .write_all(bytes)
                .map_err(|err| self.disk_error(err, part.bytes))?;
            part.sum.update(bytes);
            part.bytes += bytes.len() as u64;
            progress.add(bytes.len() as u64);
            if room == bytes.len() {
                return Ok(Ok(()));
            }
        }
    }

    fn check_sum(&self, part: Part) -> Result<(), FetchError> {
        let Some(expected) = self.remote.sha256() else {
            return Ok(());
        };
        let found = hex(&part.sum.finalize());
        if found == expected {
            return Ok(());
        }
        std::fs::remove_file(&self.part).map_err(at(&self.part))?;
        Err(FetchError::Checksum {
            file: self.remote.name.clone(),
            found,
            expected: expected.to_owned(),
        })
    }

    /// A full disk gets its numbers, everything else its path.
    fn disk_error(&self, err: io::Error, here_bytes: u64) -> FetchError {
        let is_full = matches!(
            err.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let dir = self.part.parent().unwrap_or(&self.part);
        match is_full {
            true => FetchError::DiskFull {
                dir: dir.to_owned(),
                needed_bytes: self.remote.bytes - here_bytes,
                free_bytes: free_bytes(dir).unwrap_or(0),
            },
            false => at(&self.part)(err),
        }
    }
}

/// Sums a part that is there; an unreadable one counts as empty only if it is empty.
fn sum_of_part(
    path: &Path,
    bytes_max: u64,
    progress: &mut Progress,
) -> Result<(Sha256, u64), FetchError> {
    match std::fs::metadata(path).map_err(at(path))?.len() {
        0 => Ok((Sha256::new(), 0)),
        _ => sum_of(path, bytes_max, progress),
    }
}
