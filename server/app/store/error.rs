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
    /// The forms of the file.
    #[error(transparent)]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// SQLite's own words.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}
