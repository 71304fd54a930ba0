//! Downloads that break off: by the network, by a signal, by the hub.

use super::{MODEL, assert_complete, fetch, fetch_with, part_of};
use crate::hub::{Fault, Gate, Hub, NAME};
use crate::program::Home;
use crate::support::block_until;

#[test]
fn a_cut_connection_goes_on_where_it_broke() {
    let (home, hub) = (Home::new(), Hub::start());
    hub.next_transfer(MODEL, Fault::CutAfter(150_000));
    hub.next_transfer(MODEL, Fault::CutAfter(100_000));
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert_complete(&home, &hub);
    let asked = hub.transfers();
    let starts: Vec<u64> = asked
        .iter()
        .filter(|asked| asked.file == MODEL && asked.at_storage)
        .map(|asked| start_of(&asked.range))
        .collect();
    // A cut may swallow bytes that were on their way, so the exact places are the connection's to choose.
    assert_eq!(starts.len(), 3, "{starts:?}");
    assert!(
        starts[0] == 0 && starts[0] < starts[1] && starts[1] < starts[2],
        "{starts:?}"
    );
}

fn start_of(range: &str) -> u64 {
    let start = range
        .strip_prefix("bytes=")
        .and_then(|range| range.strip_suffix('-'));
    start
        .and_then(|start| start.parse().ok())
        .unwrap_or_else(|| panic!("range {range}"))
}

#[test]
fn a_killed_download_goes_on_with_the_rest_only() {
    let (home, hub) = (Home::new(), Hub::start());
    hub.next_transfer(MODEL, Fault::SilentAfter(200_000));
    let mut child = home.spawn_with(&[("HF_ENDPOINT", &hub.endpoint)], &["fetch", NAME]);
    let part = part_of(&home, &hub, MODEL);
    block_until("200 kB to be here", || {
        std::fs::metadata(&part).is_ok_and(|metadata| metadata.len() == 200_000)
    });

    let second = fetch(&home, &hub);
    assert_eq!(second.code, Some(1), "only one at a time: {second:?}");
    assert!(
        second.complaint().contains("another vivavoce is fetching"),
        "{second:?}"
    );

    child.kill().expect("it runs");
    child.wait().expect("it ends");
    hub.transfers();
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    let ranges: Vec<String> = hub
        .transfers()
        .into_iter()
        .filter(|a| a.file == MODEL)
        .map(|a| a.range)
        .collect();
    assert_eq!(
        ranges,
        ["bytes=200000-", "bytes=200000-"],
        "hub and storage, nothing else"
    );
    assert!(
        fetched
            .stderr
            .contains("model.safetensors: 200.0 KB are here already"),
        "{fetched:?}"
    );
    assert_complete(&home, &hub);
    assert!(!part.exists());
}

#[test]
fn a_hub_without_ranges_starts_over_after_a_cut() {
    let (home, hub) = (Home::new(), Hub::with(Gate::Open, false));
    hub.next_transfer(MODEL, Fault::CutAfter(150_000));
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert_complete(&home, &hub);
}

#[test]
fn a_connection_that_breaks_too_often_keeps_what_is_here() {
    let (home, hub) = (Home::new(), Hub::start());
    hub.next_transfer(MODEL, Fault::CutAfter(100_000));
    let fetched = fetch_with(&home, &hub, &[], &["--retries", "0"]);
    assert_eq!(fetched.code, Some(1), "{fetched:?}");
    assert!(
        fetched
            .complaint()
            .contains("are kept, the same command goes on from there"),
        "{fetched:?}"
    );
    assert!(part_of(&home, &hub, MODEL).exists());
    assert_eq!(fetch(&home, &hub).code, Some(0));
    assert_complete(&home, &hub);
}
