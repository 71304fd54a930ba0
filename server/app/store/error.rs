//! Why the store could not do what it was asked.

/// One line for a person; variants for what callers treat differently.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another one has this name.
    #[error("the name {name:?} is taken")]
    NameTaken {
        /// As wished.
        name: String,
    },
    /// Changed by somebody else since it was read.
    #[error("it was changed meanwhile: version {now} is there, {expected} was expected")]
    ChangedMeanwhile {
        /// What the asker knows.
        expected: i64,
        /// What is there.
        now: i64,
    },
    /// There is no such thing.
    #[error("there is no {what}")]
    Missing {
        /// `persona 7`, `session 12`.
        what: String,
    },
    /// Callers that name no persona get this one, so it stays.
    #[error("{name:?} answers callers that name no persona; make another one the default first")]
    IsDefault {
        /// Of the persona.
        name: String,
    },
    /// The session runs; what belongs to it cannot be deleted yet.
    #[error("session {session} is still running")]
    Running {
        /// Its number.
        session: i64,
    },
    /// A file cannot be made or opened.
    #[error("{file}: {source}")]
    Io {
        /// Its path.
        file: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// This user may not write it, or nobody may.
    #[error(
        "{file} cannot be written; give this user the right to write there, or another folder with --data-dir DIR"
    )]
    NotWritable {
        /// Its path.
        file: String,
    },
    /// Another process has it.
    #[error(
        "{file} is held by another vivavoce; stop that one, or give this one another --data-dir"
    )]
    InUse {
        /// The database.
        file: String,
    },
    /// Written by a later version of this program.
    #[error(
        "the database has form {found}, this version knows up to {known}; use the newer vivavoce, or another --data-dir"
    )]
    Newer {
        /// In the file.
        found: i64,
        /// Of this program.
        known: i64,
    },
    /// Not a database, or no longer one.
    #[error(
        "the database is damaged ({what}); put a backup in its place, or move it away to begin anew"
    )]
    Damaged {
        /// SQLite's words.
        what: String,
    },
    /// What could be written cannot be any more.
    #[error("the database cannot be written: its file, folder or disk has become read-only")]
    ReadOnly,
    /// No space.
    #[error("the disk is full: what is new cannot be kept until there is space")]
    DiskFull,
    /// Somebody else, a backup tool say, holds the file for too long.
    #[error(
        "the database is locked by another program, a backup perhaps; end that one, or wait for its end"
    )]
    Locked,
    /// The forms of the file.
    #[error("the database cannot be brought to its present form: {0}")]
    Migrate(sqlx::migrate::MigrateError),
    /// SQLite's own words.
    #[error("the database failed: {0}")]
    Database(sqlx::Error),
}

impl StoreError {
    /// A thing that is not there.
    pub(super) fn missing(kind: &str, id: impl std::fmt::Display) -> Self {
        Self::Missing {
            what: format!("{kind} {id}"),
        }
    }
}

impl StoreError {
    /// Whether only the row at hand is at fault: a constraint forbids it, and others can be written.
    pub(crate) fn is_about_one_row(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        let code = error.as_database_error().and_then(|error| error.code());
        code.and_then(|code| code.parse::<u32>().ok())
            .is_some_and(|code| code & 0xff == CONSTRAINT)
    }
}

/// Source: SQLite, "Result and Error Codes", `SQLITE_CONSTRAINT`.
const CONSTRAINT: u32 = 19;

impl From<sqlx::Error> for StoreError {
    /// Source of the numbers: SQLite, "Result and Error Codes"; the low byte is the kind.
    fn from(error: sqlx::Error) -> Self {
        let Some(database) = error.as_database_error() else {
            return Self::Database(error);
        };
        let code = database.code().and_then(|code| code.parse::<u32>().ok());
        match code.map(|code| code & 0xff) {
            Some(5 | 6) => Self::Locked,
            Some(8) => Self::ReadOnly,
            Some(11 | 26) => Self::Damaged {
                what: database.message().to_owned(),
            },
            Some(13) => Self::DiskFull,
            _ => Self::Database(error),
        }
    }
}
