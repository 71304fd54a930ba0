//! Prompts and live calls against recorded conversations: every token that is fed, given, chosen and let out.

use std::sync::Arc;

use engine::prompt::{InputSource, Phase, Prompt, live_positions_max};
use engine::tokens::{OutFrame, Staging};
use engine::weights::Checkpoint;
use slots::call::PrepareError;

use crate::support::{Golden, checkpoint};

/// The prompt that the recorded conversation begins with.
fn recorded_prompt(checkpoint: &Checkpoint, golden: &Golden) -> Prompt {
    let voice = golden.metadata["voice"].as_str();
    let voice = (!voice.is_empty()).then_some(voice);
    Prompt::new(checkpoint, voice, &golden.metadata["prompt"], usize::MAX).unwrap()
}

fn as_i64(tokens: &[i32]) -> Vec<i64> {
    tokens.iter().map(|&token| token.into()).collect()
}

fn as_u32(tokens: &[i64]) -> Vec<u32> {
    tokens
        .iter()
        .map(|&token| u32::try_from(token).unwrap())
        .collect()
}

#[test]
fn recorded_prompts_feed_the_recorded_tokens() {
    let checkpoint = checkpoint();
    for topic in ["loop_f32", "loop_f32_bare"] {
        let golden = Golden::read(topic);
        let prompt = recorded_prompt(&checkpoint, &golden);
        let phases = golden.integers("phase").concat();
        let fed = golden.integers("fed_tokens");
        let positions = phases.iter().filter(|&&phase| phase < 4).count();
        assert_eq!(prompt.positions(), positions, "{topic}");
        let mut embeddings = 0;
        for (position, input) in prompt.inputs.iter().enumerate() {
            let phase = match input.phase {
                Phase::Voice => 0,
                Phase::SilenceAfterVoice => 1,
                Phase::Text => 2,
                Phase::SilenceAfterText => 3,
            };
            assert_eq!(phase, phases[position], "{topic} position {position}");
            match input.source {
                InputSource::Embedding(index) => {
                    assert_eq!(index, embeddings);
                    embeddings += 1;
                }
                InputSource::Tokens(tokens) => {
                    assert_eq!(
                        as_i64(&tokens[..17]),
                        fed[position],
                        "{topic} position {position}"
                    );
                }
            }
        }
        assert_eq!(
            embeddings,
            prompt.bundle.as_ref().map_or(0, |voice| voice.n)
        );
        assert_eq!(prompt.after.positions(), positions as u64);
        if !prompt.text_ids.is_empty() {
            assert_eq!(
                prompt.text_ids,
                as_u32(&golden.integers("text_prompt_ids").concat())
            );
        }
    }
}

#[test]
fn recorded_choices_give_the_recorded_tokens_in_the_published_order() {
    let checkpoint = checkpoint();
    for topic in ["loop_f32", "loop_f32_bare", "loop_f32_short"] {
        let golden = Golden::read(topic);
        let mut staging = recorded_prompt(&checkpoint, &golden).after;
        let [fed, forced, target, out, user, audio] = [
            "live.fed_tokens",
            "live.forced",
            "live.target_tokens",
            "live.out_tokens",
            "live.user_codes",
            "live.audio_tokens",
        ]
        .map(|name| golden.integers(name));
        let text = golden.integers("live.text_token").concat();
        let ticks = golden.integers("live.tick").concat();
        for frame in 0..ticks.len() {
            let at = format!("{topic} frame {frame}");
            assert_eq!(staging.calls(), ticks[frame] as u64, "{at}");
            staging.give_user(&as_u32(&user[frame])).unwrap();
            let call = staging.begin_call().unwrap().expect("a prompt came before");
            assert_eq!(as_i64(&call.input[..17]), fed[frame], "{at}");
            assert_eq!(as_i64(&call.targets[1..17]), forced[frame], "{at}");
            let let_out = staging.end_call(text[frame] as u32, &as_u32(&audio[frame]));
            let tokens = staging.tokens_at(call.position + 1);
            assert_eq!(as_i64(&tokens[..17]), target[frame], "{at}");
            assert_eq!(as_i64(&staging.out_row()[..17]), out[frame], "{at}");
            let OutFrame::Frame { text, codes } = let_out else {
                panic!("{at}: every live call lets a frame out");
            };
            assert_eq!(i64::from(text), out[frame][0]);
            assert_eq!(codes.as_slice(), as_u32(&out[frame][1..9]), "{at}");
        }
    }
}

#[test]
fn calling_before_the_user_frame_lets_out_the_same_frames_one_tick_sooner() {
    let checkpoint = checkpoint();
    let golden = Golden::read("loop_f32");
    let user = golden.integers("live.user_codes");
    let audio = golden.integers("live.audio_tokens");
    let text = golden.integers("live.text_token").concat();
    let out = golden.integers("live.out_tokens");
    let fed = golden.integers("live.fed_tokens");
    let mut staging = recorded_prompt(&checkpoint, &golden).after;
    let call = |staging: &mut Staging, frame: usize| {
        let call = staging.begin_call().unwrap().unwrap();
        assert_eq!(as_i64(&call.input[..17]), fed[frame], "frame {frame}");
        // Serving runs the agent's eight steps alone.
        staging.end_call(text[frame] as u32, &as_u32(&audio[frame][..8]))
    };
    // The call that follows the prompt runs without audio.
    let first = call(&mut staging, 0);
    let OutFrame::Frame {
        text: silent,
        codes,
    } = first
    else {
        panic!("the first frame is the prompt's last silence");
    };
    let prompt = &checkpoint.config().prompt;
    assert_eq!(silent, prompt.text_while_prompting);
    assert_eq!(codes.as_slice(), prompt.silence_tokens);
    for frame in 1..user.len() {
        staging.give_user(&as_u32(&user[frame - 1])).unwrap();
        let OutFrame::Frame { text, codes } = call(&mut staging, frame) else {
            panic!("frame {frame} is whole");
        };
        assert_eq!(i64::from(text), out[frame][0], "frame {frame}");
        assert_eq!(codes.as_slice(), as_u32(&out[frame][1..9]), "frame {frame}");
    }
}

#[test]
fn a_prompt_takes_voice_text_and_twice_six_silent_frames() {
    let checkpoint = checkpoint();
    let (_, voice) = checkpoint.voices().get("NATM0").unwrap();
    let voice_frames = voice.n;
    let cases = [
        (Some("NATM0"), "Be brief.", voice_frames + 12, 1),
        (Some("NATM0.pt"), "  ", voice_frames + 12, 1),
        (None, "Be brief.", 11, 1),
        (None, "", 11, 1),
    ];
    for (voice, text, without_text, burned) in cases {
        let prompt = Prompt::new(&checkpoint, voice, text, usize::MAX).unwrap();
        let positions = without_text + prompt.text_ids.len();
        assert_eq!(prompt.positions(), positions, "{voice:?} {text:?}");
        assert_eq!(prompt.after.calls(), (positions + burned) as u64);
        assert_eq!(prompt.text_ids.is_empty(), text.trim().is_empty());
    }
}

#[test]
fn a_prompt_that_leaves_less_than_half_the_window_is_refused_with_the_numbers() {
    let checkpoint = checkpoint();
    let positions_max = live_positions_max(checkpoint.config());
    let error = Prompt::new(&checkpoint, None, "One. Two. Three.", positions_max).unwrap_err();
    let PrepareError::PromptTooLong {
        positions,
        text_tokens,
        positions_max: limit,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((positions, limit), (11 + text_tokens, positions_max));
    Prompt::new(&checkpoint, None, "One. Two. Three.", positions).unwrap();
}

#[test]
fn an_unknown_voice_is_refused_with_the_known_ones() {
    let checkpoint = checkpoint();
    for name in [
        "NATX9",
        "../voices/NATF0",
        "/etc/passwd",
        "NATF0.pt\0",
        "..\\NATF0",
        "%2e%2e/NATF0",
        "",
    ] {
        let error = Prompt::new(&checkpoint, Some(name), "", usize::MAX).unwrap_err();
        let PrepareError::UnknownVoice { known, .. } = error else {
            panic!("{name}: {error}");
        };
        assert_eq!(known, "NATF0, NATM0");
    }
}

#[test]
fn the_key_tells_prompts_apart_and_nothing_else() {
    let checkpoint = checkpoint();
    let key = |voice, text| {
        Prompt::new(&checkpoint, voice, text, usize::MAX)
            .unwrap()
            .key
    };
    let one = key(Some("NATF0"), "Be brief.");
    assert_eq!(one, key(Some("NATF0.pt"), "  Be brief.\n"));
    for other in [
        key(Some("NATM0"), "Be brief."),
        key(None, "Be brief."),
        key(Some("NATF0"), "Be."),
    ] {
        assert_ne!(one, other);
    }
    let again = self::checkpoint();
    assert_eq!(one.checkpoint, again.digest());
    let shared = Arc::clone(again.voices());
    assert_eq!(one.voice.unwrap().1, shared.get("NATF0").unwrap().1.digest);
}
