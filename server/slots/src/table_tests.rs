//! The table against a plain list of who should sit where, and the orders of events that went wrong elsewhere.

use proptest::prelude::*;

use super::*;
use crate::pace::Pace;
use crate::units::TICK_US;

fn ask(session: u128, generation: u32) -> Ask {
    Ask {
        session: SessionKey(session),
        generation,
        may_wait: true,
    }
}

/// What one tick does around the joins.
fn settle<T>(table: &mut SlotTable<T>) {
    table.sweep(|_| {});
    table.promote(Gate::Open, |_, _| {});
}

fn seated<T: std::fmt::Debug>(joined: Joined<T>) -> Lease {
    match joined {
        Joined::Seated { lease, .. } => lease,
        other => panic!("not seated: {other:?}"),
    }
}

#[test]
fn two_connections_of_one_session_in_one_tick_leave_the_newest_and_lose_no_slot() {
    for capacity in [1, 2] {
        for order in [[1, 2], [2, 1]] {
            let mut table = SlotTable::new(capacity);
            let mut out = Vec::new();
            for generation in order {
                match table.join(ask(7, generation), generation, Gate::Open) {
                    Joined::Seated { replaced, .. } | Joined::Waiting { replaced, .. } => {
                        out.extend(replaced);
                    }
                    Joined::Refused { holder, refusal } => {
                        assert_eq!(refusal, Refusal::Stale { newest: 2 });
                        out.push(holder);
                    }
                }
            }
            let name = format!("capacity {capacity}, order {order:?}");
            assert_eq!(out, [1], "{name}: the older one ends");
            let held: Vec<_> = table.slots().filter_map(|(_, slot)| slot.lease()).collect();
            assert_eq!(held.len(), 1, "{name}");
            assert_eq!(table.holder_mut(held[0]), Some(&mut 2), "{name}");
            for stranger in 1..capacity as u128 {
                seated(table.join(ask(100 + stranger, 0), 0, Gate::Open));
            }
            let full = table.join(
                Ask {
                    may_wait: false,
                    ..ask(99, 0)
                },
                9,
                Gate::Open,
            );
            assert_eq!(
                full,
                Joined::Refused {
                    holder: 9,
                    refusal: Refusal::Full
                },
                "{name}"
            );
        }
    }
}

#[test]
fn a_late_request_of_an_older_connection_changes_nothing() {
    let mut table = SlotTable::new(1);
    let lease = seated(table.join(ask(7, 5), "new", Gate::Open));
    table.read(lease, Readiness::Live);
    for generation in [0, 4, 5] {
        let joined = table.join(ask(7, generation), "old", Gate::Open);
        let refusal = Refusal::Stale { newest: 5 };
        assert_eq!(
            joined,
            Joined::Refused {
                holder: "old",
                refusal
            }
        );
    }
    assert!(matches!(table.slots().next(), Some((_, Slot::Live { .. }))));
    // The same among those who wait.
    let place = |joined: Joined<&'static str>| matches!(joined, Joined::Waiting { place: 1, .. });
    assert!(place(table.join(ask(8, 3), "waits", Gate::Open)));
    let joined = table.join(ask(8, 2), "older", Gate::Open);
    assert!(matches!(
        joined,
        Joined::Refused {
            refusal: Refusal::Stale { newest: 3 },
            ..
        }
    ));
    let joined = table.join(ask(8, 4), "newer", Gate::Open);
    assert_eq!(
        joined,
        Joined::Waiting {
            place: 1,
            replaced: Some("waits")
        }
    );
}

#[test]
fn what_is_said_about_an_old_lease_does_not_reach_the_new_holder() {
    let mut table = SlotTable::new(1);
    let old = seated(table.join(ask(1, 0), "old", Gate::Open));
    table.read(old, Readiness::Live);
    assert_eq!(table.close(old, CloseReason::HungUp), Some("old"));
    settle(&mut table);
    let new = seated(table.join(ask(2, 0), "new", Gate::Open));
    assert_eq!(old.slot, new.slot);
    let before: Vec<_> = table.slots().collect();
    table.read(old, Readiness::Live);
    table.stepped(old);
    assert_eq!(table.holder_mut(old), None);
    assert_eq!(table.close(old, CloseReason::PeerGone), None);
    assert_eq!(table.slots().collect::<Vec<_>>(), before);
    assert_eq!(table.holder_mut(new), Some(&mut "new"));
}

#[test]
fn closing_one_row_touches_only_that_row() {
    let mut table = SlotTable::new(3);
    let leases: Vec<_> = (0..3)
        .map(|session| seated(table.join(ask(session, 0), session, Gate::Open)))
        .collect();
    leases
        .iter()
        .for_each(|&lease| table.read(lease, Readiness::Live));
    let before: Vec<_> = table.slots().collect();
    assert_eq!(
        table.close(leases[1], CloseReason::ListenerTooSlow),
        Some(1)
    );
    for row in [0, 2] {
        assert_eq!(table.slots().nth(row), Some(before[row]));
    }
    let mut plan = TickPlan::default();
    table.plan(&mut plan);
    assert_eq!(plan.live, [leases[0].slot, leases[2].slot]);
}

#[test]
fn a_full_house_queues_in_order_and_refuses_the_rest() {
    let mut table = SlotTable::new(1);
    let first = seated(table.join(ask(0, 0), 0, Gate::Open));
    for session in 1..=WAITING_MAX as u128 {
        let joined = table.join(ask(session, 0), session, Gate::Open);
        assert_eq!(
            joined,
            Joined::Waiting {
                place: session as u32,
                replaced: None
            }
        );
    }
    let joined = table.join(ask(99, 0), 99, Gate::Open);
    assert_eq!(
        joined,
        Joined::Refused {
            holder: 99,
            refusal: Refusal::Full
        }
    );
    table.close(first, CloseReason::HungUp);
    table.sweep(|_| {});
    assert!(
        !table.promote(Gate::TooSlow, |_, _| {}),
        "no room in time, though there is a row"
    );
    let mut moved = Vec::new();
    assert!(table.promote(Gate::Open, |_, &mut session| moved.push(session)));
    assert_eq!(moved, [1]);
    assert_eq!(table.waiters_mut().next(), Some((1, &mut 2)));
    assert_eq!(table.waiting(), WAITING_MAX - 1);
}

#[test]
fn a_closed_gate_keeps_strangers_out_and_lets_a_session_come_back() {
    for gate in [Gate::TooSlow, Gate::Draining] {
        let mut table = SlotTable::new(2);
        let lease = seated(table.join(ask(1, 0), 10, Gate::Open));
        table.read(lease, Readiness::Live);
        let joined = table.join(ask(2, 0), 20, gate);
        assert_eq!(
            joined,
            Joined::Refused {
                holder: 20,
                refusal: Refusal::Gate(gate)
            }
        );
        let Joined::Seated {
            lease: newer,
            replaced: Some(10),
            vacate: true,
        } = table.join(ask(1, 1), 11, gate)
        else {
            panic!("{gate:?}")
        };
        assert_eq!(newer.slot, lease.slot);
        assert_ne!(newer.epoch, lease.epoch);
    }
}

#[test]
fn prompts_are_read_in_turns() {
    let mut table = SlotTable::new(3);
    for session in 0..3 {
        seated(table.join(ask(session, 0), (), Gate::Open));
    }
    let turns: Vec<_> = (0..6)
        .filter_map(|_| {
            let (lease, _) = table.next_to_read()?;
            table.read(lease, Readiness::Prefill { chunks_left: 9 });
            Some(lease.slot.row())
        })
        .collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    assert_eq!(SlotTable::<()>::new(2).next_to_read(), None);
}

#[test]
fn an_hour_of_calls_leaves_every_slot_free() {
    const TICKS_AN_HOUR: u64 = 45_000;
    let mut table = SlotTable::new(8);
    let mut pace = Pace::start(0);
    let mut plan = TickPlan::default();
    let (mut calls, mut stepped) = (0u64, 0u64);
    for tick in 0..TICKS_AN_HOUR {
        pace.begin(pace.due_us());
        // A holder is the tick at which it hangs up.
        let observe = |&until: &u64| {
            if tick >= until {
                Peer::HungUp
            } else {
                Peer::Life
            }
        };
        table.tick_peers(observe, |_, _| {});
        settle(&mut table);
        if tick % 97 == 0 && tick + 2_000 < TICKS_AN_HOUR {
            calls += 1;
            table.join(ask(tick.into(), 0), tick + 300 + tick % 1_000, Gate::Open);
        }
        if let Some((lease, _)) = table.next_to_read() {
            table.read(lease, Readiness::Live);
        }
        table.plan(&mut plan);
        stepped += plan.live.len() as u64;
    }
    assert_eq!(pace.due_us(), TICKS_AN_HOUR * TICK_US);
    assert!(
        calls > 400 && stepped > 300 * calls,
        "{calls} calls, {stepped} rows stepped"
    );
    assert!(table.is_empty());
    assert!(table.slots().all(|(_, slot)| slot == Slot::Free));
}

#[derive(Clone, Debug)]
enum Op {
    Join {
        session: u128,
        generation: u32,
        may_wait: bool,
        gate: Gate,
    },
    Read {
        live: bool,
    },
    Close {
        row: usize,
    },
    CloseUnseated {
        row: usize,
    },
    Tick {
        gone: u32,
    },
    Sweep,
    Promote {
        gate: Gate,
    },
    CloseWaiting,
}

fn any_op() -> impl Strategy<Value = Op> {
    let gate =
        || prop_oneof![4 => Just(Gate::Open), 1 => Just(Gate::TooSlow), 1 => Just(Gate::Draining)];
    prop_oneof![
        6 => (0u128..6, 0u32..4, any::<bool>(), gate()).prop_map(
            |(session, generation, may_wait, gate)| Op::Join { session, generation, may_wait, gate }),
        4 => any::<bool>().prop_map(|live| Op::Read { live }),
        1 => (0usize..4).prop_map(|row| Op::Close { row }),
        1 => (0usize..4).prop_map(|row| Op::CloseUnseated { row }),
        2 => (0u32..8).prop_map(|gone| Op::Tick { gone }),
        3 => Just(Op::Sweep),
        2 => gate().prop_map(|gate| Op::Promote { gate }),
        1 => Just(Op::CloseWaiting),
    ]
}

/// The holder of one join: who it is, and a number of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Token {
    session: u128,
    generation: u32,
    id: u32,
}

proptest! {
    #[test]
    fn nobody_is_lost_and_no_older_connection_ever_displaces_a_newer_one(
        capacity in 1usize..4,
        ops in prop::collection::vec(any_op(), 1..120),
    ) {
        let mut table = SlotTable::new(capacity);
        let mut returned = Vec::new();
        let mut engine = vec![false; capacity];
        let mut joins = 0;
        for op in ops {
            match op {
                Op::Join { session, generation, may_wait, gate } => {
                    let token = Token { session, generation, id: joins };
                    joins += 1;
                    let ask = Ask { session: SessionKey(session), generation, may_wait };
                    match table.join(ask, token, gate) {
                        Joined::Seated { lease, replaced, vacate } => {
                            prop_assert_eq!(vacate, engine[lease.slot.row()]);
                            engine[lease.slot.row()] = false;
                            if let Some(old) = replaced {
                                prop_assert!(old.session == session && old.generation < generation);
                            }
                            returned.extend(replaced);
                        }
                        Joined::Waiting { replaced, .. } => {
                            if let Some(old) = replaced {
                                prop_assert!(old.session == session && old.generation < generation);
                            }
                            returned.extend(replaced);
                        }
                        Joined::Refused { holder, .. } => {
                            prop_assert_eq!(holder, token);
                            returned.push(holder);
                        }
                    }
                }
                Op::Read { live } => {
                    if let Some((lease, _)) = table.next_to_read() {
                        engine[lease.slot.row()] = true;
                        let readiness = if live {
                            Readiness::Live
                        } else {
                            Readiness::Prefill { chunks_left: 2 }
                        };
                        table.read(lease, readiness);
                    }
                }
                Op::Close { row } => {
                    let lease = table.slots().nth(row).and_then(|(_, slot)| slot.lease());
                    if let Some(lease) = lease {
                        returned.extend(table.close(lease, CloseReason::HungUp));
                    }
                }
                Op::CloseUnseated { row } => {
                    let lease = table.slots().nth(row).and_then(|(_, slot)| slot.lease());
                    if let Some(lease) = lease {
                        returned.extend(table.close_unseated(lease, CloseReason::HungUp));
                    }
                }
                Op::Tick { gone } => table.tick_peers(
                    |token| if token.id % 8 == gone { Peer::HungUp } else { Peer::Nothing },
                    |token, _| returned.push(token),
                ),
                Op::Sweep => table.sweep(|slot| {
                    assert!(engine[slot.row()], "vacated and not seated");
                    engine[slot.row()] = false;
                }),
                Op::Promote { gate } => {
                    table.promote(gate, |_, _| {});
                }
                Op::CloseWaiting => table.close_waiting(|token| returned.push(token)),
            }
            let inside: Vec<Token> = table.rows.iter().flat_map(|row| &row.holder)
                .chain(table.waiting.iter().map(|waiter| &waiter.holder))
                .map(|holder| holder.payload)
                .collect();
            let mut all: Vec<u32> = inside.iter().chain(&returned).map(|token| token.id).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..joins).collect::<Vec<_>>(), "each holder is in one place");
            let mut sessions: Vec<_> = inside.iter().map(|token| token.session).collect();
            sessions.sort_unstable();
            sessions.dedup();
            prop_assert_eq!(sessions.len(), inside.len(), "one seat a session");
            for (row, &in_engine) in table.rows.iter().zip(&engine) {
                prop_assert_eq!(row.slot.seated(), in_engine);
                let held = matches!(row.slot, Slot::Queued { .. } | Slot::Prefill { .. } | Slot::Live { .. });
                prop_assert_eq!(held, row.holder.is_some());
            }
        }
        table.close_all(CloseReason::ServerStopping, |token| returned.push(token));
        table.sweep(|_| {});
        prop_assert_eq!(returned.len() as u32, joins);
        prop_assert!(table.slots().all(|(_, slot)| slot == Slot::Free), "no slot is lost");
    }
}
