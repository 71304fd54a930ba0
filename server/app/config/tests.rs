//! Settings held together without starting the program.

use super::values::*;
use super::*;

type Variables<'a> = &'a [(&'a str, &'a str)];

fn load(variables: Variables<'_>) -> Result<Config, ConfigError> {
    let home = [("HOME", "/home/ada")];
    let environment = home.iter().chain(variables).copied().collect();
    Config::load(&Flags::default(), &environment)
}

#[test]
fn every_value_reads_back_what_it_prints() {
    fn check<T>(texts: &[&str])
    where
        T: std::str::FromStr<Err = ValueError> + std::fmt::Display,
    {
        for text in texts {
            let value: T = text.parse().unwrap_or_else(|err| panic!("{text}: {err}"));
            assert_eq!(value.to_string(), *text);
        }
    }
    check::<Dtype>(Dtype::NAMES);
    check::<KvDtype>(KvDtype::NAMES);
    check::<Order>(Order::NAMES);
    check::<Ring>(Ring::NAMES);
    check::<PinPrompt>(PinPrompt::NAMES);
    check::<LogFormat>(LogFormat::NAMES);
    check::<Switch>(&["on", "off"]);
    check::<SlotCount>(&["auto", "1", "256"]);
    check::<ThreadCount>(&["auto", "1", "1024"]);
    check::<DeviceChoice>(&["auto", "cpu", "cuda:0", "cuda:63"]);
    check::<ModelName>(&[
        "demo",
        "random",
        "/models/x",
        "./x",
        "nvidia/personaplex-7b-v1",
    ]);
    check::<Listen>(&["127.0.0.1:8998", "[::1]:0", "0.0.0.0:65535"]);
    check::<DrainLimit>(&["0s", "86400s"]);
    check::<Watchdog>(&["2s", "3600s"]);
    check::<TlsChoice>(&["off", "self-signed", "cert.pem,/etc/keys/key.pem"]);
    check::<Origins>(&["none", "https://desk.example,http://localhost:3000"]);
}

#[test]
fn tls_takes_both_files_or_none() {
    for text in ["", "on", "cert.pem", "cert.pem,", ",key.pem"] {
        assert!(text.parse::<TlsChoice>().is_err(), "{text}");
    }
}

#[test]
fn times_are_taken_with_units() {
    let cases = [
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("1h", 3_600),
        ("0", 0),
        ("24h", 86_400),
    ];
    for (text, seconds) in cases {
        assert_eq!(
            text.parse(),
            Ok(DrainLimit(Duration::from_secs(seconds))),
            "{text}"
        );
    }
    for text in [
        "",
        "s",
        "-1",
        "1.5",
        "10ms",
        "10 s",
        "25h",
        "1d",
        "99999999999999999999",
        "18446744073709551615h",
    ] {
        assert!(text.parse::<DrainLimit>().is_err(), "{text}");
    }
}

#[test]
fn a_hub_name_is_never_a_path_that_leads_elsewhere() {
    let cases = [
        ("nvidia/personaplex-7b-v1", true),
        ("a/b", true),
        ("a/b_c.D-1", true),
        ("a", false),
        ("a/b/c", false),
        ("a/..", false),
        ("../a", false),
        ("a/.b", false),
        ("a/b..c", false),
        ("/a", false),
        ("a/", false),
        ("a/b c", false),
        ("a\\b/c", false),
        ("-a/b", false),
        ("a/b\0", false),
    ];
    for (name, is_name) in cases {
        assert_eq!(is_hub_name(name), is_name, "{name:?}");
    }
}

#[test]
fn the_data_folder_is_where_the_platform_wants_it() {
    let cases: [(Variables<'_>, &str); 3] = [
        (&[("VIVAVOCE_DATA_DIR", "/data")], "/data"),
        #[cfg(all(unix, not(target_os = "macos")))]
        (&[], "/home/ada/.local/share/vivavoce"),
        #[cfg(all(unix, not(target_os = "macos")))]
        (&[("XDG_DATA_HOME", "/xdg")], "/xdg/vivavoce"),
    ];
    for (variables, dir) in cases {
        assert_eq!(
            load(variables).expect("good settings").data_dir,
            Path::new(dir)
        );
    }
    let nowhere = Config::load(&Flags::default(), &Environment::default());
    assert!(
        matches!(nowhere, Err(ConfigError::NoDataDir)),
        "{nowhere:?}"
    );
}

#[test]
fn defaults_are_those_of_the_help() {
    let config = load(&[]).expect("good settings");
    assert_eq!(config.model, ModelName::Demo);
    assert_eq!(config.slots, SlotCount::Auto);
    assert_eq!(config.listen.to_string(), "127.0.0.1:8998");
    assert_eq!((config.order, config.ring), (Order::Sooner, Ring::Full));
    assert_eq!(config.pin_prompt, PinPrompt::Auto);
    assert!(config.admission && !config.open_calls && !config.offline);
    assert_eq!(
        (config.drain_limit.as_secs(), config.watchdog.as_secs()),
        (600, 20)
    );
    assert_eq!(config.hub.endpoint, "https://huggingface.co");
    assert!(config.is_local());
}

#[test]
fn the_hubs_own_switch_counts_below_ours() {
    let cases: [(Variables<'_>, bool, &str); 5] = [
        (&[], false, "default"),
        (&[("HF_HUB_OFFLINE", "1")], true, "HF_HUB_OFFLINE"),
        (&[("HF_HUB_OFFLINE", "0")], false, "default"),
        (&[("VIVAVOCE_OFFLINE", "on")], true, "VIVAVOCE_OFFLINE"),
        (
            &[("HF_HUB_OFFLINE", "1"), ("VIVAVOCE_OFFLINE", "off")],
            false,
            "VIVAVOCE_OFFLINE",
        ),
    ];
    for (variables, offline, source) in cases {
        let config = load(variables).expect("good settings");
        assert_eq!(config.offline, offline, "{variables:?}");
        let line = config
            .settings
            .iter()
            .find(|line| line.key == "offline")
            .expect("it is there");
        assert_eq!(line.source.to_string(), source, "{variables:?}");
    }
}

#[test]
fn a_secret_prints_as_stars_in_every_form() {
    let config = load(&[
        ("HF_TOKEN", "hf_topsecret"),
        ("VIVAVOCE_PASSWORD", "operator's topsecret"),
    ])
    .expect("good settings");
    let password = config.password.clone().expect("it was given");
    assert_eq!(password.expose(), "operator's topsecret");
    assert!(config.unknown_variables.is_empty());
    let (token, _) = config.hub.token.clone().expect("it was given");
    assert_eq!(token.expose(), "hf_topsecret");
    assert!(!format!("{config:?} {token} {token:?}").contains("topsecret"));
}

#[test]
fn a_model_that_is_not_there_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a temp folder");
    let data = dir.path().to_str().expect("plain path");
    let config = |model| {
        load(&[
            ("VIVAVOCE_DATA_DIR", data),
            ("VIVAVOCE_MODEL", model),
            ("HF_HOME", data),
        ])
        .expect("good settings")
    };
    let complaint = config("owner/name")
        .model_dir()
        .expect_err("not fetched")
        .to_string();
    assert!(
        complaint.ends_with("run `vivavoce fetch owner/name` first"),
        "{complaint}"
    );
    let repo = dir.path().join("hub/models--owner--name");
    let snapshot = repo.join("snapshots/abc");
    std::fs::create_dir_all(&snapshot).expect("writable");
    std::fs::create_dir_all(repo.join("refs")).expect("writable");
    std::fs::write(repo.join("refs/main"), "abc\n").expect("writable");
    assert_eq!(
        config("owner/name")
            .model_dir()
            .expect("in the hub's cache"),
        Some(snapshot)
    );
    let folder = dir.path().join("models/owner/name");
    std::fs::create_dir_all(&folder).expect("writable");
    std::fs::write(folder.join("model.safetensors"), "").expect("writable");
    assert_eq!(
        config("owner/name").model_dir().expect("it is there"),
        Some(folder)
    );
    assert_eq!(config("demo").model_dir().expect("needs none"), None);
}
