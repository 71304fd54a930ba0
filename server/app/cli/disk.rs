//! What the disk says: free space, whether a folder can be written.
//!
//! Lives here: the one system call for it, and sizes in words.
//! May not live here: what to do about a full disk.

use std::path::Path;

/// Free bytes for this user on the disk that holds `path`, or its nearest parent that exists. `None`: the system does
/// not tell.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|dir| dir.exists())?;
    statvfs_free(existing)
}

#[cfg(unix)]
#[allow(unsafe_code)] // the only way to ask; see SAFETY
fn statvfs_free(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` ends in a NUL byte and outlives the call; `stat` is a whole `statvfs` to write to.
    let rc = unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) };
    if rc != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it filled `stat`, which was all zeros (a valid value) before.
    let stat = unsafe { stat.assume_init() };
    // Their types differ between systems; both are never negative.
    #[allow(clippy::unnecessary_cast)]
    let free = (stat.f_bavail as u64).checked_mul(stat.f_frsize as u64);
    free
}

#[cfg(not(unix))]
fn statvfs_free(_path: &Path) -> Option<u64> {
    None
}

/// Bytes in words, as disks are sold: `16.7 GB`, `553 KB`, `12 bytes`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "KB"),
    ];
    for (size, unit) in UNITS {
        if bytes >= size {
            return format!("{:.1} {unit}", bytes as f64 / size as f64);
        }
    }
    format!("{bytes} bytes")
}

/// Whether files can be made in `dir` or, as long as it does not exist, in its nearest parent that does.
///
/// # Errors
/// What the system says.
pub fn check_writable(dir: &Path) -> std::io::Result<()> {
    let existing = dir.ancestors().find(|dir| dir.exists());
    let existing = existing.unwrap_or(Path::new("."));
    let probe = existing.join(format!(".vivavoce-probe-{}", std::process::id()));
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&probe)?;
    std::fs::remove_file(&probe)
}

/// What to do about a data folder that cannot be written.
pub const DATA_DIR_CURE: &str =
    "give this user the right to write there, or another folder with --data-dir DIR";

/// Makes the data folder where it is not there yet.
///
/// # Errors
/// It cannot be made or written; one line with the cure.
pub fn make_data_dir(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)
        .and_then(|()| check_writable(dir))
        .map_err(|error| {
            anyhow::anyhow!(
                "the data folder {}: {error}; {DATA_DIR_CURE}",
                dir.display()
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_like_sizes() {
        let cases = [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (553_000, "553.0 KB"),
            (16_742_817_792, "16.7 GB"),
            (u64::MAX, "18446744.1 TB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(bytes_text(bytes), text);
        }
    }

    #[test]
    fn the_space_of_a_folder_yet_to_be_made_is_that_of_its_parent() {
        let dir = tempfile::tempdir().expect("a temp folder");
        let deep = dir.path().join("a/b/c");
        assert!(free_bytes(&deep).expect("the system tells") > 0);
        check_writable(&deep).expect("its parent can be written");
        assert_eq!(
            std::fs::read_dir(dir.path()).expect("readable").count(),
            0,
            "nothing stays behind"
        );
    }

    #[test]
    fn a_file_in_the_way_of_a_folder_is_not_writable() {
        let dir = tempfile::tempdir().expect("a temp folder");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("writable");
        assert!(check_writable(&file.join("sub")).is_err());
    }
}
