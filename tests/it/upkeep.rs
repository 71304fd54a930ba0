//! What whoever runs the server meets: a log without a terminal, a database that cannot be used, a model without voices,
//! an idle machine.

use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::program::{Home, Server};

/// What `serve` says from its start until it is ready, byte for byte, or until it ends; and its exit code if it ended by
/// itself.
fn said(home: &Home, args: &[&str]) -> (Vec<u8>, Option<i32>) {
    let fixed = ["serve", "--device", "cpu", "--listen", "127.0.0.1:0"];
    let mut server = home.spawn_with(&[], &[&fixed, args].concat());
    let mut log = BufReader::new(server.stderr.take().expect("it is piped"));
    let mut all = Vec::new();
    while log.read_until(b'\n', &mut all).expect("a pipe") > 0 {
        let line = all.rsplit(|&byte| byte == b'\n').nth(1).unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        if line.contains(" ready ") || line.contains("\"ready\"") {
            server.kill().expect("it runs");
        }
    }
    (all, server.wait().expect("it ends").code())
}

#[test]
fn a_log_that_no_terminal_shows_has_no_colours_and_no_bars() {
    for format in ["text", "json"] {
        let (log, _) = said(&Home::new(), &["--log-format", format]);
        let text = String::from_utf8(log).expect("the log is UTF-8");
        assert!(text.contains("ready"), "{text}");
        let odd = text.chars().find(|&c| c.is_control() && c != '\n');
        assert_eq!(odd, None, "{format}: {text:?}");
        if format == "json" {
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line).expect(line);
                assert!(
                    line["timestamp"].is_string() && line["level"].is_string(),
                    "{line}"
                );
            }
        }
    }
}

/// A database that a server has made, and nothing else of it: a journal beside a damaged file would mend it.
async fn database(home: &Home) -> std::path::PathBuf {
    let file = home.data().join("vivavoce.db");
    std::fs::create_dir_all(home.data()).expect("writable");
    let store = vivavoce::store::Store::open(&file).await;
    store.expect("a new file").close().await;
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_used_is_one_line_and_left_as_it_is() {
    let newer = async |file: &Path| {
        use sqlx::{ConnectOptions, Connection};
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
        let mut connection = options.connect().await.expect("it is there");
        let later = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                     values (9999, 'later', 1, x'00', 1)";
        sqlx::query(later)
            .execute(&mut connection)
            .await
            .expect("a row");
        connection.close().await.expect("nothing is open");
    };
    for (what, words) in [
        (
            "damaged",
            &["the database is damaged", "put a backup in its place"][..],
        ),
        ("newer", &["has form 9999", "use the newer vivavoce"]),
        ("in use", &["another", "vivavoce"]),
    ] {
        let home = Home::new();
        let file = database(&home).await;
        let mut first = None;
        match what {
            "damaged" => std::fs::write(&file, [7; 20_000]).expect("writable"),
            "newer" => newer(&file).await,
            _ => first = Some(Server::start(&home, &[], &[])),
        }
        let before = std::fs::read(&file).expect("a file");
        let (log, code) = said(&home, &[]);
        let text = String::from_utf8(log).expect("the log is UTF-8");
        assert_eq!(code, Some(1), "{what}: {text}");
        let complaint = text.lines().last().unwrap_or_default();
        for word in words {
            assert!(complaint.contains(word), "{what}: {text}");
        }
        assert!(!text.contains("listening"), "{what}: {text}");
        assert!(
            before == std::fs::read(&file).expect("a file"),
            "{what}: it was touched"
        );
        drop(first);
    }
}

#[test]
fn a_model_without_voices_is_said_loudly() {
    let home = Home::new();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("server/engine/demo/checkpoint");
    let model = home.path().join("model");
    std::fs::create_dir_all(model.join("voices")).expect("writable");
    for entry in std::fs::read_dir(demo)
        .expect("the demo")
        .map(|entry| entry.expect("a file"))
    {
        if entry.file_name() != "voices.tgz" {
            std::fs::copy(entry.path(), model.join(entry.file_name())).expect("writable");
        }
    }
    let (log, _) = said(&home, &["--model", &model.display().to_string()]);
    let text = String::from_utf8(log).expect("the log is UTF-8");
    let warning = text
        .lines()
        .find(|line| line.contains("WARN") && line.contains("0 voices found in"));
    assert!(warning.is_some(), "{text}");
}

/// Processor time that process `id` has used so far, in seconds. Source: proc(5), fields 14 and 15 of `stat`.
#[cfg(target_os = "linux")]
fn cpu_s(id: u32) -> f64 {
    // What the system tells user space, whatever the kernel's own clock is.
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    // The name before it may hold spaces.
    let (_, rest) = stat.rsplit_once(')').expect("a name in brackets");
    let field = |number: usize| -> f64 {
        let text = rest.split_whitespace().nth(number - 3).expect("a field");
        text.parse().expect("a number")
    };
    (field(14) + field(15)) / TICKS_A_SECOND
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_takes_next_to_nothing() {
    use std::time::{Duration, Instant};
    /// Of one core.
    const SHARE_MAX: f64 = 0.05;
    const LONG: Duration = Duration::from_secs(4);

    let home = Home::new();
    let server = Server::start(&home, &[], &[]);
    let (before, began) = (cpu_s(server.id()), Instant::now());
    let mut used = before;
    while began.elapsed() < LONG {
        crate::support::before_the_next_look().await;
        used = cpu_s(server.id());
    }
    let share = (used - before) / began.elapsed().as_secs_f64();
    assert!(share < SHARE_MAX, "{:.1} % of a core", share * 100.0);
}
