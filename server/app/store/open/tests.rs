//! Opening a file in every state that disks and people leave it in.

use sqlx::SqliteConnection;

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
    let error = refusal(&file).await;
    assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("another vivavoce"), "{error}");
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

/// A connection of another program.
async fn stranger(file: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(file);
    options.connect().await.unwrap()
}

async fn run(connection: &mut SqliteConnection, statement: &'static str) {
    sqlx::query(statement).execute(connection).await.unwrap();
}

#[tokio::test]
async fn a_file_that_another_program_holds_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vivavoce.db");
    let open = async || Store::open_within(&file, Duration::ZERO).await;
    let draft = wire::api::system::PolicyDraft::default();

    // It writes: reading goes on, what is to be written has to wait.
    let store = open().await.unwrap();
    let mut other = stranger(&file).await;
    run(&mut other, "begin immediate").await;
    store.policy().await.unwrap();
    let error = store.set_policy(&draft, 1).await.unwrap_err();
    assert!(matches!(error, StoreError::Locked), "{error:?}");
    run(&mut other, "commit").await;
    store.set_policy(&draft, 1).await.unwrap();
    store.close().await;
    drop(store);

    // It wants the file for itself.
    run(&mut other, "pragma locking_mode = exclusive").await;
    run(&mut other, "insert into setting values ('a', 'b')").await;
    let error = open().await.expect_err("it is held");
    assert!(matches!(error, StoreError::Locked), "{error:?}");
    assert!(error.to_string().contains("another program"), "{error}");
    other.close().await.unwrap();
    assert_eq!(open().await.unwrap().policy().await.unwrap().version, 2);
}

/// Runs `work` in a thread that may not do more than the owner of a file allows. The tests of a container run as root,
/// who may write everything.
#[cfg(target_os = "linux")]
fn as_nobody<T: Send>(work: impl Future<Output = T> + Send) -> T {
    const NOBODY: libc::uid_t = 65_534;
    let run = || {
        // SAFETY: takes a number and changes only what this thread, and those it starts, may do with files. Somebody
        // who is not root stays who they are.
        #[allow(unsafe_code)]
        unsafe {
            libc::setfsuid(NOBODY)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(work)
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[cfg(target_os = "linux")]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_folder_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o555);
    let error = as_nobody(refusal(&folder.path().join("vivavoce.db")));
    assert!(matches!(error, StoreError::NotWritable { .. }), "{error:?}");
    for words in [folder.path().to_str().unwrap(), "--data-dir"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    set_mode(folder.path(), 0o755);
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_file_is_named_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vivavoce.db");
    set_mode(folder.path(), 0o777);
    as_nobody(async { Store::open(&file).await.unwrap().close().await });
    let before = std::fs::read(&file).unwrap();
    set_mode(&file, 0o444);
    let error = as_nobody(refusal(&file));
    assert!(matches!(error, StoreError::NotWritable { .. }), "{error:?}");
    assert!(error.to_string().contains("vivavoce.db "), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[tokio::test]
async fn a_disk_that_becomes_read_only_is_told_as_such() {
    let store = Store::in_memory().await.unwrap();
    // SQLite itself answers as it does when the system no longer lets it write.
    let only_read = sqlx::query("pragma query_only = on");
    only_read.execute(&store.pool).await.unwrap();
    let draft = wire::api::system::PolicyDraft::default();
    let error = store.set_policy(&draft, 1).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly), "{error:?}");
}
