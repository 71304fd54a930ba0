//! The log as its writer writes it and as readers see it.

use super::*;

fn row(id: i64) -> SessionRow {
    SessionRow {
        id,
        caller: format!("link Door {id}"),
        persona_id: None,
        persona: "own text".to_owned(),
        role_text: "You are Ada.".to_owned(),
        voice: "NATF0".to_owned(),
        seed: u64::MAX - id as u64,
        began_at_ms: 1_000 * id,
    }
}

fn progress(session: i64, frame: i64, text: &str) -> ProgressRow {
    ProgressRow {
        session,
        at_ms: 1_000 * session + 500,
        live_at_ms: Some(1_000 * session + 100),
        levels_caller: vec![1, 0],
        levels_agent: vec![3, 4],
        pieces: vec![(frame, text.to_owned())],
        words: 1,
        counts: SessionCounts {
            frames: 2,
            ..SessionCounts::default()
        },
    }
}

async fn end(store: &Store, session: i64) {
    let mut commit = store.log_commit().await.unwrap();
    let at_ms = 1_000 * session + 900;
    let row = SessionEnd {
        session,
        at_ms,
        reason: "hung_up",
    };
    commit.ended(&row).await.unwrap();
    commit.done().await.unwrap();
}

async fn with_sessions(n: i64) -> Store {
    let store = Store::in_memory().await.unwrap();
    let mut commit = store.log_commit().await.unwrap();
    for id in 1..=n {
        commit.began(&row(id)).await.unwrap();
        commit.progress(&progress(id, 4, " Hello")).await.unwrap();
        commit
            .progress(&progress(id, 9, &format!(" caller_{id}")))
            .await
            .unwrap();
    }
    commit.done().await.unwrap();
    store
}

#[tokio::test]
async fn what_was_written_in_pieces_reads_as_one_session() {
    let store = with_sessions(1).await;
    let session = store.session(1).await.unwrap();
    assert_eq!(session.seed, (u64::MAX - 1).to_string());
    assert_eq!(
        (session.live_at_ms, session.words, session.ended_at_ms),
        (Some(1_100), 2, None)
    );
    let (text, caller, agent) = store.session_text_and_levels(1).await.unwrap();
    assert_eq!(
        (text.as_str(), caller, agent),
        ("You are Ada.", vec![1, 0, 1, 0], vec![3, 4, 3, 4])
    );
    let said: Vec<_> = store
        .transcript(1)
        .await
        .unwrap()
        .into_iter()
        .map(|piece| (piece.frame, piece.text))
        .collect();
    assert_eq!(
        said,
        [(4, " Hello".to_owned()), (9, " caller_1".to_owned())]
    );
}

#[tokio::test]
async fn a_commit_that_is_not_finished_leaves_nothing() {
    let store = Store::in_memory().await.unwrap();
    let mut commit = store.log_commit().await.unwrap();
    commit.began(&row(1)).await.unwrap();
    drop(commit);
    assert!(store.session(1).await.is_err());
}

#[tokio::test]
async fn every_filter_of_the_list_keeps_what_it_names() {
    let store = with_sessions(5).await;
    end(&store, 2).await;
    let base = SessionQuestion {
        limit: 50,
        ..SessionQuestion::default()
    };
    let cases: [(SessionQuestion, &[i64]); 9] = [
        (base.clone(), &[5, 4, 3, 2, 1]),
        (
            SessionQuestion {
                caller: Some("DOOR 3".into()),
                ..base.clone()
            },
            &[3],
        ),
        (
            SessionQuestion {
                running: Some(false),
                ..base.clone()
            },
            &[2],
        ),
        (
            SessionQuestion {
                running: Some(true),
                ..base.clone()
            },
            &[5, 4, 3, 1],
        ),
        (
            SessionQuestion {
                reason: Some("hung_up".into()),
                ..base.clone()
            },
            &[2],
        ),
        (
            SessionQuestion {
                from_ms: Some(4_000),
                to_ms: Some(5_000),
                ..base.clone()
            },
            &[4],
        ),
        (
            SessionQuestion {
                query: Some("CALLER_4".into()),
                ..base.clone()
            },
            &[4],
        ),
        (
            SessionQuestion {
                voice: Some("natf0".into()),
                cursor: Some(3),
                ..base.clone()
            },
            &[2, 1],
        ),
        (
            SessionQuestion {
                persona_id: Some(7),
                ..base.clone()
            },
            &[],
        ),
    ];
    for (question, expected) in cases {
        let (found, next) = store.sessions(&question).await.unwrap();
        let found: Vec<_> = found.iter().map(|session| session.id).collect();
        assert_eq!(found, expected, "{question:?}");
        assert_eq!(next, None);
    }
    let first = SessionQuestion { limit: 2, ..base };
    let (_, next) = store.sessions(&first).await.unwrap();
    assert_eq!(next.as_deref(), Some("4"));
}

#[tokio::test]
async fn sessions_of_a_process_that_died_are_marked_at_their_last_sign() {
    let store = with_sessions(2).await;
    end(&store, 1).await;
    let lost = store.close_lost_sessions().await.unwrap();
    assert_eq!(lost, [LostSession { id: 2 }]);
    let session = store.session(2).await.unwrap();
    assert_eq!(session.end_reason.as_deref(), Some("cut_off"));
    assert_eq!(session.ended_at_ms, Some(2_500));
    assert_eq!(store.close_lost_sessions().await.unwrap(), []);
    assert_eq!(store.last_session().await.unwrap(), 2);
}

#[tokio::test]
async fn a_session_goes_with_its_rows_and_only_when_it_is_over() {
    let store = with_sessions(1).await;
    assert!(matches!(
        store.delete_session(1).await,
        Err(StoreError::Running { session: 1 })
    ));
    end(&store, 1).await;
    store.insert_recording(1, &"k".repeat(32), 0).await.unwrap();
    assert!(
        store.delete_session(1).await.is_err(),
        "its recording would be without a row"
    );
    assert_eq!(store.recordings_before(1).await.unwrap().len(), 1);
    store.recording_done(1, 3).await.unwrap();
    assert_eq!(
        store
            .recording_by_key(&"k".repeat(32))
            .await
            .unwrap()
            .unwrap()
            .seconds,
        3
    );
    store.delete_recording(1).await.unwrap();
    store.delete_session(1).await.unwrap();
    store.delete_session(1).await.unwrap();
    assert!(store.transcript(1).await.unwrap().is_empty());
    assert_eq!(
        store.last_session().await.unwrap(),
        1,
        "its number is never given again"
    );
}

#[tokio::test]
async fn words_are_found_in_sessions_that_run_are_over_or_were_cut_off_and_go_with_them() {
    let store = with_sessions(3).await;
    end(&store, 1).await;
    let found = async |words: &str| {
        let question = SessionQuestion {
            query: Some(words.to_owned()),
            limit: 50,
            ..SessionQuestion::default()
        };
        let (found, _) = store.sessions(&question).await.unwrap();
        found.iter().map(|session| session.id).collect::<Vec<_>>()
    };
    assert_eq!(found("hello").await, [3, 2, 1]);
    assert_eq!(found("caller_1").await, [1]);
    store.close_lost_sessions().await.unwrap();
    let cases: [(&str, &[i64]); 7] = [
        ("hello", &[3, 2, 1]),
        ("HELL", &[3, 2, 1]),
        ("ello", &[]),
        ("caller_2 hello", &[2]),
        ("caller_2 goodbye", &[]),
        ("\" OR hello --", &[]),
        ("?!", &[]),
    ];
    for (words, expected) in cases {
        assert_eq!(found(words).await, expected, "{words:?}");
    }
    store.delete_session(2).await.unwrap();
    assert_eq!(found("hello").await, [3, 1]);
}
