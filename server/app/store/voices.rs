//! Voices that operators added, what they decided about the model's own, and previews.

use sqlx::FromRow;

use super::{Store, StoreError, now_ms};

/// A row about a voice of one model.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct StoredVoice {
    /// Its name.
    pub name: String,
    /// `model`, `bundle`, `recording`.
    pub origin: String,
    /// Length of its prompt in frames.
    pub frames: i64,
    /// For recordings.
    pub consent: Option<String>,
    /// Out of the way.
    pub archived: bool,
    /// Unix milliseconds.
    pub created_at_ms: i64,
}

impl Store {
    /// All rows about voices of `model`, by name.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn voices(&self, model: &str) -> Result<Vec<StoredVoice>, StoreError> {
        Ok(sqlx::query_as(
            "select name, origin, frames, consent, archived_at_ms is not null as archived, created_at_ms \
             from voice where model = ? order by name collate nocase",
        )
        .bind(model)
        .fetch_all(&self.pool)
        .await?)
    }

    /// The bundles of `model` that can be called, with their names.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn voice_bundles(&self, model: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        Ok(sqlx::query_as(
            "select name, bundle from voice \
             where model = ? and bundle is not null and archived_at_ms is null order by id",
        )
        .bind(model)
        .fetch_all(&self.pool)
        .await?)
    }

    /// The bundle of one voice, archived or not.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub async fn voice_bundle(&self, model: &str, name: &str) -> Result<Vec<u8>, StoreError> {
        let bundle: Option<Option<Vec<u8>>> = sqlx::query_scalar(
            "select bundle from voice where model = ? and name = ? collate nocase",
        )
        .bind(model)
        .bind(name)
        .fetch_optional(&self.pool)
        .await?;
        bundle
            .flatten()
            .ok_or_else(|| StoreError::missing("voice", name))
    }

    /// Adds a voice; `consent` makes it one of a recording.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`].
    pub async fn insert_voice(
        &self,
        model: &str,
        name: &str,
        bundle: &[u8],
        frames: i64,
        consent: Option<&str>,
    ) -> Result<(), StoreError> {
        let origin = match consent {
            Some(_) => "recording",
            None => "bundle",
        };
        sqlx::query(
            "insert into voice (name, origin, bundle, model, frames, consent, created_at_ms) \
             values (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(name)
        .bind(origin)
        .bind(bundle)
        .bind(model)
        .bind(frames)
        .bind(consent)
        .bind(now_ms())
        .execute(&self.pool)
        .await
        .map_err(|error| name_taken(error, name))?;
        Ok(())
    }

    /// Gives a voice another name. Its preview goes with it, and every persona that has it gets a new version, by `by`.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`], [`StoreError::Missing`]; nothing changes.
    pub async fn rename_voice(
        &self,
        model: &str,
        name: &str,
        to: &str,
        by: &str,
    ) -> Result<(), StoreError> {
        let mut all = self.pool.begin().await?;
        let done = sqlx::query(
            "update voice set name = ?3 where model = ?1 and name = ?2 collate nocase and origin <> 'model'",
        )
        .bind(model)
        .bind(name)
        .bind(to)
        .execute(&mut *all)
        .await
        .map_err(|error| name_taken(error, to))?;
        if done.rows_affected() == 0 {
            return Err(StoreError::missing("voice", name));
        }
        sqlx::query(
            "update or replace voice_preview set voice = ?3 where model = ?1 and voice = ?2",
        )
        .bind(model)
        .bind(name)
        .bind(to)
        .execute(&mut *all)
        .await?;
        sqlx::query(
            "insert into persona_version (persona_id, version, name, role_text, voice, sampling, greeting,              changed_at_ms, changed_by) \
             select p.id, p.version + 1, v.name, v.role_text, ?2, v.sampling, v.greeting, ?3, ?4 \
             from persona p join persona_version v on v.persona_id = p.id and v.version = p.version \
             where v.voice = ?1 collate nocase",
        )
        .bind(name)
        .bind(to)
        .bind(now_ms())
        .bind(by)
        .execute(&mut *all)
        .await?;
        sqlx::query(
            "update persona set version = version + 1 where exists \
             (select 1 from persona_version v where v.persona_id = persona.id and v.version = persona.version + 1)",
        )
        .execute(&mut *all)
        .await?;
        Ok(all.commit().await?)
    }

    /// Voice and name of every present persona that names a voice, by the persona's name.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn voices_of_personas(&self) -> Result<Vec<(String, String)>, StoreError> {
        Ok(sqlx::query_as(
            "select v.voice, v.name \
             from persona p join persona_version v on v.persona_id = p.id and v.version = p.version \
             where v.voice is not null and p.archived_at_ms is null order by p.name collate nocase",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Into the archive, or back. A voice of the model folder gets a row for it.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn set_voice_archived(
        &self,
        model: &str,
        name: &str,
        frames: i64,
        archived: bool,
    ) -> Result<(), StoreError> {
        let now = now_ms();
        sqlx::query(
            "insert into voice (name, origin, model, frames, created_at_ms, archived_at_ms) \
             values (?1, 'model', ?2, ?3, ?4, case when ?5 then ?4 end) \
             on conflict (model, name collate nocase) do update set archived_at_ms = excluded.archived_at_ms",
        )
        .bind(name)
        .bind(model)
        .bind(frames)
        .bind(now)
        .bind(archived)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Deletes a voice an operator added, with its preview; none of that name is fine.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn delete_voice(&self, model: &str, name: &str) -> Result<(), StoreError> {
        let mut all = self.pool.begin().await?;
        for statement in [
            "delete from voice where model = ? and name = ? collate nocase and origin <> 'model'",
            "delete from voice_preview where model = ? and voice = ?",
        ] {
            sqlx::query(statement)
                .bind(model)
                .bind(name)
                .execute(&mut *all)
                .await?;
        }
        Ok(all.commit().await?)
    }

    /// The preview of a voice, as WAV, if it was made.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn voice_preview(
        &self,
        model: &str,
        name: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(
            sqlx::query_scalar("select wav from voice_preview where model = ? and voice = ?")
                .bind(model)
                .bind(name)
                .fetch_optional(&self.pool)
                .await?,
        )
    }

    /// Names of voices whose preview is made.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn previewed_voices(&self, model: &str) -> Result<Vec<String>, StoreError> {
        Ok(
            sqlx::query_scalar("select voice from voice_preview where model = ?")
                .bind(model)
                .fetch_all(&self.pool)
                .await?,
        )
    }

    /// Keeps a preview.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn set_voice_preview(
        &self,
        model: &str,
        name: &str,
        wav: &[u8],
    ) -> Result<(), StoreError> {
        sqlx::query(
            "insert or replace into voice_preview (model, voice, wav, made_at_ms) values (?, ?, ?, ?)",
        )
        .bind(model)
        .bind(name)
        .bind(wav)
        .bind(now_ms())
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

fn name_taken(error: sqlx::Error, name: &str) -> StoreError {
    match error.as_database_error() {
        Some(database) if database.is_unique_violation() => StoreError::NameTaken {
            name: name.to_owned(),
        },
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::api::personas::PersonaDraft;

    #[tokio::test]
    async fn a_voice_is_added_renamed_archived_and_deleted_with_its_preview() {
        let store = Store::in_memory().await.unwrap();
        store
            .insert_voice("m", "Ada", b"bundle", 40, Some("It is me."))
            .await
            .unwrap();
        let twin = store.insert_voice("m", "ADA", b"other", 40, None).await;
        assert!(matches!(twin, Err(StoreError::NameTaken { .. })));
        store
            .insert_voice("another model", "Ada", b"other", 9, None)
            .await
            .unwrap();
        store.set_voice_preview("m", "Ada", b"wav").await.unwrap();
        store.rename_voice("m", "ada", "Bea", "me").await.unwrap();
        assert_eq!(
            store.voice_preview("m", "Bea").await.unwrap().as_deref(),
            Some(&b"wav"[..])
        );
        store
            .set_voice_archived("m", "Bea", 40, true)
            .await
            .unwrap();
        assert!(store.voices("m").await.unwrap()[0].archived);
        assert!(store.voice_bundles("m").await.unwrap().is_empty());
        store
            .set_voice_archived("m", "Bea", 40, false)
            .await
            .unwrap();
        assert_eq!(
            store.voice_bundles("m").await.unwrap(),
            [("Bea".to_owned(), b"bundle".to_vec())]
        );
        store.delete_voice("m", "Bea").await.unwrap();
        store.delete_voice("m", "Bea").await.unwrap();
        assert!(store.voices("m").await.unwrap().is_empty());
        assert_eq!(store.voice_preview("m", "Bea").await.unwrap(), None);
    }

    #[tokio::test]
    async fn personas_follow_the_new_name_of_their_voice_by_a_version_of_their_own() {
        let store = Store::in_memory().await.unwrap();
        for name in ["Ada", "Bea"] {
            let made = store.insert_voice("m", name, b"bundle", 40, None).await;
            made.unwrap();
        }
        let mut ids = Vec::new();
        for (name, voice) in [("one", Some("ada")), ("two", Some("Bea")), ("three", None)] {
            let draft = PersonaDraft {
                name: name.to_owned(),
                voice: voice.map(str::to_owned),
                ..PersonaDraft::default()
            };
            ids.push(store.insert_persona(&draft, "operator").await.unwrap().id);
        }
        let taken = store.rename_voice("m", "Ada", "BEA", "me").await;
        assert!(matches!(taken, Err(StoreError::NameTaken { .. })));
        store.rename_voice("m", "Ada", "Cleo", "me").await.unwrap();
        let mut found = Vec::new();
        for id in ids {
            let persona = store.persona(id).await.unwrap();
            found.push((persona.version, persona.draft.voice, persona.changed_by));
        }
        let row = |version, voice: Option<&str>, by: &str| {
            (version, voice.map(str::to_owned), by.to_owned())
        };
        assert_eq!(
            found,
            [
                row(2, Some("Cleo"), "me"),
                row(1, Some("Bea"), "operator"),
                row(1, None, "operator")
            ]
        );
        let used = store.voices_of_personas().await.unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(used, [pair("Cleo", "one"), pair("Bea", "two")]);
    }

    #[tokio::test]
    async fn a_voice_of_the_model_can_be_archived_and_not_deleted() {
        let store = Store::in_memory().await.unwrap();
        store
            .set_voice_archived("m", "NATF0", 51, true)
            .await
            .unwrap();
        store.delete_voice("m", "NATF0").await.unwrap();
        let voices = store.voices("m").await.unwrap();
        assert!(voices[0].archived && voices[0].origin == "model");
    }
}
