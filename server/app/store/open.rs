//! Opening the file: made when it is not there, brought to the present form, refused when it cannot be trusted.
//!
//! May not live here: what is asked of it.

use std::fs::{File, OpenOptions, TryLockError};
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
        let lock = lock(&file.with_extension("lock"))?;
        let options = SqliteConnectOptions::new().filename(file);
        if std::fs::metadata(file).is_ok_and(|found| found.len() > 0) {
            inspect(&options).await?;
        } else {
            make(file)?;
        }
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
        Self::with(SqliteConnectOptions::new().in_memory(true), 1).await
    }

    async fn with(options: SqliteConnectOptions, connections: u32) -> Result<Self, StoreError> {
        let options = options
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
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

/// An empty file that only its owner can read.
fn make(file: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    private(&mut options);
    options
        .open(file)
        .map(drop)
        .map_err(|source| StoreError::Io {
            file: file.display().to_string(),
            source,
        })
}

fn lock(file: &Path) -> Result<File, StoreError> {
    let io = |source| StoreError::Io {
        file: file.display().to_string(),
        source,
    };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    private(&mut options);
    let lock = options.open(file).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
            file: file.display().to_string(),
        }),
        Err(TryLockError::Error(source)) => Err(io(source)),
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
mod tests {
    use super::*;

    async fn refusal(file: &Path) -> StoreError {
        Store::open(file).await.expect_err("it must not open")
    }

    #[tokio::test]
    async fn a_new_file_is_private_and_opens_again_with_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vivavoce.db");
        let store = Store::open(&file).await.unwrap();
        let policy = wire::api::system::PolicyDraft {
            session_days: 7,
            ..Default::default()
        };
        store.set_policy(&policy, 1).await.unwrap();
        store.close().await;
        drop(store);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{mode:o}");
        }
        let store = Store::open(&file).await.unwrap();
        assert_eq!(store.policy().await.unwrap().draft, policy);
    }

    #[tokio::test]
    async fn a_file_that_another_process_has_open_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vivavoce.db");
        let _first = Store::open(&file).await.unwrap();
        assert!(matches!(refusal(&file).await, StoreError::InUse { .. }));
    }

    #[tokio::test]
    async fn a_file_of_a_newer_version_is_refused_and_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vivavoce.db");
        let store = Store::open(&file).await.unwrap();
        sqlx::query(
            "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
             values (9999, 'later', 1, x'00', 0)",
        )
        .execute(&store.pool)
        .await
        .unwrap();
        store.close().await;
        drop(store);
        let before = std::fs::read(&file).unwrap();
        let error = refusal(&file).await;
        assert!(
            matches!(error, StoreError::Newer { found: 9999, .. }),
            "{error}"
        );
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }

    #[tokio::test]
    async fn a_damaged_file_is_refused_in_plain_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vivavoce.db");
        std::fs::write(
            &file,
            "this is no database, but it is longer than a header of one would be ........",
        )
        .unwrap();
        let error = refusal(&file).await;
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");

        std::fs::remove_file(&file).unwrap();
        let store = Store::open(&file).await.unwrap();
        store.close().await;
        drop(store);
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..].fill(0xa5);
        std::fs::write(&file, bytes).unwrap();
        let error = refusal(&file).await;
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = refusal(&folder.path().join("gone/vivavoce.db")).await;
        assert!(error.to_string().contains("gone"), "{error}");
    }

    #[tokio::test]
    async fn a_full_disk_is_told_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vivavoce.db");
        let store = Store::open(&file).await.unwrap();
        // SQLite itself answers as it does on a full disk when a file may not grow.
        let pages: i64 = sqlx::query_scalar("pragma page_count")
            .fetch_one(&store.pool)
            .await
            .unwrap();
        let mut connection = store.pool.acquire().await.unwrap();
        let limit = format!("pragma max_page_count = {pages}");
        sqlx::query(sqlx::AssertSqlSafe(limit))
            .execute(&mut *connection)
            .await
            .unwrap();
        let error = loop {
            let row = sqlx::query(
                "insert into setting (name, value) values (hex(randomblob(8)), hex(randomblob(4000)))",
            );
            if let Err(error) = row.execute(&mut *connection).await {
                break StoreError::from(error);
            }
        };
        assert!(matches!(error, StoreError::DiskFull), "{error:?}");
    }
}
