//! `vivavoce fetch` against a stand-in hub: what arrives, what is asked for, and what is said when it goes wrong.

mod broken;
mod here;

use std::path::PathBuf;

use crate::hub::{Asked, Gate, Hub, HubFile, NAME, safetensors};
use crate::program::{Finished, Home};

const MODEL: &str = "model.safetensors";
const NEEDED: [&str; 5] = [
    "config.json",
    "model.safetensors",
    "tokenizer-abc-checkpoint125.safetensors",
    "tokenizer_spm_32k_3.model",
    "voices.tgz",
];

fn fetch_with(home: &Home, hub: &Hub, variables: &[(&str, &str)], args: &[&str]) -> Finished {
    let variables = [&[("HF_ENDPOINT", hub.endpoint.as_str())], variables].concat();
    home.run_with(&variables, &[&["fetch", NAME], args].concat())
}

fn fetch(home: &Home, hub: &Hub) -> Finished {
    fetch_with(home, hub, &[], &[])
}

fn folder(home: &Home) -> PathBuf {
    home.data().join("models").join(NAME)
}

fn assert_complete(home: &Home, hub: &Hub) {
    for name in NEEDED {
        let bytes = std::fs::read(folder(home).join(name)).expect(name);
        assert!(bytes == hub.file(name).bytes, "{name} differs");
    }
}

fn part_of(home: &Home, hub: &Hub, name: &str) -> PathBuf {
    folder(home)
        .join(".fetch")
        .join(format!("{}.part", hub.file(name).etag))
}

fn names_at_storage(asked: &[Asked]) -> Vec<&str> {
    asked
        .iter()
        .filter(|asked| asked.at_storage)
        .map(|asked| asked.file.as_str())
        .collect()
}

#[test]
fn a_model_arrives_whole_and_its_name_can_be_served() {
    let (home, hub) = (Home::new(), Hub::start());
    let fetched = fetch_with(&home, &hub, &[("HF_TOKEN", "hf_sesame")], &[]);
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert_complete(&home, &hub);
    assert!(
        !folder(&home).join("dist.tgz").exists(),
        "nobody needs the web client"
    );
    let line = fetched
        .stderr
        .lines()
        .find(|l| l.starts_with(MODEL) && l.ends_with("done"));
    let line = line.expect("a line of progress for the largest file");
    assert!(
        line.contains("400.1 KB of 400.1 KB (100%)") && line.contains("/s"),
        "{line}"
    );
    assert!(
        fetched
            .stdout
            .contains(&format!("vivavoce serve --model {NAME}")),
        "{fetched:?}"
    );

    let asked = hub.transfers();
    assert!(
        asked.iter().any(|asked| asked.had_token),
        "the hub is told who asks"
    );
    assert!(
        asked
            .iter()
            .all(|asked| !asked.at_storage || !asked.had_token),
        "{asked:?}"
    );
    let doctor = home.run(&["doctor", "--model", NAME, "--listen", "127.0.0.1:0"]);
    // It is found and opened. The stand-in's weights are too few to be served, and doctor sees what serve would see.
    let complaint = doctor.complaint();
    assert!(
        complaint.contains("model.safetensors: tensor text_emb.weight is missing"),
        "{complaint}"
    );
}

#[test]
fn a_gated_model_says_where_its_licence_is_and_how_to_pass_a_token() {
    let gate = |accepted| Gate::Token {
        token: "hf_good",
        accepted,
    };
    let licence = |hub: &Hub| format!("{}/{NAME}", hub.endpoint);
    let cases: [(&str, bool, Option<&str>, &[&str]); 3] = [
        (
            "no token",
            true,
            None,
            &["gated and no token", "HF_TOKEN", "HF_TOKEN_PATH"],
        ),
        (
            "a wrong token",
            true,
            Some("hf_wrong"),
            &["does not take the token from HF_TOKEN"],
        ),
        (
            "licence not accepted",
            false,
            Some("hf_good"),
            &["is not let in", "HF_TOKEN"],
        ),
    ];
    for (name, accepted, token, words) in cases {
        let (home, hub) = (Home::new(), Hub::with(gate(accepted), true));
        let variables: Vec<_> = token.map(|token| ("HF_TOKEN", token)).into_iter().collect();
        let fetched = fetch_with(&home, &hub, &variables, &[]);
        assert_eq!(fetched.code, Some(1), "{name}: {fetched:?}");
        let complaint = fetched.complaint();
        assert!(complaint.contains(&licence(&hub)), "{name}: {complaint}");
        for word in words {
            assert!(complaint.contains(word), "{name}: {complaint}");
        }
        let said = format!("{}{}", fetched.stdout, fetched.stderr);
        assert!(
            !said.contains("hf_wrong") && !said.contains("hf_good"),
            "{name}: {said}"
        );
    }
}

#[test]
fn a_token_is_found_where_the_hubs_own_tools_put_it() {
    let places = [
        ("HF_TOKEN_PATH", "secrets/token"),
        ("HF_HOME", "hub-home/token"),
    ];
    for (variable, file) in places {
        let gate = Gate::Token {
            token: "hf_good",
            accepted: true,
        };
        let (home, hub) = (Home::new(), Hub::with(gate, true));
        let file = home.path().join(file);
        let parent = file.parent().expect("it has one");
        std::fs::create_dir_all(parent).expect("writable");
        std::fs::write(&file, "hf_good\n").expect("writable");
        let value = if variable == "HF_HOME" { parent } else { &file };
        let value = value.to_str().expect("plain path");
        let fetched = fetch_with(&home, &hub, &[(variable, value)], &[]);
        assert_eq!(fetched.code, Some(0), "{variable}: {fetched:?}");
    }
}

#[test]
fn a_wrong_sum_discards_the_file_and_names_it() {
    let (home, hub) = (Home::new(), Hub::start());
    let mut file = hub.file(MODEL);
    let right = file.etag.clone();
    file.bytes[1_000] ^= 1;
    hub.put(MODEL, file);
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(1), "{fetched:?}");
    let complaint = fetched.complaint();
    assert!(
        complaint.starts_with(&format!("checksum mismatch: {MODEL}")),
        "{complaint}"
    );
    assert!(
        complaint.contains(&right) && complaint.contains("discarded"),
        "{complaint}"
    );
    assert!(!folder(&home).join(MODEL).exists() && !part_of(&home, &hub, MODEL).exists());
}

#[test]
fn a_disk_too_small_is_known_before_the_first_byte() {
    let (home, hub) = (Home::new(), Hub::start());
    let mut file = hub.file(MODEL);
    file.size = Some(4_000_000_000_000_000_000);
    hub.put(MODEL, file);
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(1), "{fetched:?}");
    let complaint = fetched.complaint();
    assert!(
        complaint.contains("4000000.0 TB more are needed"),
        "{complaint}"
    );
    assert!(complaint.contains(" are free; make room"), "{complaint}");
    assert_eq!(hub.transfers(), []);
}

/// `/dev/full` answers every write as a full disk does.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills_up_on_the_way_gets_one_line_with_both_numbers() {
    let (home, hub) = (Home::new(), Hub::start());
    let part = part_of(&home, &hub, MODEL);
    std::fs::create_dir_all(part.parent().expect("it has one")).expect("writable");
    std::os::unix::fs::symlink("/dev/full", &part).expect("writable");
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(1), "{fetched:?}");
    let complaint = fetched.complaint();
    assert!(
        complaint.contains("400.1 KB more are needed"),
        "{complaint}"
    );
    assert!(complaint.contains(" are free; make room"), "{complaint}");
    std::fs::remove_file(&part).expect("it is a link");
    assert_eq!(fetch(&home, &hub).code, Some(0));
    assert_complete(&home, &hub);
}

#[test]
fn a_model_that_is_not_there_or_is_another_kind_is_named() {
    let (home, hub) = (Home::new(), Hub::start());
    let variables = [("HF_ENDPOINT", hub.endpoint.as_str())];
    let fetched = home.run_with(&variables, &["fetch", "owner/nothing"]);
    assert_eq!(fetched.code, Some(1), "{fetched:?}");
    assert!(
        fetched.complaint().contains("knows no model owner/nothing"),
        "{fetched:?}"
    );

    hub.remove("tokenizer_spm_32k_3.model");
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(1), "{fetched:?}");
    assert!(
        fetched.complaint().contains("has no tokenizer_spm_*.model"),
        "{fetched:?}"
    );
    assert_eq!(hub.transfers(), []);
}

#[test]
fn nobody_at_the_address_is_one_line() {
    let home = Home::new();
    // Port 9 of the own machine: nothing listens there.
    let fetched = home.run_with(&[("HF_ENDPOINT", "http://127.0.0.1:9")], &["fetch", NAME]);
    assert_eq!(fetched.code, Some(1), "{fetched:?}");
    let complaint = fetched.complaint();
    assert!(complaint.contains("http://127.0.0.1:9"), "{complaint}");
    assert!(complaint.contains("HF_ENDPOINT"), "{complaint}");
    assert!(
        !complaint.contains("goes on"),
        "nothing is here: {complaint}"
    );
    assert_eq!(fetched.stderr.lines().count(), 1, "{fetched:?}");
    assert!(!folder(&home).exists(), "no empty folder stays behind");
    let doctor = home.run(&["doctor", "--model", NAME, "--listen", "127.0.0.1:0"]);
    assert!(
        doctor.complaint().contains("there is no model in"),
        "{doctor:?}"
    );
    assert!(
        doctor
            .stdout
            .contains(&format!("-> run `vivavoce fetch {NAME}` first")),
        "{doctor:?}"
    );
}

#[test]
fn names_and_tags_from_the_hub_cannot_leave_the_folder() {
    let (home, hub) = (Home::new(), Hub::start());
    for name in [
        "../evil.pt",
        "voices/../../evil.pt",
        "tokenizer-/../../evil.safetensors",
    ] {
        hub.put(name, HubFile::large(safetensors(10, 3)));
    }
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert!(
        hub.transfers()
            .iter()
            .all(|asked| !asked.file.contains("evil"))
    );

    let etag = "../../../evil".to_owned();
    hub.put(
        "config.json",
        HubFile {
            bytes: b"{}".to_vec(),
            etag,
            size: None,
        },
    );
    let fetched = fetch(&home, &hub);
    assert_eq!(fetched.code, Some(1), "{fetched:?}");
    assert!(fetched.complaint().contains("its tag is"), "{fetched:?}");
    assert!(!home.data().join("evil").exists() && !home.data().join("models/evil").exists());
}
