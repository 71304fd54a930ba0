//! Every conversation over `/api/chat`, with Opus both ways: on fresh slots, on used ones, and from snapshots.

use engine::voice_model::EngineOptions;
use tokio::sync::OnceCell;

use crate::behaviour::{Behaviour, Conversation, Heard, OPUS_SLACK, Order};
use crate::switchboard::{Plan, Switchboard, greedy_query};
use crate::user::ROOM_RMS;

/// Ticks between two callers, so that each joins while others talk, and no two are at the same place.
const APART_TICKS: usize = 7;
/// Ticks after which the first users of a slot leave: in the middle of a word.
const SPOILER_FRAMES: usize = 31;
/// Fewer than there are conversations.
const FEW_SLOTS: usize = 6;

/// What was heard on fresh slots, all at once; computed by the first test that needs it.
static FRESH: OnceCell<Vec<Vec<Heard>>> = OnceCell::const_new();

async fn heard_on_fresh_slots(talks: &[Conversation]) -> &'static [Vec<Heard>] {
    FRESH
        .get_or_init(async || {
            let board = Switchboard::start(talks.len(), EngineOptions::PROMPT_CACHE_BYTES).await;
            let heard = board
                .hold(talks.iter().map(|talk| Plan::of(talk, ROOM_RMS)).collect())
                .await;
            assert_eq!(board.frames_lost(), 0);
            heard
        })
        .await
}

fn judge(talks: &[Conversation], heard: &[Vec<Heard>]) {
    let faults: Vec<String> = talks
        .iter()
        .zip(heard)
        .flat_map(|(talk, heard)| {
            let faults = talk.judge(heard, Order::Sooner, OPUS_SLACK);
            faults
                .into_iter()
                .map(|fault| format!("{}: {fault}", talk.title()))
        })
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Not only as it should be, but bit for bit what was heard on fresh slots.
fn same(talks: &[Conversation], heard: &[Vec<Heard>], fresh: &[Vec<Heard>]) {
    for ((talk, heard), fresh) in talks.iter().zip(heard).zip(fresh) {
        assert_eq!(heard.len(), fresh.len(), "{}", talk.title());
        let differs = heard
            .iter()
            .zip(fresh)
            .position(|(heard, fresh)| heard != fresh);
        assert_eq!(
            differs,
            None,
            "the first frame of {} that differs",
            talk.title()
        );
    }
}

/// Calls that leave their slots in the middle of a word, of all personas and with random choices.
fn spoilers(n: usize) -> Vec<Plan> {
    let talks = Behaviour::of_the_demo().conversations;
    let plan = |index: usize| {
        let talk = &talks[(index * 5) % talks.len()];
        let mut plan = Plan::of(talk, ROOM_RMS);
        plan.query =
            plan.query.replace("temperature=0", "temperature=0.9") + &format!("&seed={index}");
        plan.line.truncate(SPOILER_FRAMES + index);
        plan
    };
    (0..n).map(plan).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_conversation_is_as_written_down_on_a_fresh_slot() {
    let talks = Behaviour::of_the_demo().conversations;
    judge(&talks, heard_on_fresh_slots(&talks).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_conversation_is_the_same_on_a_recycled_slot_while_others_talk() {
    let talks = Behaviour::of_the_demo().conversations;
    let fresh = heard_on_fresh_slots(&talks).await;
    let board = Switchboard::start(FEW_SLOTS, 0).await;
    let left = board.hold(spoilers(FEW_SLOTS)).await;
    assert!(
        left.iter()
            .all(|heard| heard.iter().any(|frame| !frame.text.is_empty()))
    );
    let plans = talks
        .iter()
        .enumerate()
        .map(|(index, talk)| Plan::of(talk, ROOM_RMS).after_ticks(index * APART_TICKS));
    let heard = board.hold(plans.collect()).await;
    assert_eq!(board.metric("vivavoce_prompt_cache_hits_total").await, 0.0);
    assert_eq!(board.frames_lost(), 0);
    judge(&talks, &heard);
    same(&talks, &heard, fresh);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_conversation_is_the_same_from_a_snapshot() {
    let talks = Behaviour::of_the_demo().conversations;
    let fresh = heard_on_fresh_slots(&talks).await;
    let board = Switchboard::start(talks.len(), EngineOptions::PROMPT_CACHE_BYTES).await;
    let mut known: Vec<String> = talks
        .iter()
        .map(|talk| greedy_query(&talk.prompt, &talk.voice))
        .collect();
    known.sort();
    known.dedup();
    let short = |query: &String| Plan {
        query: format!("{query}&ext=1"),
        line: talks[0].user_line(ROOM_RMS)[..2].to_vec(),
        after_ticks: 0,
        mute: false,
    };
    board.hold(known.iter().map(short).collect()).await;
    let read = board.metric("vivavoce_prompt_cache_misses_total").await;
    assert_eq!(read, known.len() as f64);
    let plans = talks
        .iter()
        .enumerate()
        .map(|(index, talk)| Plan::of(talk, ROOM_RMS).after_ticks(index * APART_TICKS));
    let heard = board.hold(plans.collect()).await;
    assert_eq!(
        board.metric("vivavoce_prompt_cache_hits_total").await,
        talks.len() as f64
    );
    assert_eq!(
        board.metric("vivavoce_prompt_cache_misses_total").await,
        read
    );
    assert_eq!(board.frames_lost(), 0);
    judge(&talks, &heard);
    same(&talks, &heard, fresh);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_caller_sends_nothing_greets_and_asks_once() {
    let mut talks = Behaviour::of_the_demo().conversations;
    talks.retain(|talk| talk.name == "silence");
    let board = Switchboard::start(1, 0).await;
    let mute = |talk| Plan {
        mute: true,
        ..Plan::of(talk, 0.0)
    };
    judge(&talks, &board.hold(talks.iter().map(mute).collect()).await);
}
