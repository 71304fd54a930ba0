//! What is kept of calls, and for how long.

use wire::api::system::{Policy, PolicyDraft};

use super::{Store, StoreError};

/// Of the row in `setting`.
const NAME: &str = "policy";

impl Store {
    /// The policy in force; the default one has version 1.
    ///
    /// # Errors
    /// [`StoreError`] of the database.
    pub async fn policy(&self) -> Result<Policy, StoreError> {
        let kept: Option<String> = sqlx::query_scalar("select value from setting where name = ?")
            .bind(NAME)
            .fetch_optional(&self.pool)
            .await?;
        // Values that a later version wrote and this one cannot read count as not set.
        let kept = kept.and_then(|json| serde_json::from_str(&json).ok());
        Ok(kept.unwrap_or(Policy {
            version: 1,
            draft: PolicyDraft::default(),
        }))
    }

    /// Changes the policy whose version is `expected`.
    ///
    /// # Errors
    /// [`StoreError::ChangedMeanwhile`].
    pub async fn set_policy(
        &self,
        draft: &PolicyDraft,
        expected: i64,
    ) -> Result<Policy, StoreError> {
        let now = self.policy().await?.version;
        if now != expected {
            return Err(StoreError::ChangedMeanwhile { expected, now });
        }
        let policy = Policy {
            version: now + 1,
            draft: draft.clone(),
        };
        let json = serde_json::to_string(&policy).unwrap_or_default();
        // The condition makes two writers at the same moment one winner and one loser.
        let done = sqlx::query(
            "insert into setting (name, value) values (?1, ?2) \
             on conflict (name) do update set value = excluded.value \
             where json_extract(value, '$.version') = ?3",
        )
        .bind(NAME)
        .bind(json)
        .bind(now)
        .execute(&self.pool)
        .await?;
        match done.rows_affected() {
            0 => Err(StoreError::ChangedMeanwhile {
                expected,
                now: self.policy().await?.version,
            }),
            _ => Ok(policy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_policy_changes_only_for_who_knows_the_present_one() {
        let store = Store::in_memory().await.unwrap();
        let mut draft = store.policy().await.unwrap().draft;
        assert!(!draft.record_audio, "recording is off by default");
        draft.record_audio = true;
        assert_eq!(store.set_policy(&draft, 1).await.unwrap().version, 2);
        let late = store.set_policy(&draft, 1).await;
        assert!(matches!(
            late,
            Err(StoreError::ChangedMeanwhile {
                expected: 1,
                now: 2
            })
        ));
        assert!(store.policy().await.unwrap().draft.record_audio);
    }
}
