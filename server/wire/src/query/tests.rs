//! Queries as clients and attackers send them.

use super::*;
use proptest::prelude::*;

#[test]
fn an_empty_query_asks_for_nothing() {
    for query in [
        "",
        "&&",
        "=",
        "unknown=1",
        "voice_prompt=&seed=&text_prompt=",
        "%ff=%ff",
    ] {
        assert_eq!(ChatQuery::parse(query), Ok(ChatQuery::default()), "{query}");
    }
}

#[test]
fn the_query_of_the_published_web_client_is_understood() {
    let query = "text_temperature=0.7&text_topk=25&audio_temperature=0.8&audio_topk=250&pad_mult=0\
        &text_seed=7&audio_seed=7&repetition_penalty_context=64&repetition_penalty=1.0\
        &text_prompt=You+enjoy%20caf%C3%A9s%20%26%20tea&voice_prompt=NATF0.pt&worker_auth_id=w&email=a%40b";
    let expected = ChatQuery {
        text_prompt: Some("You enjoy cafés & tea".to_owned()),
        voice: Some("NATF0".to_owned()),
        seed: Some(7),
        text_temperature: Some(0.7),
        text_top_k: Some(25),
        audio_temperature: Some(0.8),
        audio_top_k: Some(250),
        pad_mult: Some(0.0),
        repetition_penalty: Some(1.0),
        repetition_penalty_context: Some(64),
        token: Some(Secret::new("w")),
        email: Some(Secret::new("a@b")),
        ext: false,
        resume: None,
        persona: None,
    };
    assert_eq!(ChatQuery::parse(query), Ok(expected));
}

#[test]
fn seeds_are_taken_left_out_or_refused() {
    let cases: [(&str, Result<Option<u64>, ()>); 19] = [
        ("seed=42", Ok(Some(42))),
        ("seed=0", Ok(Some(0))),
        ("seed=-1", Ok(None)),
        ("seed=", Ok(None)),
        ("seed", Ok(None)),
        ("seed=9223372036854775808", Ok(Some(1 << 63))),
        ("seed=18446744073709551615", Ok(Some(u64::MAX))),
        ("seed=18446744073709551616", Err(())),
        ("seed=2^63", Err(())),
        ("seed=abc", Err(())),
        ("seed=-2", Err(())),
        ("seed=3.7", Err(())),
        ("seed=%2B5", Err(())),
        ("seed=+5", Err(())),
        ("seed=1e999", Err(())),
        ("seed=NaN", Err(())),
        ("text_seed=5&seed=9&audio_seed=6", Ok(Some(9))),
        ("audio_seed=6", Ok(Some(6))),
        ("seed=9&audio_seed=x", Err(())),
    ];
    for (query, expected) in cases {
        let seed = ChatQuery::parse(query).map(|query| query.seed);
        assert_eq!(seed.map_err(drop), expected, "{query}");
    }
}

#[test]
fn two_seeds_make_one_and_each_of_them_counts() {
    let seed = |query| ChatQuery::parse(query).unwrap().seed;
    let both = seed("text_seed=5&audio_seed=6");
    assert_ne!(both, seed("text_seed=6&audio_seed=5"));
    assert_ne!(both, seed("text_seed=5&audio_seed=7"));
    assert_eq!(both, seed("audio_seed=6&text_seed=5"));
}

#[test]
fn numbers_that_are_none_are_refused_by_name() {
    let refused = [
        "text_temperature=NaN",
        "text_temperature=inf",
        "audio_temperature=1e999",
        "audio_temperature=warm",
        "text_topk=-3",
        "text_topk=25.0",
        "audio_topk=99999999999",
        "pad_mult=--1",
        "repetition_penalty=-inf",
        "repetition_penalty_context=1e2",
        "ext=yes",
        "text_prompt=a%00b",
        "text_prompt=%ff",
        "resume=../x",
    ];
    for query in refused {
        let (name, _) = query.split_once('=').unwrap();
        let error = ChatQuery::parse(query).unwrap_err().to_string();
        assert!(error.starts_with(name), "{query}: {error}");
    }
}

#[test]
fn a_voice_is_a_name_and_never_a_path() {
    let taken = [
        ("NATF0", "NATF0"),
        ("NATF0.pt", "NATF0"),
        ("my.voice-2.safetensors", "my.voice-2"),
        ("J%C3%BCrgen+B", "Jürgen B"),
    ];
    for (sent, name) in taken {
        let voice = ChatQuery::parse(&format!("voice_prompt={sent}"))
            .unwrap()
            .voice;
        assert_eq!(voice.as_deref(), Some(name));
    }
    let long = "a".repeat(65);
    let refused = [
        "../x.pt",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "%252e%252e",
        "/etc/passwd",
        "C:%5Cvoices%5Cx.pt",
        "a%5Cb",
        "a/b",
        "a%00.pt",
        "NATF0.pt%00",
        ".pt",
        ".hidden",
        "a..b",
        "a.",
        "~",
        "%20a",
        "a%0ab",
        "voices/NATF0.pt",
        "file:NATF0",
        "$HOME",
        &long,
    ];
    for sent in refused {
        let error = ChatQuery::parse(&format!("voice_prompt={sent}")).unwrap_err();
        assert_eq!(error.code(), "bad_voice", "{sent}");
    }
}

#[test]
fn a_query_has_room_for_a_long_prompt_and_a_limit() {
    let prompt = "%C3%A9".repeat(2_500) + &"e".repeat(1_000);
    let query = ChatQuery::parse(&format!("text_prompt={prompt}")).unwrap();
    assert_eq!(
        query.text_prompt.map(|text| text.chars().count()),
        Some(3_500)
    );
    let long = "a".repeat(QUERY_BYTES_MAX + 1);
    let error = ChatQuery::parse(&long).unwrap_err();
    assert_eq!(
        error,
        QueryError::TooLong {
            bytes: QUERY_BYTES_MAX + 1
        }
    );
}

#[test]
fn secrets_are_not_printed() {
    let query = ChatQuery::parse("token=hush&email=hush&resume=hush&worker_auth_id=hush").unwrap();
    assert!(!format!("{query:?}").contains("hush"));
    assert_eq!(query.token.unwrap().reveal(), "hush");
    let error = ChatQuery::parse("resume=hush!").unwrap_err();
    assert!(!error.to_string().contains("hush"));
}

proptest! {
    #[test]
    fn no_query_panics_and_no_voice_can_leave_its_folder(query in "(voice_prompt|text_prompt|seed|[a-z]{1,3})?=?[ -~é%]{0,60}") {
        if let Ok(ChatQuery { voice: Some(voice), .. }) = ChatQuery::parse(&query) {
            prop_assert!(!voice.contains(['/', '\\', '\0', ':', '%']) && !voice.contains(".."));
            prop_assert!(!voice.starts_with('.'));
        }
    }

    #[test]
    fn any_text_survives_percent_encoding(text in "[^\0]{1,60}") {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let query = ChatQuery::parse(&format!("text_prompt={encoded}")).unwrap();
        prop_assert_eq!(query.text_prompt, Some(text));
    }
}
