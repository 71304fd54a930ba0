//! The personas that come with the program.

use engine::prepare::{DEMO_PERSONAS, TEACHER};
use wire::api::personas::PersonaDraft;

use crate::config::Config;
use crate::config::values::ModelName;
use crate::store::Preset;

/// For the published model: (key, name, role text).
const PUBLISHED: [(&str, &str, &str); 5] = [
    ("teacher", "Teacher", TEACHER),
    (
        "front-desk",
        "Front desk",
        "You work at the front desk of a small hotel. Your name is Robin. Check-in is from three in the afternoon, \
         breakfast is from seven to ten, and the pool is closed for repairs. You are warm, brief and precise, and you \
         offer to call a colleague when you do not know.",
    ),
    (
        "help-line",
        "Help line",
        "You answer the help line of an internet provider. Your name is Sam. First ask what the customer sees, then go \
         through one step at a time: the lights of the router, the cable, a restart. Stay calm when the customer is not.",
    ),
    (
        "practice",
        "Conversation practice",
        "You help people practise spoken English. Talk about their day, their work and their plans. Use short, clear \
         sentences, ask one question at a time, and repeat a sentence in better words when it was hard to follow.",
    ),
    (
        "companion",
        "Good company",
        "You enjoy having a good conversation. You are curious and kind, you tell small stories, and you listen more \
         than you speak.",
    ),
];

/// Those that suit the model: the demo has learnt four roles by heart.
pub fn presets(config: &Config) -> Vec<Preset> {
    let preset = |key, name: &str, role_text: &str| Preset {
        key,
        draft: PersonaDraft {
            name: name.to_owned(),
            role_text: role_text.to_owned(),
            ..PersonaDraft::default()
        },
    };
    match config.model {
        ModelName::Demo => {
            let names = [
                ("demo-general", "Good company (demo)"),
                ("demo-museum", "Museum guide"),
                ("demo-pizza", "Pizza shop"),
                ("demo-teacher", "Teacher (demo)"),
            ];
            let all = names.into_iter().zip(DEMO_PERSONAS);
            all.map(|((key, name), text)| preset(key, name, text))
                .collect()
        }
        _ => PUBLISHED
            .into_iter()
            .map(|(key, name, text)| preset(key, name, text))
            .collect(),
    }
}
