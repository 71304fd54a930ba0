//! Personas and their versions. A version is never changed: a change is a new one.
//!
//! Lives here: what is asked. May not live here: what changes (`personas/write.rs`).

mod write;

use sqlx::FromRow;
use wire::api::personas::{Greeting, Persona, PersonaDraft, PersonaVersion, SamplingWish};

use super::{Store, StoreError, contains_pattern, paged};

pub use write::Preset;

/// Which personas a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersonaQuestion {
    /// Part of name or role text, without regard to case.
    pub query: Option<String>,
    /// The archived ones instead of the present ones.
    pub archived: bool,
    /// From the page before.
    pub cursor: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

/// What a call needs of a persona.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonaToCall {
    /// Its number.
    pub id: i64,
    /// Its newest version.
    pub version: i64,
    /// What an operator wrote.
    pub draft: PersonaDraft,
}

#[derive(FromRow)]
struct Row {
    id: i64,
    version: i64,
    name: String,
    role_text: String,
    voice: Option<String>,
    sampling: String,
    greeting: String,
    changed_at_ms: i64,
    changed_by: String,
    created_at_ms: i64,
    archived: bool,
    is_preset: bool,
    is_default: bool,
    calls: i64,
}

#[derive(FromRow)]
struct VersionRow {
    version: i64,
    name: String,
    role_text: String,
    voice: Option<String>,
    sampling: String,
    greeting: String,
    changed_at_ms: i64,
    changed_by: String,
}

fn greeting(word: &str) -> Greeting {
    match word {
        "caller_first" => Greeting::CallerFirst,
        _ => Greeting::AgentFirst,
    }
}

fn sampling(json: &str) -> SamplingWish {
    // Only this program writes the column.
    serde_json::from_str(json).unwrap_or_default()
}

impl From<Row> for Persona {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            draft: PersonaDraft {
                name: row.name,
                role_text: row.role_text,
                voice: row.voice,
                sampling: sampling(&row.sampling),
                greeting: greeting(&row.greeting),
            },
            version: row.version,
            is_default: row.is_default,
            is_preset: row.is_preset,
            archived: row.archived,
            created_at_ms: row.created_at_ms,
            changed_at_ms: row.changed_at_ms,
            changed_by: row.changed_by,
            calls: row.calls,
        }
    }
}

impl From<VersionRow> for PersonaVersion {
    fn from(row: VersionRow) -> Self {
        Self {
            version: row.version,
            draft: PersonaDraft {
                name: row.name,
                role_text: row.role_text,
                voice: row.voice,
                sampling: sampling(&row.sampling),
                greeting: greeting(&row.greeting),
            },
            changed_at_ms: row.changed_at_ms,
            changed_by: row.changed_by,
        }
    }
}

/// The columns of a [`Row`].
macro_rules! select_persona {
    ($rest:literal) => {
        concat!(
            "select p.id, p.version, v.name, v.role_text, v.voice, v.sampling, v.greeting, \
             v.changed_at_ms, v.changed_by, p.created_at_ms, p.archived_at_ms is not null as archived, \
             p.preset is not null as is_preset, \
             exists (select 1 from default_persona d where d.persona_id = p.id) as is_default, \
             (select count(*) from session s where s.persona_id = p.id) as calls \
             from persona p join persona_version v on v.persona_id = p.id and v.version = p.version ",
            $rest
        )
    };
}

impl Store {
    /// Personas by name, and where the next page begins.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn personas(
        &self,
        question: &PersonaQuestion,
    ) -> Result<(Vec<Persona>, Option<String>), StoreError> {
        let pattern = question.query.as_deref().map(contains_pattern);
        let rows: Vec<Row> = sqlx::query_as(select_persona!(
            "left join persona c on c.id = ?3 \
             where (p.archived_at_ms is not null) = ?1 \
             and (?2 is null or v.name like ?2 escape '\\' or v.role_text like ?2 escape '\\') \
             and (c.id is null or p.name > c.name collate nocase \
                  or (p.name = c.name collate nocase and p.id > c.id)) \
             order by p.name collate nocase, p.id limit ?4"
        ))
        .bind(question.archived)
        .bind(pattern)
        .bind(question.cursor)
        .bind(question.limit + 1)
        .fetch_all(&self.pool)
        .await?;
        let (rows, next) = paged(rows, question.limit, |row| row.id);
        Ok((rows.into_iter().map(Persona::from).collect(), next))
    }

    /// One persona, archived or not.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub async fn persona(&self, id: i64) -> Result<Persona, StoreError> {
        let row: Option<Row> = sqlx::query_as(select_persona!("where p.id = ?"))
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        row.map(Persona::from)
            .ok_or_else(|| StoreError::missing("persona", id))
    }

    /// The persona a caller asked for, or the default one.
    ///
    /// # Errors
    /// [`StoreError::Missing`]: none of that number, or it is archived.
    pub async fn persona_for_call(&self, id: Option<i64>) -> Result<PersonaToCall, StoreError> {
        let id = match id {
            Some(id) => id,
            None => sqlx::query_scalar("select persona_id from default_persona")
                .fetch_optional(&self.pool)
                .await?
                .ok_or_else(|| StoreError::missing("persona", "to answer with"))?,
        };
        let persona = self.persona(id).await?;
        match persona.archived {
            true => Err(StoreError::missing("persona", id)),
            false => Ok(PersonaToCall {
                id,
                version: persona.version,
                draft: persona.draft,
            }),
        }
    }

    /// All versions, newest first.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub async fn persona_versions(&self, id: i64) -> Result<Vec<PersonaVersion>, StoreError> {
        let rows: Vec<VersionRow> = sqlx::query_as(
            "select version, name, role_text, voice, sampling, greeting, changed_at_ms, changed_by \
             from persona_version where persona_id = ? order by version desc",
        )
        .bind(id)
        .fetch_all(&self.pool)
        .await?;
        match rows.is_empty() {
            true => Err(StoreError::missing("persona", id)),
            false => Ok(rows.into_iter().map(PersonaVersion::from).collect()),
        }
    }

    /// Whether a present persona has this name, without regard to case.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn persona_by_name(&self, name: &str) -> Result<Option<Persona>, StoreError> {
        let row: Option<Row> = sqlx::query_as(select_persona!(
            "where p.name = ? collate nocase and p.archived_at_ms is null"
        ))
        .bind(name)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(Persona::from))
    }

    /// Present personas that use a voice, by name.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn personas_of_voice(&self, voice: &str) -> Result<Vec<Persona>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(select_persona!(
            "where v.voice = ? collate nocase and p.archived_at_ms is null order by p.name collate nocase"
        ))
        .bind(voice)
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(Persona::from).collect())
    }
}

#[cfg(test)]
mod tests;
