//! Without asking the hub: what is here already, and the cache of its own tools.

use std::path::Path;

use super::{MODEL, NEEDED, assert_complete, fetch, fetch_with, folder, names_at_storage};
use crate::hub::{Hub, HubFile, NAME};
use crate::program::Home;

#[test]
fn what_is_here_is_not_fetched_again() {
    let (home, hub) = (Home::new(), Hub::start());
    assert_eq!(fetch(&home, &hub).code, Some(0));
    hub.transfers();
    let again = fetch(&home, &hub);
    assert_eq!(
        (again.code, hub.transfers()),
        (Some(0), vec![]),
        "{again:?}"
    );

    hub.put("voices.tgz", HubFile::large(b"more voices".to_vec()));
    let newer = fetch(&home, &hub);
    assert_eq!(newer.code, Some(0), "{newer:?}");
    assert_eq!(names_at_storage(&hub.transfers()), ["voices.tgz"]);
    assert_complete(&home, &hub);
}

#[test]
fn a_file_put_there_by_hand_is_taken_if_its_sum_is_right() {
    let (home, hub) = (Home::new(), Hub::start());
    std::fs::create_dir_all(folder(&home)).expect("writable");
    std::fs::write(folder(&home).join(MODEL), hub.file(MODEL).bytes).expect("writable");
    let mut wrong = hub.file("voices.tgz").bytes;
    wrong[0] ^= 1;
    std::fs::write(folder(&home).join("voices.tgz"), wrong).expect("writable");
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    let asked = hub.transfers();
    let asked = names_at_storage(&asked);
    assert!(
        !asked.contains(&MODEL) && asked.contains(&"voices.tgz"),
        "{asked:?}"
    );
    assert_complete(&home, &hub);
}

#[test]
fn offline_asks_nothing_and_uses_what_is_here() {
    let (home, hub) = (Home::new(), Hub::start());
    let switches = [("HF_HUB_OFFLINE", "1"), ("VIVAVOCE_OFFLINE", "on")];
    for switch in switches {
        let fetched = fetch_with(&home, &hub, &[switch], &[]);
        assert_eq!(fetched.code, Some(1), "{fetched:?}");
        assert!(
            fetched.complaint().contains("has no model.safetensors"),
            "{fetched:?}"
        );
    }
    assert_eq!(fetch_with(&home, &hub, &[], &["--offline"]).code, Some(1));
    assert_eq!(hub.transfers(), []);
    assert_eq!(fetch(&home, &hub).code, Some(0));
    hub.transfers();
    for switch in switches {
        let fetched = fetch_with(&home, &hub, &[switch], &[]);
        assert_eq!(
            (fetched.code, hub.transfers()),
            (Some(0), vec![]),
            "{fetched:?}"
        );
    }
}

/// Lays the files out as the hub's own tools do: blobs, and a snapshot of links to them.
fn fill_cache(cache: &Path, hub: &Hub, names: &[&str]) {
    let repo = cache.join(format!("models--{}", NAME.replace('/', "--")));
    for dir in ["blobs", "refs", "snapshots/abc"] {
        std::fs::create_dir_all(repo.join(dir)).expect("writable");
    }
    std::fs::write(repo.join("refs/main"), "abc").expect("writable");
    for name in names {
        let file = hub.file(name);
        std::fs::write(repo.join("blobs").join(&file.etag), &file.bytes).expect("writable");
        let link = repo.join("snapshots/abc").join(name);
        #[cfg(unix)]
        std::os::unix::fs::symlink(format!("../../blobs/{}", file.etag), link).expect("writable");
    }
}

#[cfg(unix)]
#[test]
fn the_hubs_cache_of_this_machine_is_linked_not_fetched() {
    let (home, hub) = (Home::new(), Hub::start());
    let cache = home.path().join("cache/hub");
    fill_cache(&cache, &hub, &[MODEL]);
    let hf_home = home.path().join("cache");
    let variables = [("HF_HOME", hf_home.to_str().expect("plain path"))];
    let fetched = fetch_with(&home, &hub, &variables, &[]);
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert!(!names_at_storage(&hub.transfers()).contains(&MODEL));
    assert_complete(&home, &hub);
    std::fs::remove_dir_all(&cache).expect("writable");
    assert_complete(&home, &hub);
}

#[cfg(unix)]
#[test]
fn offline_takes_a_whole_model_from_the_hubs_cache() {
    let (home, hub) = (Home::new(), Hub::start());
    fill_cache(&home.path().join("cache"), &hub, &NEEDED);
    let cache = home.path().join("cache");
    let variables = [
        ("HF_HUB_CACHE", cache.to_str().expect("plain path")),
        ("HF_HUB_OFFLINE", "1"),
    ];
    let fetched = fetch_with(&home, &hub, &variables, &[]);
    assert_eq!(
        (fetched.code, hub.transfers()),
        (Some(0), vec![]),
        "{fetched:?}"
    );
    assert_complete(&home, &hub);
}
