//! Personas: versions, names, the default one, pages, presets.

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
    store.archive_persona(old.id).await.unwrap();
    store.archive_persona(old.id).await.unwrap();
    assert!(store.persona_for_call(Some(old.id)).await.is_err());
    store.insert_persona(&draft("ADA"), "o").await.unwrap();
    let back = store.unarchive_persona(old.id).await;
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
async fn an_archived_preset_stays_archived_and_a_name_in_use_stays_in_use() {
    let store = Store::in_memory().await.unwrap();
    store.insert_persona(&draft("Guide"), "o").await.unwrap();
    let presets = ["guide", "teacher"].map(|key| Preset {
        key,
        draft: draft(key),
    });
    store.install_presets(&presets).await.unwrap();
    let teacher = store.persona_by_name("TEACHER").await.unwrap().unwrap();
    assert_eq!(
        (teacher.is_preset, teacher.changed_by.as_str()),
        (true, "vivavoce")
    );
    store.archive_persona(teacher.id).await.unwrap();
    store.install_presets(&presets).await.unwrap();
    let question = PersonaQuestion {
        limit: 9,
        ..PersonaQuestion::default()
    };
    let (all, _) = store.personas(&question).await.unwrap();
    let names: Vec<_> = all.iter().map(|one| one.draft.name.as_str()).collect();
    assert_eq!(names, ["Guide"]);
    assert!(!all[0].is_preset);
}

#[tokio::test]
async fn somebody_always_answers_callers_that_name_no_persona() {
    let store = Store::in_memory().await.unwrap();
    let nobody = store.persona_for_call(None).await;
    assert!(matches!(nobody, Err(StoreError::Missing { .. })));
    let ada = store.insert_persona(&draft("Ada"), "o").await.unwrap().id;
    let bea = store.insert_persona(&draft("Bea"), "o").await.unwrap().id;
    let stays = store.archive_persona(ada).await;
    assert!(
        matches!(stays, Err(StoreError::IsDefault { .. })),
        "{stays:?}"
    );
    assert!(store.set_default_persona(bea).await.unwrap().is_default);
    assert_eq!(store.persona_for_call(None).await.unwrap().id, bea);
    store.archive_persona(ada).await.unwrap();
    let archived = store.set_default_persona(ada).await;
    assert!(matches!(archived, Err(StoreError::Missing { .. })));
    assert!(store.unarchive_persona(ada).await.unwrap().version == 1);
    assert!(store.unarchive_persona(77).await.is_err());
    store.archive_persona(77).await.unwrap();
}

#[tokio::test]
async fn many_personas_are_made_together_or_not_at_all() {
    let store = Store::in_memory().await.unwrap();
    let twins = [draft("Ada"), draft("Bea"), draft("ada")];
    let refused = store.insert_personas(&twins, "o").await;
    assert!(
        matches!(refused, Err(StoreError::NameTaken { .. })),
        "{refused:?}"
    );
    assert_eq!(store.persona_by_name("Ada").await.unwrap(), None);
    store.insert_personas(&twins[..2], "o").await.unwrap();
    let ada = store.persona_by_name("ADA").await.unwrap().unwrap();
    assert!(ada.is_default, "the first one answers");
}

#[tokio::test]
async fn a_persona_knows_its_calls_and_a_voice_its_personas() {
    let store = Store::in_memory().await.unwrap();
    let with_voice = PersonaDraft {
        voice: Some("NATF0".to_owned()),
        ..draft("Ada")
    };
    let ada = store.insert_persona(&with_voice, "o").await.unwrap();
    store.insert_persona(&draft("Bea"), "o").await.unwrap();
    assert_eq!(ada.calls, 0);
    let mut commit = store.log_commit().await.unwrap();
    let call = crate::store::SessionRow {
        id: 1,
        caller: "link Door".to_owned(),
        persona_id: Some((ada.id, 1)),
        persona: "Ada".to_owned(),
        role_text: String::new(),
        voice: "NATF0".to_owned(),
        seed: 1,
        began_at_ms: 1,
    };
    commit.began(&call).await.unwrap();
    commit.done().await.unwrap();
    assert_eq!(store.persona(ada.id).await.unwrap().calls, 1);
    let of_voice = store.personas_of_voice("natf0").await.unwrap();
    assert_eq!(
        of_voice.iter().map(|one| one.id).collect::<Vec<_>>(),
        [ada.id]
    );
    assert!(store.personas_of_voice("NATM0").await.unwrap().is_empty());
}
