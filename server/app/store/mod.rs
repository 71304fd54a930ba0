//! What outlives the process: personas, voices, accounts and the log of sessions, in one SQLite file.
//!
//! Lives here: [`Store`] (opening the file), [`StoreError`], and in one file for each resource all of its SQL.
//! May not live here: HTTP, sessions, the tick. Nothing here is ever called from the stepping thread.

mod error;

use std::path::Path;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Pool, Sqlite};

pub use error::StoreError;

/// The forms of the file, oldest first.
static MIGRATIONS: Migrator = sqlx::migrate!();

/// Readers at the same time; writers wait for each other inside SQLite.
const CONNECTIONS_MAX: u32 = 4;

/// The one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: Pool<Sqlite>,
}

impl Store {
    /// Opens the file, makes it when it is not there, and brings it to the present form.
    ///
    /// # Errors
    /// [`StoreError`] says what is wrong with the file and what to do about it; the file is not touched then.
    pub async fn open(file: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true);
        Self::with(options, CONNECTIONS_MAX).await
    }

    /// A store of its own in memory, gone with the last clone. For tests.
    ///
    /// # Errors
    /// None in practice.
    pub async fn in_memory() -> Result<Self, StoreError> {
        // Each connection would get a database of its own.
        Self::with(SqliteConnectOptions::new().in_memory(true), 1).await
    }

    async fn with(options: SqliteConnectOptions, connections: u32) -> Result<Self, StoreError> {
        let options = options
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
        let pool = SqlitePoolOptions::new()
            .max_connections(connections)
            .min_connections(connections.min(1))
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options)
            .await?;
        MIGRATIONS.run(&pool).await?;
        Ok(Self { pool })
    }
}

/// Unix milliseconds now.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_store_has_every_table_and_sound_references() {
        let store = Store::in_memory().await.unwrap();
        let count: i64 = sqlx::query_scalar("select count(*) from pragma_foreign_key_check")
            .fetch_one(&store.pool)
            .await
            .unwrap();
        assert_eq!(count, 0);
        let tables: i64 = sqlx::query_scalar(
            "select count(*) from sqlite_schema where type = 'table' and name = 'transcript'",
        )
        .fetch_one(&store.pool)
        .await
        .unwrap();
        assert_eq!(tables, 1);
    }
}
