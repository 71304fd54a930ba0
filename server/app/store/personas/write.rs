//! Changes to personas: each is made whole or not at all.

use sqlx::{Sqlite, Transaction};
use wire::api::personas::{Greeting, Persona, PersonaDraft};

use crate::store::{Store, StoreError, now_ms};

/// A persona shipped with the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Never changes, so that it is made once.
    pub key: &'static str,
    /// What it is.
    pub draft: PersonaDraft,
}

impl Store {
    /// Makes a persona. The first one becomes the default.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`].
    pub async fn insert_persona(
        &self,
        draft: &PersonaDraft,
        by: &str,
    ) -> Result<Persona, StoreError> {
        let mut all = self.pool.begin().await?;
        let id = insert(&mut all, draft, by, None).await?;
        all.commit().await?;
        self.persona(id).await
    }

    /// Makes all of them, or none.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`], also by another one of `drafts`.
    pub async fn insert_personas(
        &self,
        drafts: &[PersonaDraft],
        by: &str,
    ) -> Result<(), StoreError> {
        let mut all = self.pool.begin().await?;
        for draft in drafts {
            insert(&mut all, draft, by, None).await?;
        }
        Ok(all.commit().await?)
    }

    /// Makes version `expected + 1`.
    ///
    /// # Errors
    /// [`StoreError::ChangedMeanwhile`], [`StoreError::NameTaken`], [`StoreError::Missing`].
    pub async fn update_persona(
        &self,
        id: i64,
        expected: i64,
        draft: &PersonaDraft,
        by: &str,
    ) -> Result<Persona, StoreError> {
        let mut all = self.pool.begin().await?;
        let moved = sqlx::query(
            "update persona set version = version + 1, name = ?3 where id = ?1 and version = ?2",
        )
        .bind(id)
        .bind(expected)
        .bind(&draft.name)
        .execute(&mut *all)
        .await
        .map_err(|error| name_taken(error, &draft.name))?;
        if moved.rows_affected() == 0 {
            // The transaction holds the only connection of a store in memory.
            drop(all);
            let now = self.persona(id).await?.version;
            return Err(StoreError::ChangedMeanwhile { expected, now });
        }
        insert_version(&mut all, id, expected + 1, draft, by).await?;
        all.commit().await?;
        self.persona(id).await
    }

    /// Into the archive; once there, or with no persona of that number, nothing is done.
    ///
    /// # Errors
    /// [`StoreError::IsDefault`]: the default persona stays, since somebody has to answer.
    pub async fn archive_persona(&self, id: i64) -> Result<(), StoreError> {
        // The condition belongs to the change: another operator may make it the default at this moment.
        let done = sqlx::query(
            "update persona set archived_at_ms = coalesce(archived_at_ms, ?2) \
             where id = ?1 and not exists (select 1 from default_persona where persona_id = ?1)",
        )
        .bind(id)
        .bind(now_ms())
        .execute(&self.pool)
        .await?;
        if done.rows_affected() > 0 {
            return Ok(());
        }
        match self.persona(id).await {
            Ok(persona) => Err(StoreError::IsDefault {
                name: persona.draft.name,
            }),
            Err(StoreError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Out of the archive; one that is not there stays as it is.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`]: its name belongs to another by now. [`StoreError::Missing`].
    pub async fn unarchive_persona(&self, id: i64) -> Result<Persona, StoreError> {
        let done = sqlx::query("update persona set archived_at_ms = null where id = ?")
            .bind(id)
            .execute(&self.pool)
            .await;
        let persona = self.persona(id).await?;
        match done {
            Ok(_) => Ok(persona),
            Err(error) => Err(name_taken(error, &persona.draft.name)),
        }
    }

    /// From now on it answers callers that name no persona.
    ///
    /// # Errors
    /// [`StoreError::Missing`]: none of that number, or it is archived.
    pub async fn set_default_persona(&self, id: i64) -> Result<Persona, StoreError> {
        let done = sqlx::query(
            "insert into default_persona (only_one, persona_id) \
             select 1, id from persona where id = ? and archived_at_ms is null \
             on conflict (only_one) do update set persona_id = excluded.persona_id",
        )
        .bind(id)
        .execute(&self.pool)
        .await?;
        match done.rows_affected() {
            0 => Err(StoreError::missing("persona", id)),
            _ => self.persona(id).await,
        }
    }

    /// Makes those presets that were never made. An operator's changes and archive stay as they are.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn install_presets(&self, presets: &[Preset]) -> Result<(), StoreError> {
        for preset in presets {
            let made: bool =
                sqlx::query_scalar("select exists (select 1 from persona where preset = ?)")
                    .bind(preset.key)
                    .fetch_one(&self.pool)
                    .await?;
            if made {
                continue;
            }
            let mut all = self.pool.begin().await?;
            match insert(&mut all, &preset.draft, "vivavoce", Some(preset.key)).await {
                Ok(_) => all.commit().await?,
                Err(StoreError::NameTaken { name }) => {
                    tracing::debug!(name, "a persona of this name is there already");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Makes a persona with its first version; returns its number.
async fn insert(
    all: &mut Transaction<'_, Sqlite>,
    draft: &PersonaDraft,
    by: &str,
    preset: Option<&str>,
) -> Result<i64, StoreError> {
    let id: i64 = sqlx::query_scalar(
        "insert into persona (version, name, preset, created_at_ms) values (1, ?, ?, ?) returning id",
    )
    .bind(&draft.name)
    .bind(preset)
    .bind(now_ms())
    .fetch_one(&mut **all)
    .await
    .map_err(|error| name_taken(error, &draft.name))?;
    insert_version(all, id, 1, draft, by).await?;
    sqlx::query(
        "insert into default_persona (only_one, persona_id) values (1, ?) on conflict do nothing",
    )
    .bind(id)
    .execute(&mut **all)
    .await?;
    Ok(id)
}

async fn insert_version(
    all: &mut Transaction<'_, Sqlite>,
    id: i64,
    version: i64,
    draft: &PersonaDraft,
    by: &str,
) -> Result<(), StoreError> {
    let sampling = serde_json::to_string(&draft.sampling).unwrap_or_default();
    sqlx::query(
        "insert into persona_version \
         (persona_id, version, name, role_text, voice, sampling, greeting, changed_at_ms, changed_by) \
         values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(id)
    .bind(version)
    .bind(&draft.name)
    .bind(&draft.role_text)
    .bind(&draft.voice)
    .bind(sampling)
    .bind(greeting_word(draft.greeting))
    .bind(now_ms())
    .bind(by)
    .execute(&mut **all)
    .await?;
    Ok(())
}

fn name_taken(error: sqlx::Error, name: &str) -> StoreError {
    match error.as_database_error() {
        Some(database) if database.is_unique_violation() => StoreError::NameTaken {
            name: name.to_owned(),
        },
        _ => error.into(),
    }
}

fn greeting_word(greeting: Greeting) -> &'static str {
    match greeting {
        Greeting::AgentFirst => "agent_first",
        Greeting::CallerFirst => "caller_first",
    }
}
