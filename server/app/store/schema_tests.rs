//! What the database itself refuses, whoever writes to it: for each table a row that it takes, and rows that differ in
//! one thing.

use wire::api::personas::PersonaDraft;

use super::{Store, StoreError};

struct Rows {
    /// Table and columns.
    into: &'static str,
    /// Rows that are taken; they stay there for the next ones.
    good: &'static [&'static str],
    /// Rows that are not, and why.
    bad: &'static [(&'static str, &'static str)],
}

/// A hash, and another one.
const HASH: &str = "zeroblob(32)";
const OTHER_HASH: &str = "randomblob(32)";

/// `HASH` and `OTHER_HASH` stand for values. Persona 1 with version 1 and the default persona are there.
const TABLES: [Rows; 15] = [
    Rows {
        into: "setting (name, value)",
        good: &["'a', 'b'"],
        bad: &[
            ("a name has one value", "'a', 'c'"),
            ("and it has one", "'n', null"),
        ],
    },
    Rows {
        into: "password (only_one, hash, set_at_ms)",
        good: &["1, '$argon2id$v=19$x', 0"],
        bad: &[
            ("there is one", "2, '$argon2id$v=19$x', 0"),
            ("which is hashed", "1, 'correct horse', 0"),
        ],
    },
    Rows {
        into: "operator_session (token_hash, created_at_ms, used_at_ms, expires_at_ms)",
        good: &["HASH, 0, 0, 1"],
        bad: &[
            ("a cookie is one browser's", "HASH, 0, 0, 1"),
            ("never plain", "x'00', 0, 0, 1"),
            ("and ends after it began", "OTHER_HASH, 5, 5, 5"),
        ],
    },
    Rows {
        into: "persona_version (persona_id, version, name, role_text, voice, sampling, greeting, changed_at_ms, changed_by)",
        good: &["1, 2, 'Ada', '', null, '{}', 'caller_first', 0, 'o'"],
        bad: &[
            (
                "a version is never changed",
                "1, 1, 'Ada', '', null, '{}', 'agent_first', 0, 'o'",
            ),
            (
                "they are counted from 1",
                "1, 0, 'Ada', '', null, '{}', 'agent_first', 0, 'o'",
            ),
            (
                "of a persona",
                "99, 1, 'Ada', '', null, '{}', 'agent_first', 0, 'o'",
            ),
            (
                "with a name",
                "1, 3, '', '', null, '{}', 'agent_first', 0, 'o'",
            ),
            (
                "a short one",
                "1, 3, printf('%081d', 0), '', null, '{}', 'agent_first', 0, 'o'",
            ),
            (
                "and no book",
                "1, 3, 'Ada', printf('%016385d', 0), null, '{}', 'agent_first', 0, 'o'",
            ),
            (
                "nor 16,385 bytes in fewer letters",
                "1, 3, 'Ada', replace(printf('%08193d', 0), '0', 'é'), null, '{}', 'agent_first', 0, 'o'",
            ),
            (
                "JSON is JSON",
                "1, 3, 'Ada', '', null, '{', 'agent_first', 0, 'o'",
            ),
            (
                "somebody greets",
                "1, 3, 'Ada', '', null, '{}', 'nobody', 0, 'o'",
            ),
            (
                "times are numbers",
                "1, 3, 'Ada', '', null, '{}', 'agent_first', 'today', 'o'",
            ),
        ],
    },
    Rows {
        into: "persona (id, version, name, preset, archived_at_ms, created_at_ms)",
        // Needs its version in the same transaction: made by the store, above.
        good: &[],
        bad: &[(
            "the newest version is there",
            "null, 7, 'Bea', null, null, 0",
        )],
    },
    Rows {
        into: "default_persona (only_one, persona_id)",
        good: &[],
        bad: &[("there is one", "2, 1"), ("and no second one", "1, 1")],
    },
    Rows {
        into: "share (persona_id, token_hash, label, created_at_ms, expires_at_ms)",
        good: &["1, HASH, '', 0, null"],
        bad: &[
            ("a token is one link's", "1, HASH, '', 0, null"),
            ("never plain", "1, x'00', '', 0, null"),
            ("of a persona", "99, OTHER_HASH, '', 0, null"),
            (
                "with a short label",
                "1, OTHER_HASH, printf('%081d', 0), 0, null",
            ),
            ("that ends after its making", "1, OTHER_HASH, '', 5, 5"),
        ],
    },
    Rows {
        into: "api_token (name, token_hash, scopes, persona_id, created_at_ms, expires_at_ms)",
        good: &["'t', HASH, 'call', 1, 0, null"],
        bad: &[
            ("a token is one program's", "'t', HASH, 'call', 1, 0, null"),
            ("never plain", "'t', 'secret', 'call', 1, 0, null"),
            ("with a name", "'', OTHER_HASH, 'call', 1, 0, null"),
            ("may do something", "'t', OTHER_HASH, '', 1, 0, null"),
            ("of a persona", "'t', OTHER_HASH, 'call', 99, 0, null"),
            (
                "that ends after its making",
                "'t', OTHER_HASH, 'call', 1, 5, 4",
            ),
        ],
    },
    Rows {
        into: "voice (name, origin, bundle, model, frames, consent, created_at_ms)",
        good: &["'Ada', 'recording', x'00', 'm', 1, 'I agree', 0"],
        bad: &[
            (
                "a model has one of a name",
                "'ADA', 'bundle', x'00', 'm', 1, null, 0",
            ),
            (
                "a recorded one agreed",
                "'B', 'recording', x'00', 'm', 1, null, 0",
            ),
            (
                "another one need not",
                "'B', 'bundle', x'00', 'm', 1, 'I agree', 0",
            ),
            (
                "an added one is here",
                "'B', 'bundle', null, 'm', 1, null, 0",
            ),
            (
                "the model's is there",
                "'B', 'model', x'00', 'm', 1, null, 0",
            ),
            (
                "it comes from somewhere",
                "'B', 'the web', x'00', 'm', 1, null, 0",
            ),
            (
                "and says something",
                "'B', 'bundle', x'00', 'm', 0, null, 0",
            ),
        ],
    },
    Rows {
        into: "voice_preview (model, voice, wav, made_at_ms)",
        good: &["'m', 'Ada', x'00', 0"],
        bad: &[
            ("one for a voice", "'m', 'ADA', x'00', 0"),
            ("of bytes", "'m', 'B', 'text', 0"),
        ],
    },
    Rows {
        into: "session (id, caller, persona_id, persona_version, persona, role_text, voice, seed, began_at_ms, seen_at_ms, ended_at_ms, end_reason)",
        good: &[
            "1, 'c', 1, 1, 'Ada', '', 'v', -1, 0, 0, 5, 'hung_up'",
            "2, 'c', null, null, 'own text', '', 'v', 1, 0, 0, null, null",
        ],
        bad: &[
            (
                "a number is one session's",
                "1, 'c', 1, 1, 'Ada', '', 'v', 1, 0, 0, null, null",
            ),
            (
                "which ends for a reason",
                "3, 'c', 1, 1, 'Ada', '', 'v', 1, 0, 0, 5, null",
            ),
            (
                "at a time",
                "3, 'c', 1, 1, 'Ada', '', 'v', 1, 0, 0, null, 'hung_up'",
            ),
            (
                "with a version that was",
                "3, 'c', 1, 99, 'Ada', '', 'v', 1, 0, 0, null, null",
            ),
            (
                "a seed is a number",
                "3, 'c', 1, 1, 'Ada', '', 'v', 'x', 0, 0, null, null",
            ),
        ],
    },
    Rows {
        into: "session_event (session_id, number, at_ms, what, detail)",
        good: &["1, 0, 0, 'joined', ''"],
        bad: &[
            ("each once", "1, 0, 0, 'left', ''"),
            ("of a session", "99, 0, 0, 'joined', ''"),
        ],
    },
    Rows {
        into: "transcript (session_id, frame, pieces)",
        good: &[r#"1, 0, '[[0," Hello"]]'"#],
        bad: &[
            ("each frame once", "1, 0, '[]'"),
            ("of a session", "99, 0, '[]'"),
            ("JSON is JSON", "1, 9, 'Hello'"),
        ],
    },
    Rows {
        into: "session_level (session_id, frame, caller, agent)",
        good: &["1, 0, x'01', x'02'"],
        bad: &[
            ("each frame once", "1, 0, x'', x''"),
            ("of a session", "99, 0, x'', x''"),
        ],
    },
    Rows {
        into: "recording (session_id, key, began_at_ms, complete)",
        good: &["1, '0123456789abcdef0123456789abcdef', 0, 0"],
        bad: &[
            (
                "of a session",
                "99, 'f123456789abcdef0123456789abcdef', 0, 0",
            ),
            ("one of each", "1, 'f123456789abcdef0123456789abcdef', 0, 0"),
            (
                "with a key of its own",
                "2, '0123456789abcdef0123456789abcdef', 0, 0",
            ),
            ("that nobody guesses", "2, 'f', 0, 0"),
            (
                "complete or not",
                "2, 'f123456789abcdef0123456789abcdef', 0, 2",
            ),
        ],
    },
];

async fn insert(store: &Store, into: &str, values: &str) -> Result<(), StoreError> {
    let values = values
        .replace("OTHER_HASH", OTHER_HASH)
        .replace("HASH", HASH);
    let statement = format!("insert into {into} values ({values})");
    let statement = sqlx::query(sqlx::AssertSqlSafe(statement));
    Ok(statement.execute(&store.pool).await.map(drop)?)
}

#[tokio::test]
async fn bad_rows_are_impossible() {
    let store = Store::in_memory().await.unwrap();
    let ada = PersonaDraft {
        name: "Ada".to_owned(),
        ..PersonaDraft::default()
    };
    let made = store.insert_persona(&ada, "operator").await.unwrap();
    assert_eq!((made.id, made.version), (1, 1));
    for rows in TABLES {
        for values in rows.good {
            let done = insert(&store, rows.into, values).await;
            assert!(done.is_ok(), "{} ({values}): {done:?}", rows.into);
        }
        for (why, values) in rows.bad {
            let done = insert(&store, rows.into, values).await;
            // Nothing but a rule of the schema: a statement that is wrong fails in another way.
            let refused = done.as_ref().is_err_and(|error| error.is_about_one_row());
            assert!(refused, "{}, {why} ({values}): {done:?}", rows.into);
        }
    }
}

#[tokio::test]
async fn every_table_is_among_those_tested() {
    let store = Store::in_memory().await.unwrap();
    let tables: Vec<String> = sqlx::query_scalar(
        "select name from pragma_table_list where schema = 'main' and type = 'table' \
         and name not like 'sqlite%' and name not like '\\_sqlx%' escape '\\'",
    )
    .fetch_all(&store.pool)
    .await
    .unwrap();
    assert!(tables.len() >= TABLES.len(), "{tables:?}");
    for table in tables {
        let tested = TABLES
            .iter()
            .any(|rows| rows.into.split(' ').next() == Some(&table));
        assert!(tested, "{table} is not in TABLES");
    }
}
