//! `voices.tgz`: the recorded one, and hostile ones.

use std::fs;
use std::io::Write;

use engine::voices::VoiceLibrary;
use flate2::{Compression, write::GzEncoder};

use crate::support::checkpoint_folder;
use crate::voices::{config, recorded};

/// A gzipped tar archive, its headers written without any check.
fn tgz(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, kind, bytes) in entries {
        let mut header = tar::Header::new_ustar();
        let name = &mut header.as_old_mut().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        if kind.is_symlink() || kind.is_hard_link() {
            header.as_old_mut().linkname[..11].copy_from_slice(b"/etc/passwd");
        }
        header.set_cksum();
        tar.append(&header, *bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[test]
fn the_recorded_archive_holds_the_same_voices_as_the_folder() {
    let config = config();
    let bytes = fs::read(checkpoint_folder().join("voices.tgz")).unwrap();
    let packed = VoiceLibrary::from_archive("voices.tgz", &bytes, &config);
    let unpacked = VoiceLibrary::open(&checkpoint_folder().join("voices"), &config);
    assert!(packed.names().eq(unpacked.names()));
    assert_eq!(packed.len(), 2);
    for name in packed.names() {
        assert_eq!(packed.get(name), unpacked.get(name));
    }
}

#[test]
fn an_archive_that_tries_to_leave_its_folder_is_refused_as_a_whole() {
    use tar::EntryType;
    let voice = recorded("NATF0.pt");
    let cases: [(&str, EntryType, &str); 6] = [
        ("../NATF0.pt", EntryType::Regular, "lies outside the folder"),
        (
            "voices/../../NATF0.pt",
            EntryType::Regular,
            "lies outside the folder",
        ),
        (
            "/etc/NATF0.pt",
            EntryType::Regular,
            "lies outside the folder",
        ),
        ("voices/NATF1.pt", EntryType::Symlink, "is a link"),
        ("voices/NATF1.pt", EntryType::Link, "is a link"),
        ("voices/NATF1.pt", EntryType::Fifo, "is not a plain file"),
    ];
    for (path, kind, message) in cases {
        let content: &[u8] = if kind == EntryType::Regular {
            &voice
        } else {
            b""
        };
        let bytes = tgz(&[
            ("voices/NATM0.pt", EntryType::Regular, &voice),
            (path, kind, content),
        ]);
        let library = VoiceLibrary::from_archive("voices.tgz", &bytes, &config());
        assert!(library.is_empty(), "{path}");
        let [error] = library.broken() else {
            panic!("{path}: one line");
        };
        let line = error.to_string();
        assert!(
            line.starts_with("voices.tgz: refused, its entry "),
            "{line}"
        );
        assert!(line.contains(message), "{line}");
    }
}

#[test]
fn a_cut_or_foreign_archive_is_one_line() {
    let bytes = fs::read(checkpoint_folder().join("voices.tgz")).unwrap();
    for bytes in [&bytes[..bytes.len() / 2], b"not gzip", b""] {
        let library = VoiceLibrary::from_archive("voices.tgz", bytes, &config());
        assert!(library.is_empty());
        let [error] = library.broken() else {
            panic!("one line for {} bytes", bytes.len());
        };
        assert!(error.to_string().starts_with("voices.tgz: is"), "{error}");
    }
}

#[test]
fn an_archive_that_unpacks_to_very_much_is_refused() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut header = tar::Header::new_ustar();
    header.set_path("voices/NATF0.pt").unwrap();
    header.set_size(8 << 30);
    header.set_cksum();
    gzip.write_all(header.as_bytes()).unwrap();
    gzip.write_all(&vec![0; 1 << 20]).unwrap();
    let bytes = gzip.finish().unwrap();
    let library = VoiceLibrary::from_archive("voices.tgz", &bytes, &config());
    let error = library.broken()[0].to_string();
    assert!(
        error.starts_with("voices.tgz: refused at voices/NATF0.pt"),
        "{error}"
    );
}
