//! The rules of this project's style that a program can check. Each test names one.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file; past it, it no longer fits one mind.
const FILE_LINES_MAX: usize = 600;

/// Every file with one of `endings` below `dir`, but for build output.
fn files(dir: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let skipped = ["target", ".git", "demo", "fixtures"].contains(&name.as_str());
        if path.is_dir() && !skipped {
            files(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

fn sources(endings: &[&str]) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for dir in ["server", "tests", "benches", "ui", ".ci"] {
        files(&root.join(dir), endings, &mut found);
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_default();
        (path, text)
    };
    found.into_iter().map(read).collect()
}

fn check(rule: &str, endings: &[&str], broken: impl Fn(&Path, &str) -> Option<String>) {
    let sources = sources(endings);
    assert!(sources.len() > 2, "the sources were not found");
    let list: Vec<String> = sources
        .iter()
        .filter_map(|(path, text)| Some(format!("{}: {}", path.display(), broken(path, text)?)))
        .collect();
    assert!(list.is_empty(), "{rule}:\n{}", list.join("\n"));
}

#[test]
fn a_file_fits_one_mind() {
    check(
        "a file that grows past 600 lines is split",
        &[".rs"],
        |_, text| {
            let lines = text.lines().count();
            (lines > FILE_LINES_MAX).then(|| format!("{lines} lines"))
        },
    );
}

#[test]
fn a_file_opens_by_saying_what_lives_in_it() {
    check("the first line is a //! comment", &[".rs"], |_, text| {
        let opens = text.starts_with("//!") || text.starts_with("#!");
        (!opens).then(|| text.lines().next().unwrap_or_default().to_owned())
    });
}

#[test]
fn nothing_is_left_to_be_done() {
    let open = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("FIX", "ME"),
    ];
    check("no open ends in code", &[".rs", ".sh", ".js"], |_, text| {
        open.iter()
            .find(|word| text.contains(**word))
            .map(|word| (*word).to_owned())
    });
}

#[test]
fn tests_wait_for_conditions_and_not_for_time() {
    let words = [concat!("thread::", "sleep("), concat!("time::", "sleep(")];
    check("no sleeping in tests", &[".rs"], |path, text| {
        // What looks again until a condition holds may pause between two looks: one file for each test program.
        let in_tests = path.components().any(|part| part.as_os_str() == "tests")
            && !path.ends_with("tests/it/support.rs")
            && !path.ends_with("tests/browser/chromium.rs");
        let found = words
            .iter()
            .find(|word| text.contains(**word))
            .filter(|_| in_tests);
        found.map(|word| (*word).to_owned())
    });
}

#[test]
fn a_room_names_only_the_rooms_below_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let forbidden = [
        (
            "server/wire/Cargo.toml",
            &["slots", "engine", "tokio", "axum", "candle"][..],
        ),
        (
            "server/slots/Cargo.toml",
            &["wire", "engine", "tokio", "axum", "candle", "rand"][..],
        ),
        (
            "server/engine/Cargo.toml",
            &["wire", "tokio", "axum", "sqlx"][..],
        ),
    ];
    for (manifest, rooms) in forbidden {
        let text = fs::read_to_string(root.join(manifest)).expect("the manifest is there");
        for room in rooms {
            let named = text.lines().any(|line| {
                let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
                name == *room || name.starts_with(&format!("{room}-"))
            });
            assert!(!named, "{manifest} names {room}");
        }
    }
}
