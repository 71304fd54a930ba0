//! What the one writer of the log puts down, many sessions in one commit.

use sqlx::{Sqlite, Transaction};
use wire::api::sessions::SessionCounts;

use crate::store::{Store, StoreError};

/// A session that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its number, given by the journal.
    pub id: i64,
    /// Who called.
    pub caller: String,
    /// Number and version of the persona; `None` for a caller's own text.
    pub persona_id: Option<(i64, i64)>,
    /// Its name.
    pub persona: String,
    /// As the model reads it.
    pub role_text: String,
    /// Name of the voice.
    pub voice: String,
    /// Of the call.
    pub seed: u64,
    /// Unix milliseconds.
    pub began_at_ms: i64,
}

/// Something that happened in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Of which session.
    pub session: i64,
    /// From 0, in order.
    pub number: i64,
    /// Unix milliseconds.
    pub at_ms: i64,
    /// One word.
    pub what: &'static str,
    /// For people.
    pub detail: String,
}

/// What came about in a session since the last one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgressRow {
    /// Of which session.
    pub session: i64,
    /// Unix milliseconds.
    pub at_ms: i64,
    /// Once it is known.
    pub live_at_ms: Option<i64>,
    /// Levels since then.
    pub levels_caller: Vec<u8>,
    /// Levels since then.
    pub levels_agent: Vec<u8>,
    /// Said since then.
    pub pieces: Vec<(i64, String)>,
    /// Words since then.
    pub words: i64,
    /// As they are now.
    pub counts: SessionCounts,
}

/// A session that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEnd {
    /// Which session.
    pub session: i64,
    /// Unix milliseconds.
    pub at_ms: i64,
    /// Name of the reason.
    pub reason: &'static str,
}

/// A session that was running when the process before this one died.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct LostSession {
    /// Its number.
    pub id: i64,
}

/// One commit of the log's writer.
pub(crate) struct LogCommit {
    all: Transaction<'static, Sqlite>,
}

impl Store {
    /// Begins a commit; nothing is written unless [`LogCommit::done`] is reached.
    pub(crate) async fn log_commit(&self) -> Result<LogCommit, StoreError> {
        Ok(LogCommit {
            all: self.pool.begin().await?,
        })
    }

    /// The highest number a session ever had; 0 without any.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn last_session(&self) -> Result<i64, StoreError> {
        let last: Option<i64> =
            sqlx::query_scalar("select seq from sqlite_sequence where name = 'session'")
                .fetch_optional(&self.pool)
                .await?;
        Ok(last.unwrap_or(0))
    }

    /// Marks sessions that an earlier process left running as cut off, at the last sign of them.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn close_lost_sessions(&self) -> Result<Vec<LostSession>, StoreError> {
        let mut all = self.pool.begin().await?;
        let lost: Vec<LostSession> = sqlx::query_as(
            "update session set ended_at_ms = seen_at_ms, end_reason = 'cut_off' \
             where ended_at_ms is null returning id",
        )
        .fetch_all(&mut *all)
        .await?;
        for session in &lost {
            index_words(&mut all, session.id).await?;
        }
        all.commit().await?;
        Ok(lost)
    }
}

/// Takes what the agent said in a session that is over into the index of words.
async fn index_words(
    all: &mut Transaction<'static, Sqlite>,
    session: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert or replace into spoken (rowid, text) \
         select ?1, group_concat(piece, '') from \
         (select json_extract(piece.value, '$[1]') as piece \
          from transcript t, json_each(t.pieces) piece \
          where t.session_id = ?1 order by t.frame, piece.key) having count(*) > 0",
    )
    .bind(session)
    .execute(&mut **all)
    .await?;
    Ok(())
}

impl LogCommit {
    pub(crate) async fn began(&mut self, row: &SessionRow) -> Result<(), StoreError> {
        sqlx::query(
            "insert into session (id, caller, persona_id, persona_version, persona, role_text, voice, seed, \
             began_at_ms, seen_at_ms) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(row.id)
        .bind(&row.caller)
        .bind(row.persona_id.map(|(id, _)| id))
        .bind(row.persona_id.map(|(_, version)| version))
        .bind(&row.persona)
        .bind(&row.role_text)
        .bind(&row.voice)
        .bind(row.seed as i64)
        .bind(row.began_at_ms)
        .bind(row.began_at_ms)
        .execute(&mut *self.all)
        .await?;
        Ok(())
    }

    pub(crate) async fn event(&mut self, row: &EventRow) -> Result<(), StoreError> {
        sqlx::query("insert or ignore into session_event values (?, ?, ?, ?, ?)")
            .bind(row.session)
            .bind(row.number)
            .bind(row.at_ms)
            .bind(row.what)
            .bind(&row.detail)
            .execute(&mut *self.all)
            .await?;
        Ok(())
    }

    pub(crate) async fn progress(&mut self, row: &ProgressRow) -> Result<(), StoreError> {
        sqlx::query(
            "update session set seen_at_ms = ?2, live_at_ms = coalesce(live_at_ms, ?3), \
             words = words + ?4, frames = ?5, deficit = ?6, drops = ?7, late_ticks = ?8, missing = ?9, \
             resumed = ?10, tick_mean_us = ?11 where id = ?1",
        )
        .bind(row.session)
        .bind(row.at_ms)
        .bind(row.live_at_ms)
        .bind(row.words)
        .bind(row.counts.frames)
        .bind(row.counts.deficit)
        .bind(row.counts.drops)
        .bind(row.counts.late_ticks)
        .bind(row.counts.missing)
        .bind(row.counts.resumed)
        .bind(row.counts.tick_mean_us)
        .execute(&mut *self.all)
        .await?;
        if !row.levels_caller.is_empty() || !row.levels_agent.is_empty() {
            sqlx::query(
                "insert into session_level (session_id, frame, caller, agent) values (?1, \
                 coalesce((select frame + length(agent) from session_level where session_id = ?1 \
                           order by frame desc limit 1), 0), ?2, ?3)",
            )
            .bind(row.session)
            .bind(&row.levels_caller[..])
            .bind(&row.levels_agent[..])
            .execute(&mut *self.all)
            .await?;
        }
        if let Some((frame, _)) = row.pieces.first() {
            let json = serde_json::to_string(&row.pieces).unwrap_or_default();
            sqlx::query(
                "insert or replace into transcript (session_id, frame, pieces) values (?, ?, ?)",
            )
            .bind(row.session)
            .bind(frame)
            .bind(json)
            .execute(&mut *self.all)
            .await?;
        }
        Ok(())
    }

    pub(crate) async fn ended(&mut self, row: &SessionEnd) -> Result<(), StoreError> {
        sqlx::query(
            "update session set seen_at_ms = ?2, ended_at_ms = ?2, end_reason = ?3 where id = ?1",
        )
        .bind(row.session)
        .bind(row.at_ms)
        .bind(row.reason)
        .execute(&mut *self.all)
        .await?;
        index_words(&mut self.all, row.session).await
    }

    pub(crate) async fn done(self) -> Result<(), StoreError> {
        Ok(self.all.commit().await?)
    }
}
