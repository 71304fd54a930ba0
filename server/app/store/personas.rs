//! Personas and their versions. A version is never changed: a change is a new one.

use sqlx::{FromRow, Sqlite, Transaction};
use wire::api::personas::{Greeting, Persona, PersonaDraft, PersonaVersion, SamplingWish};

use super::{Store, StoreError, contains_pattern, now_ms, paged};

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

/// A persona shipped with the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Never changes, so that it is made once.
    pub key: &'static str,
    /// What it is.
    pub draft: PersonaDraft,
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

fn greeting_word(greeting: Greeting) -> &'static str {
    match greeting {
        Greeting::AgentFirst => "agent_first",
        Greeting::CallerFirst => "caller_first",
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

    /// Makes a persona. The first one becomes the default.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`].
    pub async fn insert_persona(
        &self,
        draft: &PersonaDraft,
        by: &str,
    ) -> Result<Persona, StoreError> {
        self.insert(draft, by, None).await
    }

    async fn insert(
        &self,
        draft: &PersonaDraft,
        by: &str,
        preset: Option<&str>,
    ) -> Result<Persona, StoreError> {
        let now = now_ms();
        let mut all = self.pool.begin().await?;
        let id: i64 = sqlx::query_scalar(
            "insert into persona (version, name, preset, created_at_ms) values (1, ?, ?, ?) returning id",
        )
        .bind(&draft.name)
        .bind(preset)
        .bind(now)
        .fetch_one(&mut *all)
        .await
        .map_err(|error| name_taken(error, &draft.name))?;
        insert_version(&mut all, id, 1, draft, by).await?;
        sqlx::query("insert into default_persona (only_one, persona_id) values (1, ?) on conflict do nothing")
            .bind(id)
            .execute(&mut *all)
            .await?;
        all.commit().await?;
        self.persona(id).await
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

    /// Into the archive, or back. Twice is as once. The default persona cannot go: somebody has to answer.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`]: on its way back, its name belongs to another by now. [`StoreError::Missing`].
    pub async fn set_persona_archived(&self, id: i64, archived: bool) -> Result<(), StoreError> {
        let result = match archived {
            true => sqlx::query(
                "update persona set archived_at_ms = coalesce(archived_at_ms, ?2) where id = ?1",
            )
            .bind(id)
            .bind(now_ms())
            .execute(&self.pool)
            .await,
            false => {
                sqlx::query("update persona set archived_at_ms = null where id = ?1")
                    .bind(id)
                    .execute(&self.pool)
                    .await
            }
        };
        match result {
            Ok(done) if done.rows_affected() == 0 => Err(StoreError::missing("persona", id)),
            Ok(_) => Ok(()),
            Err(error) => {
                let name = self.persona(id).await?.draft.name;
                Err(name_taken(error, &name))
            }
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
            match self
                .insert(&preset.draft, "vivavoce", Some(preset.key))
                .await
            {
                Ok(_) => {}
                Err(StoreError::NameTaken { name }) => {
                    tracing::debug!(name, "a persona of this name is there already");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(name: &str) -> PersonaDraft {
        PersonaDraft {
            name: name.to_owned(),
            role_text: format!("You are {name}."),
            ..PersonaDraft::default()
        }
    }

    #[tokio::test]
    async fn of_two_changes_to_the_same_version_one_is_refused() {
        let store = Store::in_memory().await.unwrap();
        let made = store
            .insert_persona(&draft("Ada"), "operator")
            .await
            .unwrap();
        assert!(made.is_default, "somebody has to answer");
        let second = store
            .update_persona(made.id, 1, &draft("Ada B"), "operator")
            .await
            .unwrap();
        assert_eq!(second.version, 2);
        let late = store
            .update_persona(made.id, 1, &draft("Ada C"), "token x")
            .await;
        assert!(matches!(
            late,
            Err(StoreError::ChangedMeanwhile {
                expected: 1,
                now: 2
            })
        ));
        let versions = store.persona_versions(made.id).await.unwrap();
        let names: Vec<_> = versions
            .iter()
            .map(|version| version.draft.name.as_str())
            .collect();
        assert_eq!(names, ["Ada B", "Ada"]);
    }

    #[tokio::test]
    async fn an_archived_name_may_be_used_again_and_then_blocks_the_way_back() {
        let store = Store::in_memory().await.unwrap();
        store.insert_persona(&draft("First"), "o").await.unwrap();
        let old = store.insert_persona(&draft("Ada"), "o").await.unwrap();
        let twin = store.insert_persona(&draft("ADA"), "o").await;
        assert!(matches!(twin, Err(StoreError::NameTaken { .. })));
        store.set_persona_archived(old.id, true).await.unwrap();
        store.set_persona_archived(old.id, true).await.unwrap();
        assert!(store.persona_for_call(Some(old.id)).await.is_err());
        store.insert_persona(&draft("ADA"), "o").await.unwrap();
        let back = store.set_persona_archived(old.id, false).await;
        assert!(
            matches!(back, Err(StoreError::NameTaken { .. })),
            "{back:?}"
        );
    }

    #[tokio::test]
    async fn pages_hold_everything_once_in_the_order_of_names() {
        let store = Store::in_memory().await.unwrap();
        for n in 0..7 {
            store
                .insert_persona(&draft(&format!("p{}", n * 5 % 7)), "o")
                .await
                .unwrap();
        }
        let mut question = PersonaQuestion {
            limit: 3,
            ..PersonaQuestion::default()
        };
        let mut names = Vec::new();
        loop {
            let (page, next) = store.personas(&question).await.unwrap();
            names.extend(page.into_iter().map(|persona| persona.draft.name));
            match next {
                Some(cursor) => question.cursor = Some(cursor.parse().unwrap()),
                None => break,
            }
        }
        assert_eq!(names, ["p0", "p1", "p2", "p3", "p4", "p5", "p6"]);
        let question = PersonaQuestion {
            query: Some("ARE P3".into()),
            limit: 9,
            ..PersonaQuestion::default()
        };
        assert_eq!(store.personas(&question).await.unwrap().0.len(), 1);
        let question = PersonaQuestion {
            query: Some("%".into()),
            limit: 9,
            ..PersonaQuestion::default()
        };
        assert_eq!(
            store.personas(&question).await.unwrap().0.len(),
            0,
            "a percent sign is a percent sign"
        );
    }

    #[tokio::test]
    async fn presets_come_once_and_an_operators_changes_stay() {
        let store = Store::in_memory().await.unwrap();
        let presets = [Preset {
            key: "guide",
            draft: draft("Guide"),
        }];
        store.install_presets(&presets).await.unwrap();
        let made = store.persona_for_call(None).await.unwrap();
        store
            .update_persona(made.id, 1, &draft("My guide"), "operator")
            .await
            .unwrap();
        store.install_presets(&presets).await.unwrap();
        let question = PersonaQuestion {
            limit: 9,
            ..PersonaQuestion::default()
        };
        let (all, _) = store.personas(&question).await.unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].draft.name, "My guide");
    }

    #[tokio::test]
    async fn bad_rows_are_impossible() {
        let store = Store::in_memory().await.unwrap();
        for bad in [
            "insert into persona (version, name, created_at_ms) values (1, 'without a version', 0)",
            "insert into persona_version values (99, 1, 'of nobody', '', null, '{}', 'agent_first', 0, 'x')",
            "insert into default_persona values (2, 1)",
            "insert into session (caller, persona, role_text, voice, seed, began_at_ms, seen_at_ms, end_reason) \
             values ('c', 'p', '', 'v', 1, 0, 0, 'ended at no time')",
            "insert into transcript values (1, 0, 'no json')",
        ] {
            let done = sqlx::query(bad).execute(&store.pool).await;
            assert!(done.is_err(), "{bad}");
        }
    }
}
