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
