//! Stalls, slow devices and joiners: what the clock does to calls.

use super::*;
use slots::pace::RESYNC_US;
use slots::testing::Work;

/// A caller who speaks all the time, a frame every 80 ms of the clock, numbered by its samples.
struct Talker {
    seat: Seat,
    clock: Arc<HandClock>,
    begun_us: u64,
    said: u64,
    heard: Vec<u64>,
    lag_us_max: u64,
    quiet: fn(u64) -> bool,
}

/// Samples of frame n of a talker: loud, and telling n.
const LOUD: f32 = 0.5;
const STEP: f32 = 1e-4;

impl Talker {
    fn new(house: &mut House, session: u128) -> Self {
        let seat = house.call(session);
        Self {
            begun_us: house.clock.now_us(),
            clock: house.clock.clone(),
            seat,
            said: 0,
            heard: Vec::new(),
            lag_us_max: 0,
            quiet: |_| false,
        }
    }

    /// Says what is due by now, and listens.
    fn turn(&mut self) {
        let now_us = self.clock.now_us();
        while self.begun_us + (self.said + 1) * TICK_US <= now_us {
            let number = (self.said % 1_000) as f32 * STEP;
            let mut samples = frame(if (self.quiet)(self.said) {
                1e-6
            } else {
                LOUD + number
            });
            // The number is in the first sample also of a quiet frame, too short to be loud.
            samples[0] = LOUD + number;
            if (self.quiet)(self.said) {
                samples[0] = number * 1e-2;
            }
            self.seat.mic.push(&samples);
            self.said += 1;
        }
    }

    fn listen(&mut self) {
        let now_us = self.clock.now_us();
        for frame in frames(&mut self.seat) {
            let level = frame.pcm[0];
            if level >= LOUD {
                let number = ((level - LOUD) / STEP).round() as u64;
                let said_us = self.begun_us + (number + 1) * TICK_US;
                self.lag_us_max = self.lag_us_max.max(now_us.saturating_sub(said_us));
                self.heard.push(number);
            }
        }
    }
}

/// A house on whose clock the n-th step takes `step_us(n)`.
fn house_taking(step_us: impl Fn(u64) -> u64 + Send + 'static) -> House {
    let clock = Arc::new(HandClock::free_running());
    let spender = clock.clone();
    let engine = ScriptedEngine::echo()
        .with_capacity(2)
        .with_hook(move |work| {
            if let Work::Step(step) = work {
                spender.spend_us(step_us(step));
            }
        });
    House::on_clock(engine, clock)
}

/// One tick with a talker, with the lag measured when the frame comes out and not after the sleep.
fn turn(house: &mut House, talker: &mut Talker) {
    talker.turn();
    assert_eq!(house.stepper.tick().expect("no fault"), Next::Tick);
    talker.listen();
    house.stepper.rest().expect("no fault");
    house.stepper.run_errands();
}

#[test]
fn three_stalls_of_300_ms_leave_no_standing_delay_and_lose_no_word() {
    let stalls = [100, 200, 300];
    let mut house = house_taking(move |step| {
        if stalls.contains(&step) {
            300_000
        } else {
            10_000
        }
    });
    let mut talker = Talker::new(&mut house, 1);
    let mut lags = Vec::new();
    for _ in 0..420 {
        talker.lag_us_max = 0;
        turn(&mut house, &mut talker);
        lags.push(talker.lag_us_max);
    }
    let usual_us = lags[50];
    assert!(usual_us <= TICK_US + 10_000, "{usual_us}");
    for stall in [100, 200, 300] {
        assert!(lags[stall] >= 300_000, "the stall itself is felt");
        assert!(
            lags[stall + 10..stall + 99]
                .iter()
                .all(|&lag_us| lag_us <= usual_us)
        );
    }
    let counters = talker.seat.mic.counters();
    for loss in [
        Loss::MicFull,
        Loss::MicBacklog,
        Loss::MicQuiet,
        Loss::Deficit,
    ] {
        assert_eq!(counters.loss(loss), 0, "{loss:?}");
    }
    assert!(counters.loss(Loss::LateTick) >= 3);
    assert!(
        talker.heard.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "every word is heard"
    );
}

#[test]
fn a_stall_of_five_seconds_costs_the_past_and_nothing_else() {
    let mut house = house_taking(|step| if step == 50 { 5_000_000 } else { 10_000 });
    let mut talker = Talker::new(&mut house, 1);
    for _ in 0..100 {
        turn(&mut house, &mut talker);
    }
    assert_eq!(house.board().resyncs(), 1);
    let counters = talker.seat.mic.counters();
    assert_eq!(counters.loss(Loss::Deficit), 61);
    assert!(
        counters.loss(Loss::MicBacklog) >= 55,
        "{}",
        counters.loss(Loss::MicBacklog)
    );
    talker.lag_us_max = 0;
    for _ in 0..20 {
        turn(&mut house, &mut talker);
    }
    assert!(talker.lag_us_max <= 3 * TICK_US, "{}", talker.lag_us_max);
    assert_eq!(
        talker.seat.speaker.counters().frames_sent(),
        120,
        "one frame a tick"
    );
}

#[test]
fn a_device_that_takes_90_ms_has_bounded_delay_counters_and_no_new_callers() {
    let mut house = house_taking(|_| 90_000);
    let mut talker = Talker::new(&mut house, 1);
    for _ in 0..667 {
        turn(&mut house, &mut talker);
    }
    // One minute in: what waits is at most what 3 s of working off let stand, and the tick is at most 1 s behind.
    assert!(
        talker.lag_us_max <= RESYNC_US + 3 * TICK_US,
        "{}",
        talker.lag_us_max
    );
    let board = house.board();
    assert!(board.resyncs() > 0 && board.losses().get(Loss::Deficit) > 0);
    assert!(board.losses().get(Loss::LateTick) > 600);
    assert!(
        board.losses().get(Loss::MicBacklog) > 50,
        "speech without a pause has no quiet frames to skip"
    );
    assert_eq!((board.tick_p50_us(), board.tick_p99_us()), (90_000, 90_000));
    assert!(!board.admission_open() && !board.in_service());
    let due = house.clock.now_us() / TICK_US;
    let (sent, deficit) = (board.frames_sent(), board.losses().get(Loss::Deficit));
    assert!(
        due - sent - deficit <= RESYNC_US / TICK_US + 3,
        "due {due}, sent {sent}, deficit {deficit}"
    );
    let stranger = house.ask(2, 0, ScriptedCall::default());
    house.tick();
    let answer = stranger.speaker.try_answer();
    assert_eq!(
        answer,
        Some(Err(JoinError::AdmissionStopped { p99_us: 90_000 }))
    );
    // When the caller has left, a minute of quiet opens the door again.
    drop(talker);
    house.ticks(750);
    house.call(3);
}

#[test]
fn pauses_pay_for_what_a_slow_connection_held_back() {
    let mut house = house_taking(|_| 10_000);
    let mut talker = Talker::new(&mut house, 1);
    talker.quiet = |said| said % 15 >= 12;
    for _ in 0..60 {
        turn(&mut house, &mut talker);
    }
    for _ in 0..3 {
        // 300 ms in which nothing arrives, though it is said.
        for _ in 0..4 {
            house.tick();
        }
        talker.listen();
        for _ in 0..60 {
            turn(&mut house, &mut talker);
        }
        talker.lag_us_max = 0;
        turn(&mut house, &mut talker);
        assert!(talker.lag_us_max <= 3 * TICK_US, "{}", talker.lag_us_max);
    }
    let counters = talker.seat.mic.counters();
    assert!(counters.loss(Loss::MicQuiet) > 0);
    assert_eq!(counters.loss(Loss::MicBacklog), 0);
    let loud = (0..*talker.heard.last().expect("heard")).filter(|said| said % 15 < 12);
    assert!(
        loud.eq(talker.heard[..talker.heard.len() - 1].iter().copied()),
        "every word is heard"
    );
}

#[test]
fn joiners_read_their_prompts_in_the_slack_and_live_rows_never_lose_a_tick() {
    // (name, chunk, ticks until both joiners are live, late ticks allowed)
    let cases = [
        ("chunks that fit twice", 25_000, 12, false),
        ("chunks that fit once", 40_000, 22, false),
        ("chunks that never fit", 70_000, 22, true),
    ];
    for (name, chunk_us, live_by, may_be_late) in cases {
        let clock = Arc::new(HandClock::free_running());
        let spender = clock.clone();
        let engine = ScriptedEngine::echo().with_hook(move |work| match work {
            Work::Step(_) => spender.spend_us(20_000),
            Work::Prefill(_) => spender.spend_us(chunk_us),
            Work::Seat(_) => spender.spend_us(1_000),
        });
        let mut house = House::on_clock(engine, clock);
        let mut live = house.call(1);
        let call = ScriptedCall {
            chunks: 10,
            ..ScriptedCall::default()
        };
        let mut joiners = [house.ask(2, 0, call), house.ask(3, 0, call)];
        let mut live_at = [None; 2];
        for tick in 0..40 {
            house.tick();
            assert_eq!(frames(&mut live).len(), 1, "{name}: tick {tick}");
            for (joiner, live_at) in joiners.iter_mut().zip(&mut live_at) {
                let events = events(joiner);
                if events.iter().any(|event| matches!(event, SeatEvent::Live)) {
                    *live_at = Some(tick);
                }
            }
        }
        assert!(
            live_at.iter().all(|at| at.is_some_and(|at| at <= live_by)),
            "{name}: {live_at:?}"
        );
        let late = house.board().losses().get(Loss::LateTick);
        assert!(late == 0 || may_be_late, "{name}: {late} late ticks");
    }
}
