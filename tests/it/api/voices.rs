//! Voices: added, heard, renamed, put away, while calls go on.

use std::path::Path;

use futures_util::{StreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};
use slots::call::{CallSpec, PrepareCall};
use slots::testing::{ScriptedEngine, ScriptedPrepare, scripted_bundle};
use vivavoce::stepper::board::SlotPhase;
use vivavoce::web::load_voices;
use wire::api::voices::UPLOAD_BYTES_MAX;

use super::{Answer, Asking};
use crate::support::{FastClock, Setup, TestApp};

const BOUNDARY: &str = "part-7f3a";
const CONSENT: &str = "This is my own voice, and I agree.";

/// A form with these fields and a file.
fn form(fields: &[(&str, &str)], file_name: &str, file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part = format!(
            "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        );
        body.extend_from_slice(part.as_bytes());
    }
    let part = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{file_name}\"\r\n\
         content-type: application/octet-stream\r\n\r\n"
    );
    body.extend_from_slice(part.as_bytes());
    body.extend_from_slice(file);
    body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    body
}

async fn send(asking: &Asking<'_>, body: impl Into<reqwest::Body>) -> Answer {
    let request = asking.request(Method::POST, "/api/voices").header(
        "content-type",
        format!("multipart/form-data; boundary={BOUNDARY}"),
    );
    Answer::of(request.body(body).send().await.unwrap()).await
}

async fn add(
    asking: &Asking<'_>,
    name: &str,
    consent: &str,
    file_name: &str,
    file: &[u8],
) -> Answer {
    let fields = [("name", name), ("consent", consent)];
    send(asking, form(&fields, file_name, file)).await
}

async fn change(asking: &Asking<'_>, name: &str, change: Value) -> Answer {
    let request = asking.request(Method::PATCH, &format!("/api/voices/{name}"));
    Answer::of(request.json(&change).send().await.unwrap()).await
}

fn recording(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/voices");
    std::fs::read(folder.join(name)).unwrap()
}

/// The names in the list, the archived ones in brackets.
async fn names(asking: &Asking<'_>) -> Vec<String> {
    let list = asking.get("/api/voices").await.good();
    let name = |voice: &Value| {
        let name = voice["name"].as_str().unwrap();
        match voice["archived"] == json!(true) {
            true => format!("[{name}]"),
            false => name.to_owned(),
        }
    };
    list["items"].as_array().unwrap().iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voice_uploaded_while_calls_run_can_be_called_at_once() {
    let app = Setup::of(ScriptedEngine::voices()).start().await;
    let asking = Asking::of(&app);
    let mut before = app.live("voice_prompt=NATM0").await;
    let made = add(&asking, "Ada", "", "ada.pt", &scripted_bundle(40, 30)).await;
    assert_eq!(made.status, 201, "{made:?}");
    let voice = &made.body["voice"];
    assert_eq!(
        (&voice["origin"], &voice["frames"], &made.body["notes"]),
        (&json!("bundle"), &json!(40), &json!([]))
    );
    let _ada = app.live("voice_prompt=Ada.pt").await;
    let talk = asking.get("/api/talk").await.good();
    assert!(talk["voices"].as_array().unwrap().contains(&json!("Ada")));
    before.say(0.1).await;
    assert_eq!(app.free_slots(), 2, "the call before it goes on");
    let asked = app.prepare.asked.lock().unwrap();
    assert_eq!(asked.last().unwrap().voice.as_deref(), Some("Ada"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_known_by_its_content_and_its_making_is_told() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let cases = [
        ("speech.mp3", "really.wav"),
        ("speech.flac", "a.mp3"),
        ("speech-vorbis.ogg", "b.opus"),
        ("speech-opus.ogg", "../../c"),
    ];
    for (nth, (file, named)) in cases.into_iter().enumerate() {
        let name = format!("voice-{nth}");
        let made = add(&asking, &name, CONSENT, named, &recording(file)).await;
        assert_eq!(made.status, 201, "{file}: {made:?}");
        let voice = &made.body["voice"];
        assert_eq!(
            (&voice["origin"], &voice["consent"]),
            (&json!("recording"), &json!(CONSENT))
        );
        assert!(voice["frames"].as_u64().unwrap() >= 37, "{voice}");
        assert!(!made.body["notes"].as_array().unwrap().is_empty());
    }
    let page = asking.get("/api/voices?limit=3").await.good();
    assert_eq!(page["items"].as_array().unwrap().len(), 3);
    let next = page["next"].as_str().unwrap();
    let rest = asking
        .get(&format!("/api/voices?cursor={next}"))
        .await
        .good();
    assert_eq!(rest["items"].as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_are_no_good_are_refused_with_the_reason_and_leave_nothing() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let good = scripted_bundle(9, 9);
    let speech = recording("speech.mp3");
    // Name, consent, file, status, code, part of the reason.
    type Case<'a> = (&'a str, &'a str, &'a [u8], u16, &'a str, &'a str);
    let cases: [Case<'_>; 9] = [
        (
            "../../etc/passwd",
            "",
            &good,
            400,
            "bad_value",
            "never a path",
        ),
        ("a\0b", "", &good, 400, "bad_value", "never a path"),
        ("C:\\x", "", &good, 400, "bad_value", "never a path"),
        ("natf0", "", &good, 409, "name_taken", "taken"),
        ("Ada", "", b"", 400, "bad_value", "file is missing"),
        ("Ada", "", &speech, 400, "bad_value", "consent is missing"),
        (
            "Ada",
            "",
            b"PK\x03\x04 a pickle that runs things",
            400,
            "bad_value",
            "no voice",
        ),
        (
            "Ada",
            CONSENT,
            b"just words, and no sound",
            400,
            "bad_value",
            "no recording",
        ),
        (
            "Ada",
            CONSENT,
            &speech[..4_000],
            400,
            "bad_value",
            "at least 3 s",
        ),
    ];
    for (name, consent, file, status, code, reason) in cases {
        let refused = add(&asking, name, consent, "x", file).await;
        let told = refused.body["error"]["message"]
            .as_str()
            .unwrap_or_default();
        assert!(told.contains(reason), "{name}: {refused:?}");
        let found = (refused.status, refused.code());
        assert_eq!(found, (status, code), "{name}: {told}");
    }
    let long = "x".repeat(501);
    let refused = add(&asking, "Ada", &long, "x", &speech).await;
    assert_eq!((refused.status, refused.code()), (400, "bad_value"));
    let json = asking.post("/api/voices", json!({"name": "Ada"})).await;
    assert!((400..500).contains(&json.status), "{json:?}");
    assert_eq!(names(&asking).await, ["NATF0", "NATM0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_an_end_is_cut_off_at_the_limit() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let head = form(&[("name", "Ada"), ("consent", CONSENT)], "x", b"");
    let head = head[..head.len() - BOUNDARY.len() - 8].to_vec();
    // Without a length: sent in chunks, more than the limit, and never ended.
    let chunks = stream::unfold(0usize, move |sent| {
        let chunk = match sent {
            0 => head.clone(),
            _ => vec![0u8; 1 << 20],
        };
        async move {
            (sent < UPLOAD_BYTES_MAX + (8 << 20))
                .then(|| (Ok::<_, std::io::Error>(chunk), sent + (1 << 20)))
        }
    });
    let request = asking.request(Method::POST, "/api/voices").header(
        "content-type",
        format!("multipart/form-data; boundary={BOUNDARY}"),
    );
    // The server may close the connection before all is sent; then there is no answer to read.
    if let Ok(response) = request
        .body(reqwest::Body::wrap_stream(chunks))
        .send()
        .await
    {
        let refused = Answer::of(response).await;
        assert_eq!(
            (refused.status, refused.code()),
            (413, "too_big"),
            "{refused:?}"
        );
    }
    // On a connection of its own: the other one may be closed any moment.
    let asking = Asking::of(&app);
    // With a length: refused before any of it is read.
    let request = Asking::of(&app)
        .request(Method::POST, "/api/voices")
        .header(
            "content-type",
            format!("multipart/form-data; boundary={BOUNDARY}"),
        );
    let whole = vec![0u8; UPLOAD_BYTES_MAX + (1 << 20)];
    if let Ok(response) = request.body(whole).send().await {
        let refused = Answer::of(response).await;
        assert_eq!((refused.status, refused.code()), (413, "too_big"));
        let told = refused.body["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(told.contains("50397184 bytes"), "{told}");
    }
    assert_eq!(names(&asking).await, ["NATF0", "NATM0"]);
    let made = add(&asking, "Ada", "", "x", &scripted_bundle(4, 4)).await;
    assert_eq!(made.status, 201, "the next one has its turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voice_is_renamed_with_its_personas_put_away_taken_back_and_deleted() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    add(&asking, "Ada", "", "x", &scripted_bundle(4, 4))
        .await
        .good();
    let persona = json!({"name": "Guide", "role_text": "You guide.", "voice": "ada"});
    let made = asking.post("/api/personas", persona).await.good();
    assert_eq!(made["voice"], "Ada", "under its own spelling");
    let id = made["id"].as_i64().unwrap();

    let taken = change(&asking, "Ada", json!({"name": "natm0"})).await;
    assert_eq!((taken.status, taken.code()), (409, "name_taken"));
    let path = change(&asking, "Ada", json!({"name": "../x"})).await;
    assert_eq!(path.status, 400);
    let renamed = change(&asking, "ada", json!({"name": "Bea"})).await.good();
    assert_eq!(
        (&renamed["name"], &renamed["personas"]),
        (&json!("Bea"), &json!(["Guide"]))
    );
    let persona = asking.get(&format!("/api/personas/{id}")).await.good();
    assert_eq!(
        (&persona["voice"], &persona["version"]),
        (&json!("Bea"), &json!(2))
    );
    let _call = app.live("voice_prompt=Bea").await;
    assert_eq!(
        app.dial("voice_prompt=Ada")
            .await
            .err()
            .map(|refused| refused.status),
        Some(400)
    );

    let in_use = asking.delete("/api/voices/Bea").await;
    assert_eq!((in_use.status, in_use.code()), (409, "in_use"));
    let in_use = change(&asking, "Bea", json!({"archived": true})).await;
    assert_eq!((in_use.status, in_use.code()), (409, "in_use"));
    let free = json!({"name": "Guide", "role_text": "You guide."});
    asking
        .put(&format!("/api/personas/{id}"), 2, free)
        .await
        .good();

    change(&asking, "Bea", json!({"archived": true}))
        .await
        .good();
    assert_eq!(names(&asking).await, ["[Bea]", "NATF0", "NATM0"]);
    assert!(app.dial("voice_prompt=Bea").await.is_err());
    change(&asking, "Bea", json!({"archived": false, "name": "Cleo"}))
        .await
        .good();
    let _call = app.live("voice_prompt=Cleo").await;
    for _ in 0..2 {
        assert_eq!(asking.delete("/api/voices/Cleo").await.status, 204);
    }
    assert_eq!(names(&asking).await, ["NATF0", "NATM0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_models_own_voices_can_be_put_away_and_nothing_else() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    for refused in [
        asking.delete("/api/voices/NATF0").await,
        change(&asking, "NATF0", json!({"name": "Ada"})).await,
    ] {
        assert_eq!(
            (refused.status, refused.code()),
            (409, "voice_of_the_model")
        );
    }
    change(&asking, "NATF0", json!({"archived": true}))
        .await
        .good();
    assert_eq!(names(&asking).await, ["[NATF0]", "NATM0"]);
    assert!(app.dial("voice_prompt=NATF0").await.is_err());
    let list = asking.get("/api/voices").await.good();
    assert_eq!(
        list["items"][1]["is_default"],
        json!(true),
        "the next one takes over"
    );
    let taken = add(&asking, "natf0", "", "x", &scripted_bundle(4, 4)).await;
    assert_eq!(taken.code(), "name_taken");
    change(&asking, "NATF0", json!({"archived": false}))
        .await
        .good();
    assert_eq!(names(&asking).await, ["NATF0", "NATM0"]);
    let missing = change(&asking, "nobody", json!({"archived": true})).await;
    assert_eq!(missing.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_has_the_voices_and_the_archive_of_the_one_before() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let speech = recording("speech.flac");
    add(&asking, "Ada", CONSENT, "x", &speech).await.good();
    let bundle = scripted_bundle(4, 4);
    add(&asking, "Bea", "", "x", &bundle).await.good();
    for name in ["NATM0", "Bea"] {
        let away = change(&asking, name, json!({"archived": true}));
        away.await.good();
    }
    let fresh = ScriptedPrepare::default();
    let store = app.state.desk().store();
    // Not of this model, and damaged: neither may keep the others from being there.
    let other = store.insert_voice("another", "Eve", &bundle, 4, None);
    other.await.unwrap();
    let damaged = store.insert_voice("scripted", "Mud", b"mud", 4, None);
    damaged.await.unwrap();
    load_voices(store, &fresh).await.unwrap();
    let names = fresh.voice_facts().into_iter().map(|facts| facts.name);
    assert_eq!(names.collect::<Vec<_>>(), ["Ada", "NATF0"]);
}

async fn preview(app: &TestApp, name: &str) -> (u16, Option<String>, Vec<u8>) {
    let url = app.url(&format!("/api/voices/{name}/preview"));
    let response = reqwest::get(url).await.unwrap();
    let retry = response.headers().get("retry-after");
    let retry = retry.map(|value| value.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    (status, retry, response.bytes().await.unwrap().to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_is_rendered_once_for_all_who_ask_and_kept() {
    let setup = Setup::of(ScriptedEngine::voices());
    let app = setup.clock(FastClock::with_haste(8)).start().await;
    let asked = tokio::join!(preview(&app, "NATM0"), preview(&app, "natm0"));
    for (status, _, wav) in [&asked.0, &asked.1] {
        assert_eq!(*status, 200, "{}", String::from_utf8_lossy(wav));
        let mut reader = hound::WavReader::new(&wav[..]).unwrap();
        assert_eq!(
            (reader.spec().sample_rate, reader.duration()),
            (24_000, 144_000)
        );
        let level = reader.samples::<i16>().nth(72_000).unwrap().unwrap();
        assert_eq!(level, (0.02 * 32_767.0) as i16, "the second voice's");
    }
    assert_eq!(app.log.seated(), 1, "two askers, one rendering");
    app.all_slots_free().await;
    let ready = Asking::of(&app).get("/api/voices").await.good();
    assert_eq!(ready["items"][1]["preview_ready"], json!(true));
    let url = app.url("/api/voices/NATM0/preview");
    let part = reqwest::Client::new().get(url).header("range", "bytes=0-3");
    let part = part.send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(&part.bytes().await.unwrap()[..], b"RIFF");
    assert_eq!(app.log.seated(), 1);
    let missing = preview(&app, "nobody").await;
    assert_eq!(missing.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_never_takes_the_last_slot_from_callers() {
    let app = Setup::echo().slots(2).start().await;
    let mut caller = app.live("").await;
    let (status, retry, body) = preview(&app, "NATF0").await;
    assert_eq!((status, retry.is_some()), (503, true), "{body:?}");
    assert_eq!(app.log.seated(), 1, "the caller alone");
    caller.say(0.1).await;
    assert_eq!(app.board().slots_in(SlotPhase::Live), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_upload_is_worked_on_at_a_time() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    // They may miss each other; then the next two try.
    for nth in 0.. {
        let upload = |who: &str| {
            let name = format!("{who}-{nth}");
            form(&[("name", &name)], "x", &scripted_bundle(4, 4))
        };
        // The end of the first one's file stays on its way until the second one has its answer.
        let (go, gate) = tokio::sync::oneshot::channel::<()>();
        let mut head = upload("Ada");
        let tail = head.split_off(head.len() - 20);
        let begins = stream::iter([Ok::<_, std::io::Error>(head)]);
        let ends = stream::once(async move {
            let _ = gate.await;
            Ok(tail)
        });
        let first = send(&asking, reqwest::Body::wrap_stream(begins.chain(ends)));
        let second = async {
            let answer = send(&asking, upload("Bea")).await;
            let _ = go.send(());
            answer
        };
        let (first, second) = tokio::join!(first, second);
        let refused = match (first.status, second.status) {
            (201, 201) => continue,
            (201, _) => second,
            _ => first,
        };
        assert_eq!((refused.status, refused.code()), (503, "not_now"));
        break;
    }
    let made = add(&asking, "Cleo", "", "x", &scripted_bundle(4, 4)).await;
    assert_eq!(made.status, 201, "the turn is free: {made:?}");
}

/// What the scripted engine says of a call: the level of its voice.
fn level(app: &TestApp, voice: &str) -> f32 {
    let spec = CallSpec {
        voice: Some(voice.to_owned()),
        ..CallSpec::default()
    };
    app.prepare.prepare(&spec).unwrap().voice
}

#[tokio::test(flavor = "multi_thread")]
async fn added_voices_do_not_change_what_others_are() {
    let app = Setup::of(ScriptedEngine::voices()).start().await;
    let asking = Asking::of(&app);
    for (name, percent) in [("AAA", 40), ("ZZZ", 50)] {
        add(&asking, name, "", "x", &scripted_bundle(4, percent))
            .await
            .good();
    }
    let levels = ["NATF0", "NATM0", "AAA", "ZZZ"].map(|name| level(&app, name));
    assert_eq!(levels, [0.01, 0.02, 0.4, 0.5]);
}
