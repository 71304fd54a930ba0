//! What `doctor` says of this machine, and how it ends.

use std::net::TcpListener;

use serde_json::Value;

use super::{ANY_PORT, check, doctor, setting};
use crate::program::Home;

#[test]
fn doctor_fails_with_the_first_reason_when_serve_would_not_work() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken
        .local_addr()
        .map(|address| (taken, address))
        .expect("it is bound");
    let address = taken.1.to_string();
    std::fs::write(home.path().join("file"), "").expect("writable");
    std::fs::create_dir(home.path().join("empty")).expect("writable");
    let cases: [(&str, &[&str]); 5] = [
        ("port", &["--listen", &address]),
        ("model", &["--model", "./empty"]),
        ("model", &["--model", "./nowhere"]),
        ("model", &["--model", "owner/not-fetched"]),
        ("data folder", &["--data-dir", "file/sub"]),
    ];
    for (name, args) in cases {
        let args = if name == "port" {
            args.to_vec()
        } else {
            [&ANY_PORT[..], args].concat()
        };
        let finished = home.run(&[&["doctor", "--json"][..], &args].concat());
        assert_eq!(finished.code, Some(1), "{args:?}: {finished:?}");
        assert!(
            finished.complaint().starts_with(&format!("{name}: ")),
            "{args:?}: {finished:?}"
        );
        let report: Value = serde_json::from_str(&finished.stdout).expect("doctor prints JSON");
        assert_eq!(report["ok"], false);
        assert_eq!(check(&report, name)["state"], "fail", "{report}");
        let cure = check(&report, name)["cure"].as_str().expect("a cure");
        assert!(!cure.is_empty() && !cure.contains("message"), "{report}");
    }
    #[cfg(not(feature = "cuda"))]
    {
        let (code, report) = doctor(
            &home,
            &[],
            &[&ANY_PORT[..], &["--device", "cuda:0"]].concat(),
        );
        assert_eq!(
            (code, &check(&report, "gpu")["state"]),
            (Some(1), &"fail".into()),
            "{report}"
        );
    }
}

#[test]
fn doctor_tells_what_is_worth_knowing() {
    let home = Home::new();
    let args = [&ANY_PORT[..], &["--device", "cpu"]].concat();
    let (code, report) = doctor(&home, &[], &args);
    assert_eq!(code, Some(0), "{report}");
    let microphone = check(&report, "microphone");
    assert!(!microphone.to_string().contains("ssh"), "{microphone}");
    let folder = check(&report, "data folder").to_string();
    assert!(folder.contains("17.0 GB"), "{folder}");

    let (_, report) = doctor(&home, &[], &[&args[..], &["--model", "random"]].concat());
    let model = check(&report, "model").to_string();
    // Either it does not fit into this machine's memory, or it is slow.
    assert!(
        model.contains("far from real time") || model.contains(" are free"),
        "{model}"
    );
}

#[test]
fn doctor_survives_settings_it_cannot_read_and_names_misspelt_variables() {
    let home = Home::new();
    let variables = [("VIVAVOCE_RING", "none"), ("VIVAVOCE_SLOTS", "0")];
    let (code, report) = doctor(&home, &variables, &ANY_PORT);
    assert_eq!(code, Some(2), "as serve would end");
    let wrong = report["checks"].as_array().expect("a list").iter();
    let wrong = wrong.filter(|check| check["name"] == "settings").count();
    assert_eq!(wrong, 2, "{report}");
    assert_eq!(
        check(&report, "port")["state"],
        "ok",
        "the other checks go on"
    );
    assert_eq!(setting(&report, "ring").0, "full", "the default stands in");
    let finding = check(&report, "settings")["finding"]
        .as_str()
        .expect("text")
        .to_owned();
    assert!(finding.contains("VIVAVOCE_RING"), "{finding}");
    let (code, report) = doctor(&home, &[("VIVAVOCE_SLOT", "3")], &ANY_PORT);
    assert_eq!(code, Some(0));
    assert_eq!(check(&report, "environment")["state"], "note", "{report}");
}
