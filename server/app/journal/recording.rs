//! Audio files of calls: 16-bit stereo WAV at 24 kHz, caller left, agent right.
//!
//! Written by a thread of the blocking pool for each recorded call. The row comes before the file and goes after it, so
//! that no file is ever without a row. The call waits for none of it: when the disk is too slow, full, or not there, the
//! recording ends and the call goes on.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use hound::{SampleFormat, WavSpec, WavWriter};
use slots::units::{FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE_HZ};

use super::Journal;
use crate::store::{RecordingRow, Store, StoreError};

/// Frames on their way to the disk (10 s).
const FRAMES_MAX: usize = 125;
/// Frames between two times that the file's head is brought up to date (about 1 s).
const FLUSH_FRAMES: u32 = 12;
/// Frames of the longest file (12 h): its head counts bytes in 32 bits.
const FILE_FRAMES_MAX: u32 = 12 * 60 * 60 * 1_000 / FRAME_MS;
const _: () =
    assert!(FILE_FRAMES_MAX as u64 * FRAME_SAMPLES as u64 * 4 + HEAD_BYTES < u32::MAX as u64);
/// When a row is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Bytes of the head of a plain WAV file.
const HEAD_BYTES: u64 = 44;

const SPEC: WavSpec = WavSpec {
    channels: 2,
    sample_rate: SAMPLE_RATE_HZ,
    bits_per_sample: 16,
    sample_format: SampleFormat::Int,
};

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The row.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file.
    #[error("{file}: {source}")]
    File {
        /// Its path.
        file: String,
        /// Why.
        source: hound::Error,
    },
}

/// Takes frames for a file. Dropping it closes the file.
#[derive(Debug)]
pub(super) struct Recorder {
    tx: SyncSender<Arc<[i16]>>,
}

impl Recorder {
    /// Hands a frame over; false when the disk is too slow or full: nothing more is taken.
    pub(super) fn take(&self, frame: Arc<[i16]>) -> bool {
        self.tx.try_send(frame).is_ok()
    }
}

/// The file of a recording.
pub fn path(folder: &Path, session: i64, key: &str) -> PathBuf {
    // The key's own file name stays secret too: whoever can list the folder can read it anyway.
    folder.join(format!("{session}-{}.wav", &key[..key.len().min(8)]))
}

/// An unguessable name: lets the caller fetch the recording of the own call.
///
/// # Errors
/// The system's source of randomness failed.
pub(super) fn new_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A recording that begins at once. Row, file and thread are made aside, while the first frames wait; if they cannot be
/// made, the recorder takes no more.
pub(super) fn begin(
    journal: &Arc<Journal>,
    folder: &Path,
    session: i64,
    key: &str,
    began_at_ms: i64,
) -> Recorder {
    let (tx, rx) = sync_channel(FRAMES_MAX);
    let (journal, file) = (journal.clone(), path(folder, session, key));
    let row = RecordingRow {
        session_id: session,
        key: key.to_owned(),
        began_at_ms,
        seconds: 0,
        complete: false,
    };
    let open = journal.opens_recording();
    tokio::spawn(async move {
        if let Err(error) = record(&journal, row, file, rx).await {
            tracing::warn!(session, %error, "a recording was given up; the call goes on");
        }
        drop(open);
    });
    Recorder { tx }
}

/// The life of one recording, from its row to the mark that it is complete.
async fn record(
    journal: &Journal,
    row: RecordingRow,
    file: PathBuf,
    rx: Receiver<Arc<[i16]>>,
) -> Result<(), RecordingError> {
    let store = &journal.store;
    let session = row.session_id;
    // The row of the session has to be there before that of its recording.
    journal.flush().await;
    store
        .insert_recording(session, &row.key, row.began_at_ms)
        .await?;
    let path = file.clone();
    let written = tokio::task::spawn_blocking(move || match make(&path) {
        Ok(writer) => Ok(write(writer, &rx)),
        Err(error) => Err(error),
    });
    let failed = |source| RecordingError::File {
        file: file.display().to_string(),
        source,
    };
    let (seconds, result) = match written.await {
        Ok(Ok(Ok(seconds))) => (seconds, Ok(())),
        // What was written until then is kept.
        Ok(Ok(Err(error))) => (mend(&file).unwrap_or(0), Err(failed(error))),
        Ok(Err(error)) => {
            store.delete_recording(session).await?;
            return Err(failed(error));
        }
        Err(error) => {
            let what = std::io::Error::other(error);
            (mend(&file).unwrap_or(0), Err(failed(what.into())))
        }
    };
    while let Err(error) = store.recording_done(session, seconds).await {
        tracing::warn!(session, %error, "a recording cannot be marked as complete; tried again");
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    journal.changed();
    result
}

fn make(file: &Path) -> Result<WavWriter<BufWriter<File>>, hound::Error> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = File::options();
    options.write(true).create_new(true);
    private(&mut options);
    WavWriter::new(BufWriter::new(options.open(file)?), SPEC)
}

#[cfg(unix)]
fn private(options: &mut std::fs::OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

#[cfg(not(unix))]
fn private(_: &mut std::fs::OpenOptions) {}

/// Writes until the session is over, or the file as long as it may be. Length in seconds.
fn write(
    mut writer: WavWriter<BufWriter<File>>,
    rx: &Receiver<Arc<[i16]>>,
) -> Result<i64, hound::Error> {
    let mut frames = 0;
    while frames < FILE_FRAMES_MAX
        && let Ok(frame) = rx.recv()
    {
        let mut samples = writer.get_i16_writer(frame.len() as u32);
        for &sample in &*frame {
            samples.write_sample(sample);
        }
        samples.flush()?;
        frames += 1;
        if frames.is_multiple_of(FLUSH_FRAMES) {
            writer.flush()?;
        }
    }
    let seconds = writer.duration() / SAMPLE_RATE_HZ;
    writer.finalize()?;
    Ok(i64::from(seconds))
}

/// Closes what a process that died left open: the file's head is made true to its length.
pub(super) async fn close_lost(store: &Store, folder: &Path) -> Result<(), StoreError> {
    for row in store.open_recordings().await? {
        let file = path(folder, row.session_id, &row.key);
        match mend(&file) {
            Ok(seconds) => store.recording_done(row.session_id, seconds).await?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                store.delete_recording(row.session_id).await?;
            }
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "a recording cannot be closed");
            }
        }
    }
    Ok(())
}

/// Sets both lengths in the head to what is there. Source: RIFF, chunks `RIFF` and `data` of a plain WAV file.
fn mend(file: &Path) -> std::io::Result<i64> {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = File::options().write(true).open(file)?;
    let data = file.metadata()?.len().saturating_sub(HEAD_BYTES);
    let frame_bytes = u64::from(SPEC.channels) * 2;
    let data = data / frame_bytes * frame_bytes;
    for (at, length) in [(4, data + HEAD_BYTES - 8), (HEAD_BYTES - 4, data)] {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes())?;
    }
    Ok((data / frame_bytes / u64::from(SPEC.sample_rate)) as i64)
}

/// Deletes the file of a recording, then its row.
///
/// # Errors
/// The store's; a file that cannot be deleted is named in the log and its row stays.
pub async fn delete(store: &Store, folder: &Path, row: &RecordingRow) -> Result<(), StoreError> {
    let file = path(folder, row.session_id, &row.key);
    match tokio::fs::remove_file(&file).await {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(StoreError::Io {
            file: file.display().to_string(),
            source,
        }),
        _ => store.delete_recording(row.session_id).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_cut_off_plays_after_mending() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.wav");
        let mut writer = make(&file).unwrap();
        for n in 0..48_000 {
            writer.write_sample(n as i16).unwrap();
        }
        writer.flush().unwrap();
        drop(writer);
        // Half a sample more reached the disk, and the head was not written again.
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.extend([1; 4_003]);
        bytes[4..8].fill(0);
        bytes[40..44].fill(0);
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(mend(&file).unwrap(), 1);
        let reader = hound::WavReader::open(&file).unwrap();
        assert_eq!(reader.duration(), 24_000 + 1_000);
    }
}
