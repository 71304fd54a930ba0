//! The log of sessions: what was written while they ran, and what lists and pages ask of it.
//!
//! Lives here: questions of readers and rows of the one writer. May not live here: batching (`journal`).

mod recordings;
mod write;

use sqlx::FromRow;
use wire::api::sessions::{SessionCounts, SessionEvent, SessionSummary, TranscriptPiece};

use super::{Store, StoreError, contains_pattern, paged};

pub use recordings::RecordingRow;
pub use write::{EventRow, LostSession, ProgressRow, SessionEnd, SessionRow};

/// Which sessions a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionQuestion {
    /// Part of the caller's label, without regard to case.
    pub caller: Option<String>,
    /// Calls with this persona.
    pub persona_id: Option<i64>,
    /// Calls with this voice.
    pub voice: Option<String>,
    /// Those that ended for this reason.
    pub reason: Option<String>,
    /// Only those that run, or only those that do not.
    pub running: Option<bool>,
    /// Begun at or after, Unix milliseconds.
    pub from_ms: Option<i64>,
    /// Begun before, Unix milliseconds.
    pub to_ms: Option<i64>,
    /// The agent said all these words, or words that begin so, without regard to case and accents.
    pub query: Option<String>,
    /// From the page before.
    pub cursor: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

#[derive(FromRow)]
struct Row {
    id: i64,
    caller: String,
    persona_id: Option<i64>,
    persona_version: Option<i64>,
    persona: String,
    voice: String,
    seed: i64,
    began_at_ms: i64,
    live_at_ms: Option<i64>,
    ended_at_ms: Option<i64>,
    end_reason: Option<String>,
    words: i64,
    frames: i64,
    deficit: i64,
    drops: i64,
    late_ticks: i64,
    missing: i64,
    resumed: i64,
    tick_mean_us: i64,
    recorded: bool,
}

impl From<Row> for SessionSummary {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            caller: row.caller,
            persona_id: row.persona_id,
            persona: row.persona,
            persona_version: row.persona_version,
            voice: row.voice,
            seed: (row.seed as u64).to_string(),
            began_at_ms: row.began_at_ms,
            live_at_ms: row.live_at_ms,
            ended_at_ms: row.ended_at_ms,
            end_reason: row.end_reason,
            words: row.words,
            recorded: row.recorded,
            counters: SessionCounts {
                frames: row.frames,
                deficit: row.deficit,
                drops: row.drops,
                late_ticks: row.late_ticks,
                missing: row.missing,
                resumed: row.resumed,
                tick_mean_us: row.tick_mean_us,
            },
        }
    }
}

/// The columns of a [`Row`].
macro_rules! select_session {
    ($rest:literal) => {
        concat!(
            "select s.id, s.caller, s.persona_id, s.persona_version, s.persona, s.voice, s.seed, \
             s.began_at_ms, s.live_at_ms, s.ended_at_ms, s.end_reason, s.words, s.frames, s.deficit, \
             s.drops, s.late_ticks, s.missing, s.resumed, s.tick_mean_us, \
             exists (select 1 from recording r where r.session_id = s.id) as recorded \
             from session s ",
            $rest
        )
    };
}

/// `text` as a question to the index of words: all of them, in any order, each perhaps only a beginning.
fn words_pattern(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric());
    let quoted: Vec<_> = words
        .filter(|word| !word.is_empty())
        .map(|word| format!("\"{word}\"*"))
        .collect();
    match quoted.is_empty() {
        // Signs alone are no words, and nothing is found.
        true => "\"\"".to_owned(),
        false => quoted.join(" "),
    }
}

impl Store {
    /// Sessions, the newest first, and where the next page begins.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn sessions(
        &self,
        question: &SessionQuestion,
    ) -> Result<(Vec<SessionSummary>, Option<String>), StoreError> {
        let rows: Vec<Row> = sqlx::query_as(select_session!(
            "where s.id in (select s.id from session s indexed by session_list where s.id < coalesce(?1, 9223372036854775807) \
             and (?2 is null or s.caller like ?2 escape '\\') \
             and (?3 is null or s.persona_id = ?3) \
             and (?4 is null or s.voice = ?4 collate nocase) \
             and (?5 is null or s.end_reason = ?5) \
             and (?6 is null or (s.ended_at_ms is null) = ?6) \
             and (?7 is null or s.began_at_ms >= ?7) \
             and (?8 is null or s.began_at_ms < ?8) \
             and (?9 is null or s.id in (select rowid from spoken where spoken match ?9) \
                  or (s.ended_at_ms is null and exists (select 1 from transcript t where t.session_id = s.id \
                      and (select group_concat(json_extract(value, '$[1]'), '') from json_each(t.pieces)) \
                      like ?11 escape '\\'))) \
             order by s.id desc limit ?10) order by s.id desc"
        ))
        .bind(question.cursor)
        .bind(question.caller.as_deref().map(contains_pattern))
        .bind(question.persona_id)
        .bind(&question.voice)
        .bind(&question.reason)
        .bind(question.running)
        .bind(question.from_ms)
        .bind(question.to_ms)
        .bind(question.query.as_deref().map(words_pattern))
        .bind(question.limit + 1)
        .bind(question.query.as_deref().map(contains_pattern))
        .fetch_all(&self.pool)
        .await?;
        let (rows, next) = paged(rows, question.limit, |row| row.id);
        Ok((rows.into_iter().map(SessionSummary::from).collect(), next))
    }

    /// One session as in the list.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub async fn session(&self, id: i64) -> Result<SessionSummary, StoreError> {
        let row: Option<Row> = sqlx::query_as(select_session!("where s.id = ?"))
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        row.map(SessionSummary::from)
            .ok_or_else(|| StoreError::missing("session", id))
    }

    /// The role text, and the levels of both sides, one byte a frame.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub async fn session_text_and_levels(
        &self,
        id: i64,
    ) -> Result<(String, Vec<u8>, Vec<u8>), StoreError> {
        let role_text: Option<String> =
            sqlx::query_scalar("select role_text from session where id = ?")
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
        let role_text = role_text.ok_or_else(|| StoreError::missing("session", id))?;
        let levels: Vec<(Vec<u8>, Vec<u8>)> = sqlx::query_as(
            "select caller, agent from session_level where session_id = ? order by frame",
        )
        .bind(id)
        .fetch_all(&self.pool)
        .await?;
        let (caller, agent): (Vec<_>, Vec<_>) = levels.into_iter().unzip();
        Ok((role_text, caller.concat(), agent.concat()))
    }

    /// What happened in a session, in order.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn session_events(&self, id: i64) -> Result<Vec<SessionEvent>, StoreError> {
        let rows: Vec<(i64, String, String)> = sqlx::query_as(
            "select at_ms, what, detail from session_event where session_id = ? order by number",
        )
        .bind(id)
        .fetch_all(&self.pool)
        .await?;
        let event = |(at_ms, what, detail)| SessionEvent {
            at_ms,
            what,
            detail,
        };
        Ok(rows.into_iter().map(event).collect())
    }

    /// What the agent said, by frame.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn transcript(&self, id: i64) -> Result<Vec<TranscriptPiece>, StoreError> {
        let rows: Vec<String> =
            sqlx::query_scalar("select pieces from transcript where session_id = ? order by frame")
                .bind(id)
                .fetch_all(&self.pool)
                .await?;
        // Only this program writes the column.
        let pieces = rows
            .iter()
            .filter_map(|json| serde_json::from_str::<Vec<(i64, String)>>(json).ok())
            .flatten();
        Ok(pieces
            .map(|(frame, text)| TranscriptPiece { frame, text })
            .collect())
    }

    /// Deletes a session with all its rows; its recording has to be gone before. None of that number is fine.
    ///
    /// # Errors
    /// [`StoreError::Running`].
    pub async fn delete_session(&self, id: i64) -> Result<(), StoreError> {
        let done = sqlx::query("delete from session where id = ? and ended_at_ms is not null")
            .bind(id)
            .execute(&self.pool)
            .await?;
        if done.rows_affected() == 0 && self.session(id).await.is_ok() {
            return Err(StoreError::Running { session: id });
        }
        Ok(())
    }

    /// Sessions that ended before a time, oldest first, at most a hundred.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn sessions_ended_before(&self, at_ms: i64) -> Result<Vec<i64>, StoreError> {
        Ok(
            sqlx::query_scalar(
                "select id from session where ended_at_ms < ? order by id limit 100",
            )
            .bind(at_ms)
            .fetch_all(&self.pool)
            .await?,
        )
    }
}

#[cfg(test)]
mod tests;
