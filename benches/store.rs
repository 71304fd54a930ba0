//! What the log of sessions costs once it is long: every list page over 10,000 sessions with their transcripts.
//!
//! Claim: under 50 ms for each. Repeat it with `cargo bench --bench store`. The file is made anew in a temp folder.

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tokio::runtime::Runtime;
use vivavoce::store::{SessionQuestion, Store};

const SESSIONS: i64 = 10_000;
/// Commits of one call: half a minute.
const COMMITS: i64 = 30;
/// Words of each commit.
const WORDS: i64 = 6;
const LIMIT: Duration = Duration::from_millis(50);

/// A long log, filled by the statements of SQLite itself: the writer's way would take minutes.
async fn filled(folder: &std::path::Path) -> Store {
    let file = folder.join("vivavoce.db");
    Store::open(&file).await.expect("a new file").close().await;
    let options = SqliteConnectOptions::new().filename(&file);
    let mut connection = options.connect().await.expect("it is there");
    let numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1), \
                   c(i) as (select 1 union all select i + 1 from c where i < ?2), \
                   w(i) as (select 1 union all select i + 1 from w where i < ?3)";
    let statements = [
        "insert into session (id, caller, persona, role_text, voice, seed, began_at_ms, seen_at_ms, ended_at_ms, \
         end_reason) select i, 'link ' || (i % 50), 'Ada', replace(hex(zeroblob(400)), '00', 'word '), 'NATF0', i, \
         i * 1000, i * 1000, i * 1000 + 900, case i % 9 when 0 then 'peer_gone' else 'hung_up' end from n",
        "insert into transcript select s.i, c.i * 12, (select json_group_array(json_array(c.i * 12 + w.i, \
         ' w' || ((s.i * 7919 + c.i * 104729 + w.i * 1299709) % 3000))) from w) \
         from n s, c",
        "insert into spoken (rowid, text) select t.session_id, group_concat(json_extract(p.value, '$[1]'), '') \
         from n, transcript t, json_each(t.pieces) p where t.session_id = n.i group by t.session_id",
    ];
    for statement in statements {
        let sql = sqlx::AssertSqlSafe(match statement.find("select") {
            Some(at) => format!("{} {numbers} {}", &statement[..at], &statement[at..]),
            None => unreachable!("each selects from the numbers"),
        });
        let query = sqlx::query(sql).bind(SESSIONS).bind(COMMITS).bind(WORDS);
        query.execute(&mut connection).await.expect(statement);
    }
    connection.close().await.expect("nothing is open");
    Store::open(&file).await.expect("the long log")
}

fn lists(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("threads");
    let folder = tempfile::tempdir().expect("a temp folder");
    let store = runtime.block_on(filled(folder.path()));
    let page = SessionQuestion {
        limit: 50,
        ..SessionQuestion::default()
    };
    let text = |text: &str| Some(text.to_owned());
    let questions = [
        ("newest", page.clone(), 50),
        (
            "from the middle",
            SessionQuestion {
                cursor: Some(SESSIONS / 2),
                ..page.clone()
            },
            50,
        ),
        (
            "a caller",
            SessionQuestion {
                caller: text("link 7"),
                ..page.clone()
            },
            50,
        ),
        (
            "nobody",
            SessionQuestion {
                caller: text("operator"),
                ..page.clone()
            },
            0,
        ),
        (
            "a reason",
            SessionQuestion {
                reason: text("peer_gone"),
                ..page.clone()
            },
            50,
        ),
        (
            "no such reason",
            SessionQuestion {
                reason: text("row_fault"),
                ..page.clone()
            },
            0,
        ),
        (
            "running",
            SessionQuestion {
                running: Some(true),
                ..page.clone()
            },
            0,
        ),
        (
            "the first day",
            SessionQuestion {
                to_ms: Some(20_000),
                ..page.clone()
            },
            19,
        ),
        (
            "a word",
            SessionQuestion {
                query: text("w42"),
                ..page.clone()
            },
            50,
        ),
        (
            "no such word",
            SessionQuestion {
                query: text("zebra"),
                ..page
            },
            0,
        ),
    ];
    let mut group = criterion.benchmark_group("sessions");
    for (name, question, expected) in questions {
        let begun = Instant::now();
        let (found, _) = runtime
            .block_on(store.sessions(&question))
            .expect("it answers");
        let took = begun.elapsed();
        println!("{name}: {} sessions, the first time {took:?}", found.len());
        assert_eq!(found.len(), expected, "{name}");
        assert!(took < LIMIT, "{name} took {took:?}, the claim is {LIMIT:?}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                runtime
                    .block_on(store.sessions(&question))
                    .expect("it answers")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, lists);
criterion_main!(benches);
