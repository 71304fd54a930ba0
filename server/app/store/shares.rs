//! Share links: who has one may call one persona.

use sqlx::FromRow;
use wire::api::personas::Share;

use super::{Store, StoreError, hash_of, now_ms};

/// A link that works.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct KnownShare {
    /// Of the link.
    pub id: i64,
    /// Where it leads.
    pub persona_id: i64,
    /// For the log.
    pub label: String,
}

#[derive(FromRow)]
struct Row {
    id: i64,
    persona_id: i64,
    label: String,
    created_at_ms: i64,
    expires_at_ms: Option<i64>,
    used_at_ms: Option<i64>,
}

impl From<Row> for Share {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            persona_id: row.persona_id,
            label: row.label,
            created_at_ms: row.created_at_ms,
            expires_at_ms: row.expires_at_ms,
            used_at_ms: row.used_at_ms,
        }
    }
}

/// A use is written at most this often.
const USED_EVERY_MS: i64 = 60_000;

impl Store {
    /// Makes a link with `token`, of which only a hash is kept.
    ///
    /// # Errors
    /// [`StoreError::Missing`]: no such persona.
    pub async fn insert_share(
        &self,
        persona_id: i64,
        token: &str,
        label: &str,
        expires_at_ms: Option<i64>,
    ) -> Result<Share, StoreError> {
        let row: Option<Row> = sqlx::query_as(
            "insert into share (persona_id, token_hash, label, created_at_ms, expires_at_ms) \
             select id, ?2, ?3, ?4, ?5 from persona where id = ?1 \
             returning id, persona_id, label, created_at_ms, expires_at_ms, used_at_ms",
        )
        .bind(persona_id)
        .bind(&hash_of(token)[..])
        .bind(label)
        .bind(now_ms())
        .bind(expires_at_ms)
        .fetch_optional(&self.pool)
        .await?;
        row.map(Share::from)
            .ok_or_else(|| StoreError::missing("persona", persona_id))
    }

    /// All links of a persona that have not ended, newest first.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn shares(&self, persona_id: i64) -> Result<Vec<Share>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "select id, persona_id, label, created_at_ms, expires_at_ms, used_at_ms from share \
             where persona_id = ? and (expires_at_ms is null or expires_at_ms > ?) order by id desc",
        )
        .bind(persona_id)
        .bind(now_ms())
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(Share::from).collect())
    }

    /// Ends a link; no link of that number is fine.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn delete_share(&self, id: i64) -> Result<(), StoreError> {
        sqlx::query("delete from share where id = ?")
            .bind(id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The link that `token` belongs to, while it works and its persona is not archived.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn share_by_token(&self, token: &str) -> Result<Option<KnownShare>, StoreError> {
        let known: Option<KnownShare> = sqlx::query_as(
            "select s.id, s.persona_id, s.label from share s join persona p on p.id = s.persona_id \
             where s.token_hash = ? and (s.expires_at_ms is null or s.expires_at_ms > ?) \
             and p.archived_at_ms is null",
        )
        .bind(&hash_of(token)[..])
        .bind(now_ms())
        .fetch_optional(&self.pool)
        .await?;
        Ok(known)
    }

    /// A call was made by link `id`.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn share_used(&self, id: i64) -> Result<(), StoreError> {
        let now = now_ms();
        sqlx::query(
            "update share set used_at_ms = ?2 \
             where id = ?1 and (used_at_ms is null or used_at_ms < ?2 - ?3)",
        )
        .bind(id)
        .bind(now)
        .bind(USED_EVERY_MS)
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wire::api::personas::PersonaDraft;

    use super::*;

    /// A store with two personas, of which the second has the number returned.
    async fn with_bea() -> (Store, i64) {
        let store = Store::in_memory().await.unwrap();
        let mut last = 0;
        for name in ["Ada", "Bea"] {
            let draft = PersonaDraft {
                name: name.to_owned(),
                ..PersonaDraft::default()
            };
            last = store.insert_persona(&draft, "operator").await.unwrap().id;
        }
        (store, last)
    }

    #[tokio::test]
    async fn a_link_works_until_it_ends_is_deleted_or_its_persona_is_archived() {
        let (store, bea) = with_bea().await;
        let far = Some(now_ms() + super::super::DAY_MS);
        let made = store.insert_share(bea, "t", "Door", far).await.unwrap();
        let known = KnownShare {
            id: made.id,
            persona_id: bea,
            label: "Door".to_owned(),
        };
        assert_eq!(store.share_by_token("t").await.unwrap(), Some(known));
        assert_eq!(store.share_by_token("T").await.unwrap(), None);
        store.archive_persona(bea).await.unwrap();
        assert_eq!(store.share_by_token("t").await.unwrap(), None);
        store.unarchive_persona(bea).await.unwrap();
        assert!(store.share_by_token("t").await.unwrap().is_some());
        for _ in 0..2 {
            store.delete_share(made.id).await.unwrap();
        }
        assert_eq!(store.share_by_token("t").await.unwrap(), None);
        let nobody = store.insert_share(77, "u", "", None).await;
        assert!(matches!(nobody, Err(StoreError::Missing { .. })));
    }

    #[tokio::test]
    async fn a_link_that_has_ended_opens_nothing_and_is_listed_no_more() {
        let (store, bea) = with_bea().await;
        let made = store.insert_share(bea, "t", "", None).await.unwrap();
        store.insert_share(bea, "u", "", None).await.unwrap();
        let list = store.shares(bea).await.unwrap();
        assert_eq!(list.len(), 2);
        assert!(list[0].id > list[1].id, "the newest first");
        // As if it had been made long ago.
        sqlx::query("update share set created_at_ms = 1, expires_at_ms = 2 where id = ?")
            .bind(made.id)
            .execute(&store.pool)
            .await
            .unwrap();
        assert_eq!(store.share_by_token("t").await.unwrap(), None);
        assert_eq!(store.shares(bea).await.unwrap().len(), 1);
        assert_eq!(store.shares(1).await.unwrap().len(), 0);
    }

    #[tokio::test]
    async fn a_use_is_written_once_a_minute() {
        let (store, bea) = with_bea().await;
        let id = store.insert_share(bea, "t", "", None).await.unwrap().id;
        let used = async || store.shares(bea).await.unwrap()[0].used_at_ms;
        let set = async |at_ms: i64| {
            let set = sqlx::query("update share set used_at_ms = ?").bind(at_ms);
            set.execute(&store.pool).await.unwrap();
        };
        assert_eq!(used().await, None);
        store.share_used(id).await.unwrap();
        assert!(used().await.is_some());
        let lately = now_ms() - USED_EVERY_MS / 2;
        set(lately).await;
        store.share_used(id).await.unwrap();
        assert_eq!(used().await, Some(lately));
        let earlier = now_ms() - 2 * USED_EVERY_MS;
        set(earlier).await;
        store.share_used(id).await.unwrap();
        assert!(used().await > Some(lately));
    }

    #[tokio::test]
    async fn the_secret_of_a_link_is_not_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vivavoce.db");
        let store = Store::open(&file).await.unwrap();
        let draft = PersonaDraft {
            name: "A name that is there".to_owned(),
            ..PersonaDraft::default()
        };
        let id = store.insert_persona(&draft, "operator").await.unwrap().id;
        let token = "0123456789abcdef0123456789abcdef";
        store.insert_share(id, token, "", None).await.unwrap();
        store.close().await;
        let bytes = std::fs::read(&file).unwrap();
        let holds = |text: &str| {
            bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        };
        assert!(holds(&draft.name));
        assert!(!holds(token));
    }
}
