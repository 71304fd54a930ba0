//! The zip container of a `.pt` file: named entries of bounded size, in memory.
//!
//! Lives here: the limits, stored and deflated entries, the check sum.

use std::io::{Cursor, Read};

use flate2::Crc;
use flate2::read::DeflateDecoder;
use zip::{CompressionMethod, ZipArchive};

use super::{BUNDLE_BYTES_MAX, BundleError};

/// Entries of a `torch.save` archive: two tensors and a handful of small files.
const ENTRIES_MAX: usize = 64;

/// An archive whose entries lie below one root folder.
pub(super) struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    root: String,
    bytes_left: u64,
}

impl<'a> Archive<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, BundleError> {
        let zip = ZipArchive::new(Cursor::new(bytes)).map_err(|error| container(&error))?;
        if zip.len() > ENTRIES_MAX {
            return Err(container(&format_args!(
                "it has {} entries, at most {ENTRIES_MAX} are taken",
                zip.len()
            )));
        }
        let root = zip
            .file_names()
            .filter_map(Result::ok)
            .find_map(|name| name.strip_suffix("data.pkl").map(String::from))
            .filter(|root| root.is_empty() || root.ends_with('/'));
        let root = root.ok_or_else(|| container(&"it has no data.pkl"))?;
        Ok(Self {
            zip,
            root,
            bytes_left: BUNDLE_BYTES_MAX,
        })
    }

    /// The bytes of entry `name` below the root.
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>, BundleError> {
        let found = self.read_optional(name)?;
        found.ok_or_else(|| container(&format_args!("it has no entry {name}")))
    }

    /// The same, `None` where there is no such entry.
    pub(super) fn read_optional(&mut self, name: &str) -> Result<Option<Vec<u8>>, BundleError> {
        let path = format!("{}{name}", self.root);
        let Some(index) = self.zip.index_for_name(&path) else {
            return Ok(None);
        };
        let entry = self
            .zip
            .by_index_raw(index)
            .map_err(|error| container(&error))?;
        if entry.encrypted() {
            return Err(container(&format_args!("entry {name} is encrypted")));
        }
        let (size, crc, method) = (entry.size(), entry.crc32(), entry.compression());
        if size > self.bytes_left {
            return Err(BundleError::TooLarge {
                bytes_max: BUNDLE_BYTES_MAX,
            });
        }
        self.bytes_left -= size;
        // One byte more than promised shows an entry that grows beyond its size.
        let limit = size + 1;
        let mut bytes = Vec::new();
        let outcome = match method {
            CompressionMethod::Stored => entry.take(limit).read_to_end(&mut bytes),
            CompressionMethod::DEFLATE => DeflateDecoder::new(entry)
                .take(limit)
                .read_to_end(&mut bytes),
            other => {
                return Err(container(&format_args!(
                    "entry {name} is packed by {other}, expected stored or deflated"
                )));
            }
        };
        outcome.map_err(|error| container(&format_args!("entry {name}: {error}")))?;
        let mut sum = Crc::new();
        sum.update(&bytes);
        if bytes.len() as u64 != size || sum.sum() != crc {
            return Err(container(&format_args!("entry {name} is damaged")));
        }
        Ok(Some(bytes))
    }
}

fn container(what: &dyn std::fmt::Display) -> BundleError {
    BundleError::Container {
        kind: "zip archive",
        what: what.to_string().replace('\n', " "),
    }
}
