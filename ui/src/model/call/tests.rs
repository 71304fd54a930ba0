//! Calls as they go, well and otherwise.

use super::*;

fn live(token: &str) -> Event {
    Event::Notice(Notice::Live {
        resume: token.to_owned(),
        resume_within_ms: 3_000,
        generation: 0,
        seed: "1".to_owned(),
        session: Some(7),
        recording: None,
    })
}

fn ended(reason: EndReason) -> Event {
    Event::Notice(Notice::Ended {
        reason,
        message: "words".to_owned(),
        redial: reason.redial(),
    })
}

/// A call after `events`, and the commands of the last one.
fn after(events: impl IntoIterator<Item = Event>) -> (Call, Vec<Command>) {
    let mut call = Call::default();
    let mut commands = Vec::new();
    for event in events {
        commands = call.on(event, 0.0);
    }
    (call, commands)
}

fn talking() -> Vec<Event> {
    vec![
        Event::Pressed,
        Event::MicrophoneReady,
        live("a"),
        Event::Ready,
    ]
}

fn with(mut events: Vec<Event>, more: impl IntoIterator<Item = Event>) -> (Call, Vec<Command>) {
    events.extend(more);
    after(events)
}

#[test]
fn a_call_goes_from_the_button_through_the_line_to_talking() {
    let (call, commands) = after([Event::Pressed]);
    assert_eq!(
        (call.button(), commands),
        ("Cancel", vec![Command::AskForMicrophone])
    );
    let (_, commands) = after([Event::Pressed, Event::MicrophoneReady]);
    assert_eq!(commands, [Command::Open { resume: None }]);
    let (call, _) = after([
        Event::Pressed,
        Event::MicrophoneReady,
        Event::Notice(Notice::Queued { place: 3 }),
    ]);
    assert!(call.words().contains("number 3"));
    let (call, commands) = after(talking());
    assert_eq!((call.phase.clone(), call.session), (Phase::Live, Some(7)));
    assert_eq!(
        (call.button(), commands),
        ("Hang up", vec![Command::StartSound])
    );
    let (call, commands) = with(talking(), [Event::Pressed]);
    assert_eq!(commands, [Command::Close, Command::StopSound]);
    assert_eq!(call.button(), "Call again");
}

#[test]
fn a_broken_line_is_taken_up_again_with_its_token_until_the_time_is_over() {
    let (call, commands) = with(talking(), [Event::Closed { code: 1006 }]);
    assert_eq!(call.phase, Phase::Reconnecting { tries: 1 });
    assert_eq!(commands, [Command::RetryAfter { ms: 250 }]);
    let (_, commands) = with(talking(), [Event::Closed { code: 1006 }, Event::RetryDue]);
    assert_eq!(
        commands,
        [Command::Open {
            resume: Some("a".to_owned())
        }]
    );
    let (call, commands) = with(
        talking(),
        [
            Event::Closed { code: 1006 },
            Event::RetryDue,
            live("b"),
            Event::Ready,
        ],
    );
    assert_eq!(
        (call.phase.clone(), commands),
        (Phase::Live, vec![Command::StartSound])
    );
    // A second break has its own time, and a try that hangs counts with what it took.
    for (try_ms, tries_wanted) in [(0.0, 4), (2_500.0, 2)] {
        let (mut call, mut now_ms, mut tries) = (call.clone(), 60_000.0, 0);
        while call.is_on() {
            for command in call.on(Event::Silent, now_ms) {
                if let Command::RetryAfter { ms } = command {
                    now_ms += f64::from(ms) + try_ms;
                    tries += 1;
                }
            }
            call.on(Event::RetryDue, now_ms);
        }
        assert_eq!(tries, tries_wanted, "tries of {try_ms} ms");
        assert!(call.words().contains("in time"), "{}", call.words());
    }
}

#[test]
fn silence_breaks_a_live_line_and_no_other() {
    let (call, commands) = with(talking(), [Event::Silent]);
    assert_eq!(call.phase, Phase::Reconnecting { tries: 1 });
    assert_eq!(commands, [Command::RetryAfter { ms: 250 }]);
    let before = [
        vec![Event::Pressed],
        vec![Event::Pressed, Event::MicrophoneReady],
        vec![
            Event::Pressed,
            Event::MicrophoneReady,
            Event::Notice(Notice::Queued { place: 2 }),
        ],
    ];
    for events in before {
        let (call, commands) = with(events.clone(), [Event::Silent]);
        assert!(call.is_on() && commands.is_empty(), "{events:?}");
    }
}

#[test]
fn an_end_with_a_reason_is_never_dialled_again_by_itself() {
    for reason in EndReason::ALL {
        let (call, commands) = with(
            talking(),
            [
                ended(reason),
                Event::Closed {
                    code: reason.close_code(),
                },
            ],
        );
        assert!(!call.is_on(), "{reason:?}");
        assert_eq!(commands, [], "{reason:?}");
        let (_, late) = with(talking(), [ended(reason), Event::RetryDue]);
        assert_eq!(late, [], "{reason:?}");
    }
    let (call, _) = with(talking(), [ended(EndReason::LengthLimit)]);
    let Phase::Ended(ending) = call.phase else {
        panic!()
    };
    assert!(!ending.may_redial);
}

#[test]
fn a_full_house_a_dead_server_and_a_refusal_in_words_are_told_apart() {
    let dialled = || vec![Event::Pressed, Event::MicrophoneReady];
    let cases = [
        (vec![ended(EndReason::Full)], "busy"),
        (vec![Event::Closed { code: 1013 }], "busy"),
        (vec![Event::Closed { code: 1006 }], "cannot be reached"),
        (
            vec![
                Event::Complaint("there is no voice".to_owned()),
                Event::Closed { code: 1008 },
            ],
            "There is no voice.",
        ),
        (vec![ended(EndReason::EngineFault)], "device failed"),
    ];
    for (events, words) in cases {
        let (call, _) = with(dialled(), events.clone());
        assert!(call.words().contains(words), "{events:?}: {}", call.words());
    }
}

#[test]
fn events_that_come_too_late_do_nothing() {
    let (call, commands) = after([Event::Pressed, Event::Pressed, Event::MicrophoneReady]);
    assert!(!call.is_on());
    assert_eq!(
        commands,
        [Command::StopSound],
        "a microphone that came too late is given back"
    );
    for event in [
        live("x"),
        Event::Ready,
        Event::Closed { code: 1006 },
        Event::RetryDue,
        Event::Left,
    ] {
        let (call, commands) = with(talking(), [Event::Pressed, event.clone()]);
        assert_eq!((call.is_on(), commands), (false, vec![]), "{event:?}");
    }
}

#[test]
fn without_a_microphone_the_page_says_what_to_do() {
    for problem in [
        MicrophoneProblem::Refused,
        MicrophoneProblem::Missing,
        MicrophoneProblem::Busy,
        MicrophoneProblem::NoSound,
        MicrophoneProblem::Insecure,
    ] {
        let (call, _) = after([Event::Pressed, Event::MicrophoneFailed(problem)]);
        assert_eq!(call.words(), problem.text());
        assert!(!call.is_on());
    }
}
