//! Voice bundles: the recorded ones, and hostile ones.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use engine::config::ModelConfig;
use engine::voices::{BUNDLE_BYTES_MAX, BundleError, VoiceBundle, VoiceLibrary};
use flate2::{Compression, write::DeflateEncoder};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::support::{Golden, checkpoint, checkpoint_folder};

pub fn config() -> ModelConfig {
    checkpoint().config().clone()
}

pub fn recorded(name: &str) -> Vec<u8> {
    fs::read(checkpoint_folder().join("voices").join(name)).unwrap()
}

/// Entries of a zip archive, by name.
fn entries(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut entries = Vec::new();
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).unwrap();
        let mut bytes = Vec::new();
        std::io::copy(&mut entry, &mut bytes).unwrap();
        entries.push((entry.name().unwrap().into_owned(), bytes));
    }
    entries
}

fn zipped(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, bytes) in entries {
        zip.start_file(name.as_str(), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The recorded bundle with some entries changed.
fn changed(change: impl FnOnce(&mut Vec<(String, Vec<u8>)>)) -> Vec<u8> {
    let mut entries = entries(&recorded("NATF0.pt"));
    change(&mut entries);
    zipped(&entries)
}

fn entry<'a>(entries: &'a mut [(String, Vec<u8>)], end: &str) -> &'a mut Vec<u8> {
    let found = entries.iter_mut().find(|(name, _)| name.ends_with(end));
    &mut found.unwrap().1
}

/// A zip archive of one deflated entry that claims `size` bytes, by hand.
fn deflated_entry(name: &str, packed: &[u8], crc: u32, size: u32) -> Vec<u8> {
    let header = |out: &mut Vec<u8>| {
        for word in [20_u16, 0, 8, 0, 33] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in [crc, packed.len() as u32, size] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
    };
    let mut out = b"PK\x03\x04".to_vec();
    header(&mut out);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(packed);
    let directory = out.len() as u32;
    out.extend_from_slice(b"PK\x01\x02\x14\x00");
    header(&mut out);
    out.extend_from_slice(&[0; 14]);
    out.extend_from_slice(name.as_bytes());
    let directory_bytes = out.len() as u32 - directory;
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    out.extend_from_slice(&directory_bytes.to_le_bytes());
    out.extend_from_slice(&directory.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out
}

fn deflated(bytes: &[u8]) -> (Vec<u8>, u32) {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    (encoder.finish().unwrap(), sum.sum())
}

#[test]
fn a_recorded_bundle_holds_what_was_recorded() {
    let golden = Golden::read("voice");
    let bundle = VoiceBundle::read("NATF0.pt", &recorded("NATF0.pt"), &config()).unwrap();
    let embeddings = golden.floats("embeddings_f32").concat();
    assert_eq!(bundle.embeddings.len(), embeddings.len());
    assert_eq!(bundle.n * config().lm.dim, embeddings.len());
    for (ours, recorded) in bundle.embeddings.iter().zip(&embeddings) {
        // The bundle was computed in bfloat16, 17 roundings of 8 bits.
        assert!((ours - recorded).abs() <= 0.02 * recorded.abs() + 0.02);
    }
    let cache = golden.integers("cache");
    assert_eq!(bundle.cache.len(), cache.len());
    for (ours, recorded) in bundle.cache.iter().zip(&cache) {
        assert_eq!(ours.map(i64::from), recorded[..]);
    }
}

#[test]
fn the_same_bundle_is_read_from_safetensors() {
    use safetensors::tensor::{Dtype, TensorView};
    let config = config();
    let from_torch = VoiceBundle::read("NATM0.pt", &recorded("NATM0.pt"), &config).unwrap();
    let mut files = entries(&recorded("NATM0.pt"));
    let (embeddings, cache) = (
        entry(&mut files, "data/0").clone(),
        entry(&mut files, "data/1").clone(),
    );
    let views = [
        (
            "embeddings",
            Dtype::BF16,
            vec![from_torch.n, 1, 1, config.lm.dim],
            &embeddings,
        ),
        ("cache", Dtype::I64, vec![1, 17, 4], &cache),
    ]
    .map(|(name, dtype, shape, data)| (name, TensorView::new(dtype, shape, data).unwrap()));
    let bytes = safetensors::serialize(views, None).unwrap();
    let from_safetensors = VoiceBundle::read("NATM0.safetensors", &bytes, &config).unwrap();
    assert_eq!(from_safetensors.embeddings, from_torch.embeddings);
    assert_eq!(from_safetensors.cache, from_torch.cache);
    assert!(VoiceBundle::read("x.safetensors", &bytes[..bytes.len() - 1], &config).is_err());
}

#[test]
fn a_bundle_of_another_model_is_refused_with_both_shapes() {
    let mut config = config();
    config.lm.dim += 1;
    let error = VoiceBundle::read("NATF0.pt", &recorded("NATF0.pt"), &config).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor embeddings has shape [10, 1, 1, 48], expected [n, 1, 1, 49]"
    );
}

#[test]
fn a_pickle_that_names_anything_else_than_tensors_is_refused_and_named() {
    let cases: [(&[u8], &str); 6] = [
        (
            b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.",
            "posix.system",
        ),
        (b"\x80\x02cos\nsystem\n.", "os.system"),
        (
            b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
            "builtins.eval",
        ),
        (
            b"\x80\x02}X\x0a\0\0\0embeddingsctorch._utils\n_rebuild_parameter\n.",
            "torch._utils._rebuild_parameter",
        ),
        (b"\x80\x02ctorch\nDoubleStorage\n.", "torch.DoubleStorage"),
        (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\x1b[2J\n.",
            "torch._utils._rebuild_tensor_v2\\u{1b}[2J",
        ),
    ];
    for (pickle, name) in cases {
        let bytes = changed(|entries| *entry(entries, "data.pkl") = pickle.to_vec());
        let error = VoiceBundle::read("x.pt", &bytes, &config()).unwrap_err();
        assert_eq!(error, BundleError::Global { name: name.into() });
    }
}

#[test]
fn pickles_that_are_no_dictionary_of_tensors_are_refused() {
    let deep = [b"\x80\x02K\x01".as_slice(), &[0x85; 60_000], b"."].concat();
    let long = vec![b'('; 100_000];
    let cases: [&[u8]; 18] = [
        b"",
        b".",
        b"\x80\x02",
        b"\x80\x02}.",
        b"\x80\x02N.",
        b"\x80\x01}.",
        b"\x80\x02}q\x00h\x00s.",
        b"\x80\x02h\x07.",
        b"\x80\x02R.",
        b"\x80\x02ccollections\nOrderedDict\n)R.",
        b"\x80\x02X\xff\xff\xff\xffabc.",
        b"\x80\x02\x8a\xffabc.",
        b"\x80\x02t.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02}(X\x05\0\0\0cacheK\x01u.",
        b"\x80\x02c\xff\n\xff\n.",
        &deep,
        &long,
    ];
    for pickle in cases {
        let bytes = changed(|entries| *entry(entries, "data.pkl") = pickle.to_vec());
        let error = VoiceBundle::read("x.pt", &bytes, &config()).unwrap_err();
        let shown = &pickle[..pickle.len().min(20)];
        let expected = matches!(
            error,
            BundleError::Pickle { .. } | BundleError::Missing { .. }
        );
        assert!(expected, "{shown:?}: {error}");
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn tensors_that_do_not_fit_their_numbers_are_refused() {
    type Change = fn(&mut Vec<(String, Vec<u8>)>);
    let cases: [(&str, Change); 7] = [
        ("numbers missing", |entries| {
            entry(entries, "data/0").truncate(100)
        }),
        ("numbers too many", |entries| {
            entry(entries, "data/1").push(0)
        }),
        ("no numbers", |entries| {
            entries.retain(|(name, _)| !name.ends_with("data/1"))
        }),
        ("no pickle", |entries| {
            entries.retain(|(name, _)| !name.ends_with("data.pkl"))
        }),
        ("big-endian", |entries| {
            *entry(entries, "byteorder") = b"big".to_vec()
        }),
        ("not finite", |entries| {
            entry(entries, "data/0")[..2].copy_from_slice(&[0xc0, 0x7f])
        }),
        ("a token that no stream has", |entries| {
            entry(entries, "data/1")[..8].fill(0x11)
        }),
    ];
    for (name, change) in cases {
        let error = VoiceBundle::read("x.pt", &changed(change), &config()).expect_err(name);
        assert!(!error.to_string().contains('\n'), "{name}: {error}");
    }
    // Sizes and strides inside the pickle: dimension 48 is written as K 0x30.
    for (name, from, to) in [
        (
            "more rows than numbers",
            b"(K\x0aK\x01K\x01K\x30t",
            b"(K\x0bK\x01K\x01K\x30t",
        ),
        (
            "strides with gaps",
            b"(K\x30K\x30K\x30K\x01t",
            b"(K\x31K\x30K\x30K\x01t",
        ),
    ] {
        let bytes = changed(|entries| {
            let pickle = entry(entries, "data.pkl");
            let at = pickle
                .windows(from.len())
                .position(|window| window == from)
                .expect(name);
            pickle[at..at + to.len()].copy_from_slice(to);
        });
        let error = VoiceBundle::read("x.pt", &bytes, &config()).expect_err(name);
        assert!(
            matches!(error, BundleError::Pickle { .. }),
            "{name}: {error}"
        );
    }
}

#[test]
fn no_cut_and_no_flipped_byte_makes_the_reader_panic() {
    let bytes = recorded("NATM0.pt");
    let config = config();
    for end in 0..bytes.len() {
        VoiceBundle::read("x.pt", &bytes[..end], &config).expect_err("a cut archive");
    }
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            // Some bytes mean nothing; whatever comes back must be a bundle of this model.
            if let Ok(bundle) = VoiceBundle::read("x.pt", &bytes, &config) {
                assert_eq!(bundle.embeddings.len(), bundle.n * config.lm.dim);
            }
        }
    }
}

#[test]
fn a_zip_bomb_is_refused_before_it_is_unpacked() {
    // 200 MB of zeros in 200 kB, once with its true size, once claiming to be small.
    let (packed, crc) = deflated(&vec![0; 200 << 20]);
    for size in [200 << 20, 100] {
        let bytes = deflated_entry("x/data.pkl", &packed, crc, size);
        let error = VoiceBundle::read("x.pt", &bytes, &config()).unwrap_err();
        let refused = match &error {
            BundleError::TooLarge { bytes_max } => *bytes_max == BUNDLE_BYTES_MAX,
            BundleError::Container { what, .. } => what == "entry data.pkl is damaged",
            _ => false,
        };
        assert!(refused, "{size}: {error}");
    }
}

#[test]
fn deflated_entries_are_read() {
    let pickle = b"\x80\x02cos\nsystem\n.";
    let (packed, crc) = deflated(pickle);
    let bytes = deflated_entry("x/data.pkl", &packed, crc, pickle.len() as u32);
    let error = VoiceBundle::read("x.pt", &bytes, &config()).unwrap_err();
    assert_eq!(
        error,
        BundleError::Global {
            name: "os.system".into()
        }
    );
}

#[test]
fn an_archive_with_very_many_entries_is_refused() {
    let bytes = changed(|entries| {
        entries.extend((0..100).map(|index| (format!("x/{index}"), Vec::new())));
    });
    let error = VoiceBundle::read("x.pt", &bytes, &config()).unwrap_err();
    assert!(
        error.to_string().contains("at most 64 are taken"),
        "{error}"
    );
}

#[test]
fn a_broken_voice_is_named_and_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    put("NATF0.pt", &recorded("NATF0.pt"));
    put("NATM0.pt", b"not a zip archive");
    put("NATF0.safetensors", b"a second one");
    put("notes.txt", b"ignored");
    put("._NATF0.pt", b"ignored");
    let library = VoiceLibrary::open(folder.path(), &config());
    assert!(library.names().eq(["NATF0"]));
    let lines: Vec<String> = library.broken().iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains("NATF0.safetensors: is a second file"),
        "{lines:?}"
    );
    assert!(
        lines[1].contains("NATM0.pt: is not a readable zip archive"),
        "{lines:?}"
    );
}

#[test]
fn voices_are_found_by_name_alone() {
    let library = VoiceLibrary::open(&checkpoint_folder().join("voices"), &config());
    for name in ["NATF0", "NATF0.pt", "NATF0.safetensors"] {
        assert_eq!(
            library.get(name).map(|(name, _)| name),
            Some("NATF0"),
            "{name}"
        );
    }
    for name in [
        "",
        ".pt",
        "natf0",
        "NATF0.pt.pt",
        "./NATF0",
        "../voices/NATF0.pt",
        "NATF0\0.pt",
    ] {
        assert_eq!(library.get(name), None, "{name:?}");
    }
}

#[test]
fn a_folder_without_voices_or_no_folder_is_an_empty_library() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path(), Path::new("no/such/folder")] {
        let library = VoiceLibrary::open(path, &config());
        assert!(library.is_empty());
        assert_eq!(library.source(), path.display().to_string());
    }
}

#[test]
fn an_empty_folder_gives_way_to_the_archive_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("voices")).unwrap();
    let archive = fs::read(checkpoint_folder().join("voices.tgz")).unwrap();
    fs::write(folder.path().join("voices.tgz"), archive).unwrap();
    let library = VoiceLibrary::open(&folder.path().join("voices"), &config());
    assert_eq!(library.len(), 2);
    assert!(library.source().ends_with("voices.tgz"));
}

#[cfg(unix)]
#[test]
fn a_pipe_among_the_voices_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("Ada.pt"))
        .status();
    assert!(made.unwrap().success());
    fs::write(folder.path().join("NATF0.pt"), recorded("NATF0.pt")).unwrap();
    let library = VoiceLibrary::open(folder.path(), &config());
    assert!(library.names().eq(["NATF0"]));
    let [error] = library.broken() else {
        panic!("one line")
    };
    assert!(error.to_string().contains("is not a file"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_refused_and_one_inside_is_followed() {
    let outside = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let target = outside.path().join("secret.pt");
    fs::write(&target, recorded("NATM0.pt")).unwrap();
    std::os::unix::fs::symlink(&target, folder.path().join("NATM0.pt")).unwrap();
    fs::write(folder.path().join("NATF0.pt"), recorded("NATF0.pt")).unwrap();
    std::os::unix::fs::symlink("NATF0.pt", folder.path().join("Ada.pt")).unwrap();
    let library = VoiceLibrary::open(folder.path(), &config());
    assert!(library.names().eq(["Ada", "NATF0"]));
    let [error] = library.broken() else {
        panic!("one line")
    };
    assert!(
        error
            .to_string()
            .ends_with("NATM0.pt: is a link that leaves the folder")
    );
}
