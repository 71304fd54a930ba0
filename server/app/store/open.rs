//! Opening the file: made when it is not there, brought to the present form, refused when it cannot be trusted.
//!
//! May not live here: what is asked of it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Pool, Sqlite};

use super::StoreError;

/// The forms of the file, oldest first.
static MIGRATIONS: Migrator = sqlx::migrate!();

/// Readers at the same time.
const CONNECTIONS_MAX: u32 = 4;
/// How long a writer waits for another.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) pool: Pool<Sqlite>,
    /// Held so that no second process writes the same file.
    _lock: Option<Arc<File>>,
}

impl Store {
    /// Opens the file, makes it when it is not there, and brings it to the present form.
    ///
    /// # Errors
    /// [`StoreError`] says what is wrong with the file and what to do about it; the file is not touched then.
    pub async fn open(file: &Path) -> Result<Self, StoreError> {
        Self::open_within(file, BUSY_TIMEOUT).await
    }

    /// [`Store::open`], with how long anything waits for a program that holds the file.
    async fn open_within(file: &Path, patience: Duration) -> Result<Self, StoreError> {
        let lock = writable(&file.with_extension("lock"))?;
        take(&lock, file)?;
        // Made if it is not there; a file that may only be read is found out now and not by the first call.
        let bytes = writable(file)?.metadata().map_or(0, |found| found.len());
        let options = SqliteConnectOptions::new()
            .filename(file)
            .busy_timeout(patience);
        if bytes > 0 {
            inspect(&options).await?;
        }
        // By one connection alone: while the file becomes one with a log, a second would be told that it is locked, however
        // long it is willing to wait.
        Self::with(options.clone(), 1).await?.close().await;
        let store = Self::with(options, CONNECTIONS_MAX).await?;
        Ok(Self {
            _lock: Some(Arc::new(lock)),
            ..store
        })
    }

    /// A store of its own in memory, gone with the last clone. For tests.
    ///
    /// # Errors
    /// None in practice.
    pub async fn in_memory() -> Result<Self, StoreError> {
        // Each connection would get a database of its own.
        let options = SqliteConnectOptions::new().in_memory(true);
        Self::with(options.busy_timeout(BUSY_TIMEOUT), 1).await
    }

    async fn with(options: SqliteConnectOptions, connections: u32) -> Result<Self, StoreError> {
        let options = options
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .disable_statement_logging();
        let pool = SqlitePoolOptions::new()
            .max_connections(connections)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options)
            .await?;
        MIGRATIONS.run(&pool).await?;
        Ok(Self { pool, _lock: None })
    }

    /// Lets the file grow to its present size and no further, as on a full disk, or as it likes again. Only for a store
    /// in memory, whose one connection knows of it.
    #[cfg(test)]
    pub(crate) async fn set_full(&self, full: bool) {
        let pages: i64 = match full {
            true => sqlx::query_scalar("pragma page_count")
                .fetch_one(&self.pool)
                .await
                .unwrap(),
            false => i64::from(u32::MAX - 1),
        };
        let limit = format!("pragma max_page_count = {pages}");
        let limit = sqlx::query(sqlx::AssertSqlSafe(limit));
        limit.execute(&self.pool).await.unwrap();
    }

    /// Closes every connection; what was committed is in the file.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Looks at an existing file without writing to it.
async fn inspect(options: &SqliteConnectOptions) -> Result<(), StoreError> {
    let mut connection = options.clone().read_only(true).connect().await?;
    let sound: String = sqlx::query_scalar("pragma quick_check(1)")
        .fetch_one(&mut connection)
        .await?;
    if sound != "ok" {
        return Err(StoreError::Damaged { what: sound });
    }
    let has_forms: bool = sqlx::query_scalar(
        "select exists (select 1 from sqlite_schema where name = '_sqlx_migrations')",
    )
    .fetch_one(&mut connection)
    .await?;
    if has_forms {
        let found: Option<i64> = sqlx::query_scalar("select max(version) from _sqlx_migrations")
            .fetch_one(&mut connection)
            .await?;
        let known = MIGRATIONS.iter().map(|form| form.version).max();
        if found > known {
            return Err(StoreError::Newer {
                found: found.unwrap_or_default(),
                known: known.unwrap_or_default(),
            });
        }
    }
    connection.close().await?;
    Ok(())
}

/// Opens a file for writing, and makes it, for its owner alone, when it is not there.
fn writable(file: &Path) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    private(&mut options);
    options.open(file).map_err(|source| match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StoreError::NotWritable {
            file: file.display().to_string(),
        },
        _ => StoreError::Io {
            file: file.display().to_string(),
            source,
        },
    })
}

/// Makes this process the only one that opens `database`, until `lock` is dropped, also by a kill.
fn take(lock: &File, database: &Path) -> Result<(), StoreError> {
    let file = database.display().to_string();
    match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { file }),
        Err(TryLockError::Error(source)) => Err(StoreError::Io { file, source }),
    }
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

#[cfg(not(unix))]
fn private(_: &mut OpenOptions) {}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMissing(found) => Self::Newer {
                found,
                known: MIGRATIONS
                    .iter()
                    .map(|form| form.version)
                    .max()
                    .unwrap_or_default(),
            },
            MigrateError::Execute(error) => error.into(),
            error => Self::Migrate(error),
        }
    }
}

#[cfg(test)]
mod tests;
