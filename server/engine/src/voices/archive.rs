//! `voices.tgz` in memory: nothing is written, nothing is followed.
//!
//! Lives here: which entries of a gzipped tar archive are taken, and the limits on the whole.

use std::io::Read;
use std::path::{Component, Path};

use flate2::read::GzDecoder;
use tar::EntryType;

use super::{BUNDLE_BYTES_MAX, BUNDLES_MAX, LIBRARY_BYTES_MAX};

/// The files of the archive by their bare names, in its order. An archive that tries to leave its folder, holds a link
/// or a device, or is too large is refused as a whole, in one line.
pub(super) fn files(archive: impl Read) -> Result<Vec<(String, Vec<u8>)>, String> {
    // Padding and headers come on top of the files; what is behind the limit reads as the archive's end, so one byte
    // more is offered and counted.
    let limit = LIBRARY_BYTES_MAX + (2_048 * BUNDLES_MAX) as u64;
    let mut tar = tar::Archive::new(GzDecoder::new(archive).take(limit));
    let mut files = Vec::new();
    let mut bytes_left = LIBRARY_BYTES_MAX;
    let entries = tar.entries().map_err(|error| unreadable(&error))?;
    for entry in entries {
        let mut entry = entry.map_err(|error| unreadable(&error))?;
        let path = entry.path().map_err(|error| unreadable(&error))?;
        let shown = path.display().to_string().escape_debug().to_string();
        let name = bare_name(&path)
            .ok_or_else(|| format!("refused, its entry {shown} lies outside the folder"))?;
        match entry.header().entry_type() {
            EntryType::Directory | EntryType::XGlobalHeader => continue,
            EntryType::Regular | EntryType::Continuous => {}
            EntryType::Symlink | EntryType::Link => {
                return Err(format!("refused, its entry {shown} is a link"));
            }
            _ => return Err(format!("refused, its entry {shown} is not a plain file")),
        }
        let size = entry.size();
        if size > BUNDLE_BYTES_MAX || size > bytes_left || files.len() == BUNDLES_MAX {
            return Err(format!(
                "refused at {shown}: more than {BUNDLES_MAX} files, {BUNDLE_BYTES_MAX} bytes a file or {LIBRARY_BYTES_MAX} bytes in all"
            ));
        }
        bytes_left -= size;
        let mut bytes = Vec::new();
        entry
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(&error))?;
        if bytes.len() as u64 != size {
            return Err(format!("is cut off at {shown}"));
        }
        files.push((name, bytes));
    }
    Ok(files)
}

/// The last part of a path that stays where it is; `None` for one that does not.
fn bare_name(path: &Path) -> Option<String> {
    let mut name = String::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => name = part.to_str()?.into(),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!name.contains(['\\', '\0'])).then_some(name)
}

fn unreadable(error: &std::io::Error) -> String {
    format!("is not a readable gzipped tar archive: {error}").replace('\n', " ")
}
