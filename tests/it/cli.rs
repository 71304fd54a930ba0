//! The command line: help, wrong values, the order of settings, what `doctor` says.

mod doctor;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;

use clap::CommandFactory;
use serde_json::Value;
use vivavoce::cli::Cli;

use crate::program::Home;

const COMMANDS: [&str; 8] = [
    "serve", "run", "bench", "load", "verify", "fetch", "doctor", "password",
];

#[test]
fn every_command_has_help_with_examples_and_every_flag_is_explained() {
    let mut cli = Cli::command();
    cli.build();
    cli.clone().debug_assert();
    let names: Vec<_> = cli
        .get_subcommands()
        .map(|command| command.get_name())
        .collect();
    assert_eq!(names, COMMANDS);
    for command in cli.get_subcommands() {
        let name = command.get_name();
        assert!(command.get_about().is_some(), "{name} says what it does");
        assert!(command.get_long_about().is_some(), "{name} says how");
        let after = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(
            after.contains("Examples:") && after.contains(&format!("vivavoce {name}")),
            "{name}"
        );
        for argument in command.get_arguments() {
            let help = argument
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.len() > 5, "{name} {}: {help:?}", argument.get_id());
        }
    }
}

#[test]
fn help_and_version_are_printed_and_are_no_error() {
    let home = Home::new();
    for command in COMMANDS {
        let help = home.run(&[command, "--help"]);
        assert_eq!(
            (help.code, help.stderr.as_str()),
            (Some(0), ""),
            "{command}"
        );
        assert!(help.stdout.contains("Examples:"), "{command}");
        assert!(help.stdout.contains("--data-dir"), "{command}");
    }
    let version = home.run(&["--version"]);
    let expected = format!("vivavoce {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((version.code, version.stdout), (Some(0), expected));
    assert_eq!(home.run(&[]).code, Some(2), "no command");
}

#[test]
fn a_reader_that_goes_away_is_not_an_error() {
    let home = Home::new();
    let reference = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/server/engine/tests/fixtures/tiny2"
    );
    for args in [
        &["doctor", "--listen", "127.0.0.1:0"][..],
        &["serve", "--help"],
        &["verify", "--device", "cpu", "--reference", reference],
    ] {
        let mut child = home.spawn_with(&[], args);
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {ended:?}");
    }
}

#[test]
fn a_wrong_argument_is_one_line_that_names_it_and_exit_code_2() {
    let cases: [(&[&str], &[&str]); 23] = [
        (
            &["serve", "--slots", "0"],
            &["--slots", "'0'", "from 1 to 256"],
        ),
        (
            &["serve", "--slots", "257"],
            &["--slots", "'257'", "from 1 to 256"],
        ),
        (&["serve", "--slots", "-1"], &["-1"]),
        (&["serve", "--slots", "NaN"], &["--slots", "'NaN'", "auto"]),
        (
            &["serve", "--threads", "1025"],
            &["--threads", "from 1 to 1024"],
        ),
        (
            &["serve", "--device", "cuda"],
            &["--device", "'cuda'", "cuda:N"],
        ),
        (
            &["serve", "--dtype", "f16"],
            &["--dtype", "'f16'", "f32, bf16, q8_0"],
        ),
        (
            &["serve", "--kv-dtype", "int4"],
            &["--kv-dtype", "'int4'", "one of auto, f32, bf16"],
        ),
        (&["doctor", "--kv-dtype", "int4"], &["--kv-dtype", "'int4'"]),
        (
            &["serve", "--order", "later"],
            &["--order", "sooner, overlapped"],
        ),
        (&["serve", "--ring", "tiny"], &["--ring", "full, short"]),
        (
            &["serve", "--pin-prompt", "maybe"],
            &["--pin-prompt", "auto, on, off"],
        ),
        (
            &["serve", "--admission", "maybe"],
            &["--admission", "on or off"],
        ),
        (
            &["serve", "--listen", "8998"],
            &["--listen", "ADDRESS:PORT"],
        ),
        (
            &["serve", "--listen", "127.0.0.1:65536"],
            &["--listen", "65535"],
        ),
        (
            &["serve", "--watchdog", "1"],
            &["--watchdog", "from 2 to 3600"],
        ),
        (
            &["serve", "--drain-limit", "25h"],
            &["--drain-limit", "from 0 to 86400"],
        ),
        (
            &["serve", "--model", "no such model"],
            &["--model", "owner/name"],
        ),
        (&["serve", "--no-such-flag"], &["--no-such-flag"]),
        (&["run", "--output", "b.wav"], &["--input"]),
        (&["bench", "--batch", "1,0"], &["--batch", "'0'", "1..=256"]),
        (&["fetch", "../etc"], &["'../etc'", "owner/name"]),
        (&["swerve"], &["'swerve'", "serve"]),
    ];
    let home = Home::new();
    for (args, words) in cases {
        let refused = home.run(args);
        assert_eq!(
            (refused.code, refused.stdout.as_str()),
            (Some(2), ""),
            "{args:?}"
        );
        assert_eq!(
            refused.stderr.lines().count(),
            1,
            "{args:?}: {}",
            refused.stderr
        );
        for word in words {
            assert!(
                refused.complaint().contains(word),
                "{args:?}: {}",
                refused.stderr
            );
        }
    }
}

#[test]
fn a_wrong_setting_in_environment_or_file_names_its_place() {
    let home = Home::new();
    let refused = home.run_with(&[("VIVAVOCE_SLOTS", "many")], &["serve"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let expected = "VIVAVOCE_SLOTS is \"many\": it must be auto or a whole number from 1 to 256";
    assert_eq!(refused.complaint(), expected);

    let cases = [
        (
            "slots = 0\n",
            "slots in FILE is \"0\": it must be auto or a whole number from 1 to 256",
        ),
        (
            "slots = [4]\n",
            "slots in FILE is \"[4]\": it must be auto or a whole number from 1 to 256",
        ),
        (
            "kv-dtype = 'f32'\nkv_dtype = 'f32'\n",
            "key \"kv_dtype\" stands twice in FILE",
        ),
        (
            "data-dir = '/x'\nslot = 4\n",
            "unknown key \"slot\" in FILE; known keys: ",
        ),
        ("ring = 'full'\nslots = = 4\n", "FILE, line 2: "),
    ];
    let file = home.path().join("settings.toml");
    let path = file.to_str().expect("plain path");
    for (text, complaint) in cases {
        std::fs::write(&file, text).expect("writable");
        let refused = home.run(&["serve", "--config", path]);
        assert_eq!(refused.code, Some(2), "{text}: {refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{text}: {refused:?}");
        let said = refused.complaint().replace(path, "FILE");
        assert!(said.starts_with(complaint), "{text}: {said}");
    }
    let missing = home.run(&["serve", "--config", "nowhere.toml"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.complaint().contains("nowhere.toml"), "{missing:?}");
    let causes = missing.complaint().matches("os error").count();
    assert_eq!(causes, 1, "the cause is said once: {missing:?}");
}

#[test]
fn serve_says_what_cannot_work_before_it_opens_the_port() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("empty")).expect("writable");
    let fetch_broke = home.data().join("models/owner/name/.fetch");
    std::fs::create_dir_all(fetch_broke).expect("writable");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken_address = taken.local_addr().expect("it is bound").to_string();
    let free = "127.0.0.1:0";
    let cases: [(&str, &[&str], &[&str]); 4] = [
        (
            free,
            &["--model", "./empty"],
            &[
                "--model ./empty",
                "has no model.safetensors; give the folder",
            ],
        ),
        (
            free,
            &["--model", "owner/name"],
            &["run `vivavoce fetch owner/name` first"],
        ),
        (
            free,
            &["--model", "./nowhere"],
            &["there is no model in ./nowhere; give the folder"],
        ),
        (
            &taken_address,
            &[],
            &["cannot listen on", &taken_address, "another vivavoce?"],
        ),
    ];
    for (listen, args, words) in cases {
        let refused =
            home.run(&[&["serve", "--device", "cpu", "--listen", listen][..], args].concat());
        assert_eq!(refused.code, Some(1), "{args:?}: {refused:?}");
        assert!(
            !refused.stderr.contains("listening"),
            "{args:?}: {refused:?}"
        );
        for word in words {
            assert!(refused.complaint().contains(word), "{args:?}: {refused:?}");
        }
        assert!(
            refused.complaint().matches("os error").count() <= 1,
            "{refused:?}"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_server_without_callers_stops_at_once_and_says_so() {
    let home = Home::new();
    let args = [
        "serve",
        "--device",
        "cpu",
        "--slots",
        "1",
        "--listen",
        "127.0.0.1:0",
    ];
    let mut server = home.spawn_with(&[], &args);
    let log = BufReader::new(server.stderr.take().expect("it is piped"));
    let mut lines = log.lines().map(|line| line.expect("the log is UTF-8"));
    let ready = lines.find(|line| line.contains(" ready "));
    let ready = ready.expect("the demo loads");
    let seconds = ready.split_once("seconds=").expect("it says how long").1;
    let decimals = seconds
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len());
    assert!(decimals <= 2, "{ready}");
    let id = server.id().to_string();
    let asked = std::process::Command::new("kill")
        .args(["-TERM", &id])
        .status();
    assert!(asked.is_ok_and(|status| status.success()));
    let rest: Vec<String> = lines.collect();
    assert_eq!(server.wait().expect("it ends").code(), Some(0), "{rest:?}");
    assert!(
        rest.last().is_some_and(|line| line.ends_with("stopped")),
        "{rest:?}"
    );
    assert!(!rest.concat().contains("may finish"), "{rest:?}");
}

#[test]
fn a_call_offline_ends_with_what_was_written_and_warns_of_silence() {
    let home = Home::new();
    let input = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/demo/user_question1.wav"
    );
    let files = ["--output", "b.wav", "--transcript", "b.json"];
    let args = [
        &["run", "--device", "cpu", "--frames", "1", "--input", input][..],
        &files,
    ]
    .concat();
    let called = home.run(&args);
    assert_eq!(called.code, Some(0), "{called:?}");
    assert_eq!(called.stdout, "b.wav: 0.1 s of sound\nb.json: the words\n");
    assert!(
        called.stderr.contains("said nothing within 1 frames")
            && called.stderr.contains("--frames"),
        "{called:?}"
    );
    assert!(home.path().join("b.wav").exists() && home.path().join("b.json").exists());
}

/// `doctor --json` as JSON, and its exit code.
fn doctor(home: &Home, variables: &[(&str, &str)], args: &[&str]) -> (Option<i32>, Value) {
    let args = [&["doctor", "--json"], args].concat();
    let finished = home.run_with(variables, &args);
    let report = serde_json::from_str(&finished.stdout).expect("doctor prints JSON");
    (finished.code, report)
}

fn setting(report: &Value, key: &str) -> (String, String) {
    let settings = report["settings"].as_array().expect("a list");
    let line = settings.iter().find(|line| line["key"] == key).expect(key);
    let text = |field: &str| line[field].as_str().expect("text").to_owned();
    (text("value"), text("source"))
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("a list");
    checks
        .iter()
        .find(|check| check["name"] == name)
        .expect(name)
}

const ANY_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default() {
    let home = Home::new();
    std::fs::create_dir_all(home.data()).expect("writable");
    let file = home.data().join("vivavoce.toml");
    let text = "slots = 3\nthreads = 3\nring = 'short'\nopen_calls = true\n";
    std::fs::write(&file, text).expect("writable");
    let variables = [
        ("VIVAVOCE_SLOTS", "2"),
        ("VIVAVOCE_THREADS", "2"),
        ("VIVAVOCE_DTYPE", ""),
    ];
    let args = [&ANY_PORT[..], &["--slots", "1"]].concat();
    let (code, report) = doctor(&home, &variables, &args);
    assert_eq!(code, Some(0), "{report}");
    let file = file.to_str().expect("plain path");
    let cases = [
        ("slots", "1", "flag"),
        ("threads", "2", "VIVAVOCE_THREADS"),
        ("ring", "short", file),
        ("open-calls", "on", file),
        ("dtype", "auto", "default"),
        ("watchdog", "20s", "default"),
        ("drain-limit", "600s", "default"),
        ("model", "demo", "default"),
    ];
    for (key, value, source) in cases {
        assert_eq!(
            setting(&report, key),
            (value.to_owned(), source.to_owned()),
            "{key}"
        );
    }
}

#[test]
fn every_setting_of_serve_is_in_the_report() {
    let home = Home::new();
    let (_, report) = doctor(&home, &[], &ANY_PORT);
    let mut cli = Cli::command();
    cli.build();
    let serve = cli.find_subcommand("serve").expect("it is a command");
    for argument in serve
        .get_arguments()
        .filter_map(|argument| argument.get_long())
    {
        if !["help", "version", "config"].contains(&argument) {
            setting(&report, argument);
        }
    }
}

#[test]
fn secrets_print_as_stars() {
    let home = Home::new();
    let variables = [("HF_TOKEN", "hf_topsecret")];
    let (code, report) = doctor(&home, &variables, &ANY_PORT);
    assert_eq!(code, Some(0));
    assert_eq!(
        setting(&report, "hub token"),
        ("********".to_owned(), "HF_TOKEN".to_owned())
    );
    assert!(!report.to_string().contains("topsecret"));
    let text = home.run_with(&variables, &["doctor", "--listen", "127.0.0.1:0"]);
    assert!(text.stdout.contains("********"), "{text:?}");
    assert!(!format!("{text:?}").contains("topsecret"));
}

#[test]
fn a_home_that_is_not_there_is_no_matter_once_a_data_folder_is_named() {
    let home = Home::new();
    let start = |variables: &[(&str, &str)], args: &[&str]| -> crate::program::Finished {
        let mut command = home.command(args);
        command.env_remove("HOME").env_remove("XDG_DATA_HOME");
        let output = command.envs(variables.iter().copied()).output();
        output.expect("the program starts").into()
    };
    let doctor = [&["doctor"][..], &ANY_PORT, &["--device", "cpu"]].concat();
    let nowhere = start(&[], &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");
    assert!(
        nowhere.complaint().contains("--data-dir DIR"),
        "{nowhere:?}"
    );
    let named = start(&[("VIVAVOCE_DATA_DIR", "data")], &doctor);
    assert_eq!(named.code, Some(0), "{named:?}");
    let named = start(&[], &[&doctor[..], &["--data-dir", "data"]].concat());
    assert_eq!(named.code, Some(0), "{named:?}");
}

#[test]
fn a_data_folder_that_cannot_be_written_is_refused_at_once_with_a_cure() {
    let home = Home::new();
    std::fs::write(home.path().join("file"), "").expect("writable");
    for command in ["serve", "password"] {
        let refused = home.run(&[command, "--data-dir", "file/sub"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        let complaint = refused.complaint();
        assert!(
            complaint.contains("file/sub") && complaint.contains("--data-dir DIR"),
            "{complaint}"
        );
    }
}

#[test]
fn a_log_filter_that_cannot_be_used_is_said_once_and_the_log_goes_on() {
    let home = Home::new();
    // The first reason to end comes after the log has begun.
    let args = ["serve", "--data-dir", "file/sub"];
    std::fs::write(home.path().join("file"), "").expect("writable");
    let started = home.run_with(&[("VIVAVOCE_LOG", "loud")], &args);
    let warnings = started.stderr.lines().filter(|line| line.contains("WARN"));
    let warnings: Vec<_> = warnings.collect();
    assert_eq!(warnings.len(), 1, "{started:?}");
    assert!(warnings[0].contains("VIVAVOCE_LOG") && warnings[0].contains("debug"));
    let started = home.run_with(&[("VIVAVOCE_LOG", "debug,hyper=off")], &args);
    assert!(!started.stderr.contains("WARN"), "{started:?}");
}
