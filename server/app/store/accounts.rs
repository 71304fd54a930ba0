//! The operator's password, the browsers that signed in, and API tokens.
//!
//! May not live here: hashing of passwords, cookies.

use sqlx::FromRow;
use wire::api::account::{ApiToken, Scope};

use super::{DAY_MS, Store, StoreError, hash_of, now_ms};

/// How long a browser stays signed in after its last request.
const SIGNED_IN_MS: i64 = 30 * DAY_MS;
/// A use is written at most this often.
const USED_EVERY_MS: i64 = 60_000;

/// A token that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownToken {
    /// For the log.
    pub name: String,
    /// What it lets its bearer do.
    pub scopes: Vec<Scope>,
    /// Calls of this persona only.
    pub persona_id: Option<i64>,
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWish<'a> {
    /// For the log.
    pub name: &'a str,
    /// Sorted, at least one.
    pub scopes: &'a [Scope],
    /// Calls of this persona only.
    pub persona_id: Option<i64>,
    /// Unix milliseconds.
    pub expires_at_ms: Option<i64>,
}

#[derive(FromRow)]
struct Row {
    id: i64,
    name: String,
    scopes: String,
    persona_id: Option<i64>,
    created_at_ms: i64,
    expires_at_ms: Option<i64>,
    used_at_ms: Option<i64>,
}

impl From<Row> for ApiToken {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            name: row.name,
            scopes: scopes(&row.scopes),
            persona_id: row.persona_id,
            created_at_ms: row.created_at_ms,
            expires_at_ms: row.expires_at_ms,
            used_at_ms: row.used_at_ms,
        }
    }
}

fn scopes(words: &str) -> Vec<Scope> {
    let scope = |word: &str| match word {
        "call" => Some(Scope::Call),
        "metrics" => Some(Scope::Metrics),
        "operate" => Some(Scope::Operate),
        _ => None,
    };
    words.split(' ').filter_map(scope).collect()
}

fn words(scopes: &[Scope]) -> String {
    let word = |scope: &Scope| match scope {
        Scope::Call => "call",
        Scope::Metrics => "metrics",
        Scope::Operate => "operate",
    };
    scopes.iter().map(word).collect::<Vec<_>>().join(" ")
}

impl Store {
    /// The hash of the password, once it is set.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn password_hash(&self) -> Result<Option<String>, StoreError> {
        Ok(sqlx::query_scalar("select hash from password")
            .fetch_optional(&self.pool)
            .await?)
    }

    /// Sets the password; every browser is signed out.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn set_password_hash(&self, hash: &str) -> Result<(), StoreError> {
        let mut all = self.pool.begin().await?;
        sqlx::query(
            "insert into password (only_one, hash, set_at_ms) values (1, ?1, ?2) \
             on conflict (only_one) do update set hash = excluded.hash, set_at_ms = excluded.set_at_ms",
        )
        .bind(hash)
        .bind(now_ms())
        .execute(&mut *all)
        .await?;
        sqlx::query("delete from operator_session")
            .execute(&mut *all)
            .await?;
        Ok(all.commit().await?)
    }

    /// A browser signed in and keeps `token` as its cookie.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn insert_operator_session(&self, token: &str) -> Result<(), StoreError> {
        let now = now_ms();
        sqlx::query("delete from operator_session where expires_at_ms < ?")
            .bind(now)
            .execute(&self.pool)
            .await?;
        sqlx::query(
            "insert into operator_session (token_hash, created_at_ms, used_at_ms, expires_at_ms) \
             values (?1, ?2, ?2, ?3)",
        )
        .bind(&hash_of(token)[..])
        .bind(now)
        .bind(now + SIGNED_IN_MS)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Whether `token` is the cookie of a browser that is signed in; being used keeps it so.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn operator_session_is_known(&self, token: &str) -> Result<bool, StoreError> {
        let now = now_ms();
        let hash = hash_of(token);
        let used: Option<i64> = sqlx::query_scalar(
            "select used_at_ms from operator_session where token_hash = ? and expires_at_ms > ?",
        )
        .bind(&hash[..])
        .bind(now)
        .fetch_optional(&self.pool)
        .await?;
        let Some(used) = used else {
            return Ok(false);
        };
        if used < now - USED_EVERY_MS {
            sqlx::query(
                "update operator_session set used_at_ms = ?2, expires_at_ms = ?3 where token_hash = ?1",
            )
            .bind(&hash[..])
            .bind(now)
            .bind(now + SIGNED_IN_MS)
            .execute(&self.pool)
            .await?;
        }
        Ok(true)
    }

    /// A browser signs out; an unknown one is fine.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn delete_operator_session(&self, token: &str) -> Result<(), StoreError> {
        sqlx::query("delete from operator_session where token_hash = ?")
            .bind(&hash_of(token)[..])
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Makes a token, of which only a hash is kept.
    ///
    /// # Errors
    /// [`StoreError::Missing`]: no such persona.
    pub async fn insert_token(
        &self,
        token: &str,
        wish: TokenWish<'_>,
    ) -> Result<ApiToken, StoreError> {
        let made: Result<Row, sqlx::Error> = sqlx::query_as(
            "insert into api_token (name, token_hash, scopes, persona_id, created_at_ms, expires_at_ms) \
             values (?, ?, ?, ?, ?, ?) \
             returning id, name, scopes, persona_id, created_at_ms, expires_at_ms, used_at_ms",
        )
        .bind(wish.name)
        .bind(&hash_of(token)[..])
        .bind(words(wish.scopes))
        .bind(wish.persona_id)
        .bind(now_ms())
        .bind(wish.expires_at_ms)
        .fetch_one(&self.pool)
        .await;
        match made {
            Err(error)
                if error
                    .as_database_error()
                    .is_some_and(|error| error.is_foreign_key_violation()) =>
            {
                Err(StoreError::missing(
                    "persona",
                    wish.persona_id.unwrap_or_default(),
                ))
            }
            made => Ok(made?.into()),
        }
    }

    /// All tokens, newest first, ended ones included.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "select id, name, scopes, persona_id, created_at_ms, expires_at_ms, used_at_ms \
             from api_token order by id desc",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(ApiToken::from).collect())
    }

    /// Ends a token; no token of that number is fine.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn delete_token(&self, id: i64) -> Result<(), StoreError> {
        sqlx::query("delete from api_token where id = ?")
            .bind(id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// What `token` lets its bearer do, while it works.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn token(&self, token: &str) -> Result<Option<KnownToken>, StoreError> {
        let now = now_ms();
        let row: Option<Row> = sqlx::query_as(
            "select id, name, scopes, persona_id, created_at_ms, expires_at_ms, used_at_ms \
             from api_token where token_hash = ? and (expires_at_ms is null or expires_at_ms > ?)",
        )
        .bind(&hash_of(token)[..])
        .bind(now)
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        if row.used_at_ms.is_none_or(|used| used < now - USED_EVERY_MS) {
            sqlx::query("update api_token set used_at_ms = ? where id = ?")
                .bind(now)
                .bind(row.id)
                .execute(&self.pool)
                .await?;
        }
        Ok(Some(KnownToken {
            name: row.name,
            scopes: scopes(&row.scopes),
            persona_id: row.persona_id,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_password_signs_every_browser_out() {
        let store = Store::in_memory().await.unwrap();
        store.set_password_hash("$argon2id$one").await.unwrap();
        store.insert_operator_session("cookie").await.unwrap();
        assert!(store.operator_session_is_known("cookie").await.unwrap());
        assert!(!store.operator_session_is_known("other").await.unwrap());
        store.set_password_hash("$argon2id$two").await.unwrap();
        assert!(!store.operator_session_is_known("cookie").await.unwrap());
        let hash = store.password_hash().await.unwrap();
        assert_eq!(hash.as_deref(), Some("$argon2id$two"));
        assert!(store.set_password_hash("plain text").await.is_err());
    }

    #[tokio::test]
    async fn a_token_works_until_it_ends_or_is_deleted() {
        let store = Store::in_memory().await.unwrap();
        let wish = TokenWish {
            name: "door",
            scopes: &[Scope::Call, Scope::Metrics],
            persona_id: None,
            expires_at_ms: None,
        };
        let made = store.insert_token("secret", wish.clone()).await.unwrap();
        let known = store.token("secret").await.unwrap().unwrap();
        assert_eq!(known.scopes, [Scope::Call, Scope::Metrics]);
        assert_eq!(store.token("Secret").await.unwrap(), None);
        assert!(store.tokens().await.unwrap()[0].used_at_ms.is_some());
        store.delete_token(made.id).await.unwrap();
        store.delete_token(made.id).await.unwrap();
        assert_eq!(store.token("secret").await.unwrap(), None);
        let nobody = TokenWish {
            persona_id: Some(77),
            ..wish
        };
        assert!(matches!(
            store.insert_token("x", nobody).await,
            Err(StoreError::Missing { .. })
        ));
    }
}
