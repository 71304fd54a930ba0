//! Joining, talking, leaving: who gets which row, and what reaches whom.

use super::*;
use slots::backlog::STANDING_FRAMES;
use slots::engine::RowFault;
use slots::testing::POSITIONS_MAX;
use slots::units::PEER_GAP_FRAMES_MAX;

#[test]
fn a_caller_whose_prompt_is_known_is_live_in_one_tick_and_hears_every_tick() {
    let mut house = House::new(ScriptedEngine::echo().saying("hm", 2));
    let mut seat = house.call(1);
    for level in [0.1, 0.2, 0.3] {
        seat.mic.push(&frame(level));
        house.tick();
    }
    house.tick();
    let heard: Vec<_> = frames(&mut seat)
        .into_iter()
        .map(|frame| {
            (
                frame.frame,
                frame.pcm[FRAME_SAMPLES - 1],
                frame.text.to_string(),
            )
        })
        .collect();
    let expected = [(0, 0.1, "hm"), (1, 0.2, ""), (2, 0.3, "hm"), (3, 0.0, "")];
    assert_eq!(
        heard,
        expected.map(|(n, pcm, text)| (n, pcm, text.to_owned()))
    );
    assert_eq!(seat.speaker.counters().frames_sent(), 4);
    assert_eq!(seat.speaker.counters().loss(Loss::MicMissing), 1);
}

#[test]
fn two_frames_in_one_tick_are_heard_once_each_and_in_order() {
    let mut house = House::new(ScriptedEngine::echo());
    let mut seat = house.call(1);
    seat.mic.push(&frame(0.1));
    seat.mic.push(&frame(0.2));
    house.ticks(3);
    let frames = frames(&mut seat);
    let heard: Vec<_> = frames
        .iter()
        .map(|frame| (frame.pcm[0], frame.heard))
        .collect();
    assert_eq!(heard, [(0.1, Some(0)), (0.2, Some(1)), (0.0, None)]);
}

#[test]
fn samples_that_are_no_numbers_are_taken_as_silence_and_counted() {
    let mut house = House::new(ScriptedEngine::echo());
    let mut seat = house.call(1);
    let mut broken = frame(0.1);
    broken[77] = f32::NAN;
    seat.mic.push(&broken);
    seat.mic.push(&[0.5; 10]);
    house.ticks(2);
    let heard = frames(&mut seat);
    assert!(heard[0].pcm.iter().all(|&sample| sample == 0.0));
    assert_eq!((heard[1].pcm[9], heard[1].pcm[10]), (0.5, 0.0));
    assert_eq!(seat.mic.counters().loss(Loss::MicNotFinite), 1);
}

#[test]
fn a_full_house_answers_at_once_with_a_place_or_a_refusal() {
    let mut house = House::new(ScriptedEngine::echo().with_capacity(2));
    let (first, _second) = (house.call(1), house.call(2));
    let mut third = house.ask(3, 0, ScriptedCall::default());
    let impatient = house.handle.ask(JoinRequest {
        call: ScriptedCall::default(),
        session: SessionKey(4),
        generation: 0,
        may_wait: false,
    });
    let mut fourth = house.ask(5, 0, ScriptedCall::default());
    house.tick();
    let refused = impatient.expect("asked").speaker.try_answer();
    assert_eq!(
        refused,
        Some(Err(JoinError::Full {
            slots: 2,
            waiting: 1
        }))
    );
    assert!(matches!(
        events(&mut third)[..],
        [SeatEvent::Waiting { place: 1 }]
    ));
    assert!(matches!(
        events(&mut fourth)[..],
        [SeatEvent::Waiting { place: 2 }]
    ));
    assert_eq!(house.board().waiting(), 2);
    drop(first);
    house.tick();
    assert!(matches!(events(&mut third)[..], [SeatEvent::Live]));
    assert!(matches!(
        events(&mut fourth)[..],
        [SeatEvent::Waiting { place: 1 }]
    ));
    drop(third);
    house.tick();
    house.tick();
    assert!(matches!(
        events(&mut fourth)[..],
        [SeatEvent::Live, SeatEvent::Frame(_)]
    ));
}

/// Wakes half-way through each sleep, as a request does.
struct Restless(HandClock);

impl Clock for Restless {
    fn now_us(&self) -> u64 {
        self.0.now_us()
    }

    fn sleep_until_us(&self, due_us: u64) {
        let left_us = due_us.saturating_sub(self.now_us());
        self.0.spend_us(left_us.div_ceil(2));
    }
}

#[test]
fn who_dials_between_two_ticks_gets_the_row_that_was_just_left() {
    let engine = ScriptedEngine::echo().with_capacity(3);
    let clock = Arc::new(Restless(HandClock::free_running()));
    let (_handle, mut stepper) = ByHand::new(engine, clock);
    let ask = |stepper: &ByHand<ScriptedEngine>, session| {
        let request = JoinRequest {
            call: ScriptedCall::default(),
            session: SessionKey(session),
            generation: 0,
            may_wait: false,
        };
        stepper.ask(request).expect("the house is open")
    };
    let mut seats = [1, 2].map(|session| ask(&stepper, session));
    stepper.tick().expect("no fault");
    for seat in &mut seats {
        assert_eq!(seat.speaker.try_answer(), Some(Ok(())));
    }
    drop(seats);
    let [third, fourth, fifth] = [3, 4, 5].map(|session| ask(&stepper, session));
    stepper.rest().expect("no fault");
    // With a free row nobody waits for the tick.
    assert_eq!(third.speaker.try_answer(), Some(Ok(())));
    assert_eq!(fourth.speaker.try_answer(), None);
    stepper.tick().expect("no fault");
    assert_eq!(fourth.speaker.try_answer(), Some(Ok(())));
    assert_eq!(fifth.speaker.try_answer(), Some(Ok(())));
}

#[test]
fn a_newer_connection_takes_the_row_over_and_an_older_one_never_does() {
    for order in [[1, 2], [2, 1]] {
        let mut house = House::new(ScriptedEngine::voices().with_capacity(1));
        let mut seats = order.map(|generation| {
            let call = ScriptedCall {
                voice: generation as f32,
                ..ScriptedCall::default()
            };
            (generation, house.ask(7, generation, call))
        });
        house.ticks(2);
        seats.sort_by_key(|(generation, _)| *generation);
        let [(_, mut old), (_, mut new)] = seats;
        match order {
            [1, 2] => assert_eq!(ended(&mut old), Some(CloseReason::Replaced)),
            _ => {
                let stale = JoinError::Stale {
                    generation: 1,
                    newest: 2,
                };
                assert_eq!(old.speaker.try_answer(), Some(Err(stale)));
            }
        }
        assert_eq!(frames(&mut new)[0].pcm[0], 2.0);
        // A live row is taken over as well, and the engine lets go of the older call first.
        let mut newest = house.ask(
            7,
            3,
            ScriptedCall {
                voice: 3.0,
                ..ScriptedCall::default()
            },
        );
        house.ticks(2);
        assert_eq!(ended(&mut new), Some(CloseReason::Replaced));
        let heard = frames(&mut newest);
        assert_eq!((heard[0].frame, heard[0].pcm[0]), (0, 3.0));
        drop((old, new, newest));
        house.ticks(2);
        assert_eq!(house.free(), 1, "no slot is lost");
    }
}

#[test]
fn a_recycled_slot_never_hears_what_was_made_for_the_last_caller() {
    let mut house = House::new(ScriptedEngine::voices().with_capacity(1));
    let mut first = house.ask(
        1,
        0,
        ScriptedCall {
            voice: 0.1,
            ..ScriptedCall::default()
        },
    );
    house.ticks(3);
    for _ in 0..25 {
        first.mic.push(&frame(0.5));
    }
    let mut second = house.ask(
        2,
        0,
        ScriptedCall {
            voice: 0.2,
            chunks: 3,
            ..ScriptedCall::default()
        },
    );
    house.tick();
    drop(first);
    house.ticks(6);
    let events = events(&mut second);
    let live = events
        .iter()
        .position(|event| matches!(event, SeatEvent::Live));
    let first_frame = events
        .iter()
        .position(|event| matches!(event, SeatEvent::Frame(_)));
    assert!(live.is_some() && live < first_frame, "{events:?}");
    for event in events {
        if let SeatEvent::Frame(frame) = event {
            assert!(frame.pcm.iter().all(|&sample| sample == 0.2));
        }
    }
}

#[test]
fn warming_up_is_not_for_the_caller() {
    let mut house = House::new(ScriptedEngine::voices());
    let mut seat = house.ask(
        1,
        0,
        ScriptedCall {
            warm_up: 2,
            ..ScriptedCall::default()
        },
    );
    house.ticks(5);
    let sent: Vec<_> = frames(&mut seat).iter().map(|frame| frame.frame).collect();
    assert_eq!(sent, [2, 3]);
}

#[test]
fn a_dropped_seat_frees_its_row_within_two_ticks_at_every_phase() {
    // The phase at which the caller leaves, as ticks after asking; prompts have 6 chunks of 80 ms.
    for leave_after in 0..12 {
        let clock = Arc::new(HandClock::free_running());
        let slow = clock.clone();
        let engine = ScriptedEngine::echo().with_capacity(2);
        let engine = engine.with_hook(move |work| {
            if matches!(work, slots::testing::Work::Prefill(_)) {
                slow.spend_us(TICK_US);
            }
        });
        let mut house = House::on_clock(engine, clock);
        let mut neighbour = house.call(1);
        let seat = house.ask(
            2,
            0,
            ScriptedCall {
                chunks: 6,
                ..ScriptedCall::default()
            },
        );
        house.ticks(leave_after);
        drop(seat);
        house.ticks(2);
        assert_eq!(house.free(), 1, "left after {leave_after} ticks");
        let sent = frames(&mut neighbour).len();
        assert_eq!(sent, leave_after + 2, "the neighbour lost no tick");
    }
}

#[test]
fn two_thousand_calls_that_end_at_random_moments_leave_every_slot_free() {
    let mut house = House::new(ScriptedEngine::echo().with_capacity(3));
    // A small linear congruential generator: the same calls in every run.
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut seats: Vec<Seat> = Vec::new();
    for cycle in 0..2_000 {
        let chunks = random(4) as u32;
        // Some are a session's second connection, some are refused.
        let session = u128::from(random(1_000));
        let call = ScriptedCall {
            chunks,
            positions: random(2_000) as usize,
            ..ScriptedCall::default()
        };
        let mut seat = house.ask(session, cycle, call);
        match random(4) {
            0 => drop(seat),
            1 => {
                house.ticks(random(3) as usize);
                seat.mic.push(&frame(0.3));
                seats.push(seat);
            }
            _ => seats.push(seat),
        }
        while seats.len() > random(8) as usize {
            seats.swap_remove(random(seats.len() as u64) as usize);
        }
        if random(10) == 0 {
            seats.clear();
            house.ticks(2);
            assert_eq!(house.free(), 3, "cycle {cycle}");
        }
        house.ticks(random(3) as usize);
    }
    seats.clear();
    house.ticks(2);
    assert_eq!((house.free(), house.board().waiting()), (3, 0));
    assert_eq!(house.log.seated(), house.log.vacated());
    let mut last: Vec<_> = (0..3)
        .map(|session| house.ask(session, 9_999, ScriptedCall::default()))
        .collect();
    house.ticks(2);
    assert!(last.iter_mut().all(|seat| frames(seat).len() == 1));
}

#[test]
fn a_row_that_fails_ends_its_session_and_no_other() {
    let mut house = House::new(ScriptedEngine::echo().row_fault_at(0, 2));
    let (mut broken, mut whole) = (
        house.ask(1, 0, ScriptedCall::default()),
        house.ask(2, 0, ScriptedCall::default()),
    );
    house.ticks(6);
    let events = events(&mut broken);
    let reason = CloseReason::RowFault(RowFault::NotFinite);
    assert!(matches!(
        events[..],
        [
            SeatEvent::Live,
            SeatEvent::Frame(_),
            SeatEvent::Frame(_),
            SeatEvent::Ended(_)
        ]
    ));
    assert!(matches!(events[3], SeatEvent::Ended(ended) if ended == reason));
    assert_eq!(frames(&mut whole).len(), 5);
    assert_eq!(house.board().ended(reason), 1);
    assert_eq!(house.free(), 3);
}

#[test]
fn a_prompt_that_is_too_long_ends_the_session_with_both_numbers() {
    let mut house = House::new(ScriptedEngine::echo());
    let mut seat = house.ask(
        1,
        0,
        ScriptedCall {
            positions: POSITIONS_MAX + 1,
            ..ScriptedCall::default()
        },
    );
    house.tick();
    let reason = CloseReason::PromptTooLong {
        positions: 1_001,
        positions_max: 1_000,
    };
    assert_eq!(ended(&mut seat), Some(reason));
    assert_eq!(house.free(), 4);
    house.call(2);
}

#[test]
fn a_listener_that_does_not_read_is_let_go_and_its_neighbour_goes_on() {
    let mut house = House::new(ScriptedEngine::echo());
    let (mut slow, mut quick) = (house.call(1), house.call(2));
    let mut heard = 0;
    for tick in 0..40 {
        slow.mic.sign_of_life();
        house.tick();
        heard += frames(&mut quick).len();
        let gone = house.board().ended(CloseReason::ListenerTooSlow);
        assert_eq!(gone, u64::from(tick >= 24), "tick {tick}");
    }
    assert_eq!(heard, 40);
    // It is told so at once, not after two seconds of the past.
    assert!(matches!(
        events(&mut slow)[..],
        [SeatEvent::Ended(CloseReason::ListenerTooSlow)]
    ));
    assert_eq!(house.free(), 3);
}

#[test]
fn a_quiet_microphone_never_ends_a_call_and_no_life_at_all_does() {
    let mut house = House::new(ScriptedEngine::echo());
    let (mut quiet, mut dead) = (house.call(1), house.call(2));
    let mut waiting_for = None;
    for tick in 0..3 * PEER_GAP_FRAMES_MAX {
        if tick % 300 == 0 {
            quiet.mic.sign_of_life();
        }
        house.tick();
        assert_eq!(ended(&mut quiet), None);
        if ended(&mut dead).is_some_and(|reason| reason == CloseReason::PeerGone) {
            waiting_for.get_or_insert(tick);
        }
    }
    // The first 375 ticks without life are forgiven, the one after that is not.
    assert_eq!(waiting_for, Some(PEER_GAP_FRAMES_MAX));
}

#[test]
fn what_a_caller_says_before_it_is_live_is_cut_to_its_newest_end() {
    let mut house = House::new(ScriptedEngine::echo());
    let _neighbour = house.call(1);
    let clock = house.clock.clone();
    let mut seat = house.ask(2, 0, ScriptedCall::default());
    for level in 1..=40 {
        seat.mic.push(&frame(level as f32 / 100.0));
    }
    clock.spend_us(1);
    house.ticks(3);
    let frames = frames(&mut seat);
    let heard: Vec<_> = frames
        .iter()
        .map(|frame| (frame.pcm[0], frame.heard))
        .collect();
    assert_eq!(heard, [(0.39, Some(38)), (0.40, Some(39))]);
    let dropped = seat.mic.counters().loss(Loss::MicBacklog);
    assert_eq!(dropped as usize, 40 - STANDING_FRAMES);
    assert_eq!(house.board().losses().get(Loss::MicBacklog), dropped);
}

#[test]
fn with_nobody_seated_no_step_runs() {
    let mut house = House::new(ScriptedEngine::echo());
    house.ticks(1_000);
    drop(house.call(1));
    house.ticks(1_000);
    assert_eq!((house.log.steps(), house.board().ticks()), (0, 2_001));
    assert_eq!(house.board().last_tick_age_us(), TICK_US);
}

#[test]
fn draining_sends_the_waiting_home_and_lets_calls_finish_up_to_the_limit() {
    for hangs_up in [true, false] {
        let mut house = House::new(ScriptedEngine::echo().with_capacity(1));
        let mut seat = house.call(1);
        let mut waits = house.ask(2, 0, ScriptedCall::default());
        house.tick();
        house.handle.drain();
        house.tick();
        assert_eq!(ended(&mut waits), Some(CloseReason::ServerStopping));
        assert_eq!(house.board().phase(), Phase::Draining);
        let late = house.ask(3, 0, ScriptedCall::default());
        house.tick();
        assert_eq!(late.speaker.try_answer(), Some(Err(JoinError::Draining)));
        if hangs_up {
            drop(seat);
            house.tick();
            assert_eq!(house.tick(), Next::Stop);
            continue;
        }
        let ticks = (0..10_000).take_while(|_| {
            seat.mic.sign_of_life();
            assert_eq!(ended(&mut seat), None);
            house.tick() == Next::Tick
        });
        assert!((7_400..7_500).contains(&ticks.count()), "ten minutes");
        house.stepper.finish(CloseReason::ServerStopping);
        assert_eq!(ended(&mut seat), Some(CloseReason::ServerStopping));
        let refused = house.handle.ask(JoinRequest {
            call: ScriptedCall::default(),
            session: SessionKey(4),
            generation: 0,
            may_wait: true,
        });
        assert_eq!(refused.err(), Some(JoinError::EngineStopped));
    }
}
