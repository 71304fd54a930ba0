//! Rows about recordings. The files themselves belong to `journal`.

use sqlx::FromRow;

use crate::store::{Store, StoreError};

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct RecordingRow {
    /// Of which session.
    pub session_id: i64,
    /// Lets the caller fetch it; part of the file's name.
    pub key: String,
    /// Unix milliseconds.
    pub began_at_ms: i64,
    /// Length; 0 while it runs.
    pub seconds: i64,
    /// Whether it was closed as it should be.
    pub complete: bool,
}

impl Store {
    /// Written before the file is made.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn insert_recording(
        &self,
        session: i64,
        key: &str,
        began_at_ms: i64,
    ) -> Result<(), StoreError> {
        sqlx::query("insert into recording (session_id, key, began_at_ms) values (?, ?, ?)")
            .bind(session)
            .bind(key)
            .bind(began_at_ms)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Its file is closed.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn recording_done(&self, session: i64, seconds: i64) -> Result<(), StoreError> {
        sqlx::query("update recording set seconds = ?, complete = 1 where session_id = ?")
            .bind(seconds)
            .bind(session)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The recording of a session.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn recording(&self, session: i64) -> Result<Option<RecordingRow>, StoreError> {
        Ok(sqlx::query_as(
            "select session_id, key, began_at_ms, seconds, complete from recording where session_id = ?",
        )
        .bind(session)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// The recording with this key, once its session is over.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn recording_by_key(&self, key: &str) -> Result<Option<RecordingRow>, StoreError> {
        Ok(sqlx::query_as(
            "select r.session_id, r.key, r.began_at_ms, r.seconds, r.complete from recording r \
             join session s on s.id = r.session_id where r.key = ? and s.ended_at_ms is not null",
        )
        .bind(key)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Recordings that the process before this one did not close.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn open_recordings(&self) -> Result<Vec<RecordingRow>, StoreError> {
        Ok(sqlx::query_as(
            "select session_id, key, began_at_ms, seconds, complete from recording where complete = 0",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Recordings begun before a time whose session is over, at most a hundred.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn recordings_before(&self, at_ms: i64) -> Result<Vec<RecordingRow>, StoreError> {
        Ok(sqlx::query_as(
            "select r.session_id, r.key, r.began_at_ms, r.seconds, r.complete from recording r \
             join session s on s.id = r.session_id \
             where r.began_at_ms < ? and s.ended_at_ms is not null order by r.session_id limit 100",
        )
        .bind(at_ms)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Written after the file is gone.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn delete_recording(&self, session: i64) -> Result<(), StoreError> {
        sqlx::query("delete from recording where session_id = ?")
            .bind(session)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
