//! The plan keeps its promises for every seed.

use std::collections::BTreeSet;

use super::*;

/// Shaped like the example: 240 orders, 24 not refundable, 15 withdrawn, 20 without a probe.
fn orders() -> Vec<Traits> {
    (0..240)
        .map(|n| Traits {
            refundable: n % 10 != 0,
            withdrawn: n % 16 == 1,
            blind: n % 12 == 3,
        })
        .collect()
}

fn plain(count: usize) -> Vec<Traits> {
    vec![
        Traits {
            blind: false,
            withdrawn: false,
            refundable: true
        };
        count
    ]
}

fn kills(plan: &Plan) -> Vec<Kill> {
    plan.stages.iter().filter_map(|stage| stage.kill).collect()
}

fn name(kill: &Kill) -> &'static str {
    match kill {
        Kill::Stall(stall) => stall.point,
        Kill::Fault(fault) => fault.fault,
        Kill::After { who, .. } => match who {
            Who::Runtime => "runtime",
            Who::Nodes => "nodes",
            Who::Workers => "workers",
            Who::Servers => "servers",
            Who::Payments => "payments",
        },
    }
}

#[test]
fn the_kills_are_exactly_as_many_as_asked_for() {
    for seed in 0..20 {
        for count in [0, 1, 2, 7, 12, 17, 20, 40, 100] {
            assert_eq!(
                kills(&Plan::new(Made::OneProcess, seed, count, &orders())).len(),
                count,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn every_order_comes_exactly_once() {
    for seed in 0..20 {
        for (count, orders) in [
            (0, orders()),
            (1, orders()),
            (40, orders()),
            (40, plain(412)),
            (40, plain(3)),
            (5, Vec::new()),
        ] {
            let plan = Plan::new(Made::OneProcess, seed, count, &orders);
            let mut all: Vec<usize> = plan
                .stages
                .iter()
                .flat_map(|stage| stage.orders.clone())
                .collect();
            all.sort_unstable();
            assert_eq!(
                all,
                (0..orders.len()).collect::<Vec<_>>(),
                "seed {seed}, {count} kills"
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_plan_and_another_one_another() {
    assert_eq!(
        Plan::new(Made::OneProcess, 7, 40, &orders()),
        Plan::new(Made::OneProcess, 7, 40, &orders())
    );
    assert_ne!(
        Plan::new(Made::OneProcess, 7, 40, &orders()),
        Plan::new(Made::OneProcess, 8, 40, &orders())
    );
}

#[test]
fn from_twenty_kills_on_every_kind_occurs() {
    let all: BTreeSet<&str> = POINTS
        .iter()
        .map(|(point, _)| *point)
        .chain(["runtime", "payments", "die_before", "die_after"])
        .collect();
    for seed in 0..50 {
        let kinds: BTreeSet<&str> = kills(&Plan::new(Made::OneProcess, seed, 20, &orders()))
            .iter()
            .map(name)
            .collect();
        assert_eq!(kinds, all, "seed {seed}");
    }
}

#[test]
fn a_short_plan_begins_with_what_forces_the_ladder() {
    for seed in 0..20 {
        let kinds: BTreeSet<&str> = kills(&Plan::new(Made::OneProcess, seed, FIRST, &orders()))
            .iter()
            .map(name)
            .collect();
        for wanted in [
            "W3",
            "W5",
            "W6",
            "W8",
            "die_before",
            "die_after",
            "runtime",
            "payments",
        ] {
            assert!(
                kinds.contains(wanted),
                "seed {seed}: {wanted} is missing from {kinds:?}"
            );
        }
    }
}

#[test]
fn every_fault_that_kills_nobody_occurs_as_well() {
    for seed in 0..50 {
        let plan = Plan::new(Made::OneProcess, seed, 40, &orders());
        let faults: BTreeSet<&str> = plan
            .stages
            .iter()
            .filter_map(|stage| stage.mishap)
            .map(|fault| fault.fault)
            .collect();
        assert_eq!(
            faults,
            BTreeSet::from(["garbage", "hang_after", "hang_before", "reset"]),
            "seed {seed}"
        );
    }
}

#[test]
fn withdrawn_orders_wait_behind_orders_that_hold_every_slot() {
    for seed in 0..20 {
        let plan = Plan::new(Made::OneProcess, seed, 40, &orders());
        let first = &plan.stages[0];
        assert_eq!(plan.cancelled_in_queue.len(), 15 - LATE_WITHDRAWALS);
        assert!(first.orders.ends_with(&plan.cancelled_in_queue));
        assert_eq!(first.orders.len(), SLOTS + plan.cancelled_in_queue.len());
        assert_eq!(
            first.mishap,
            Some(Fault {
                tool: "lookup_order",
                fault: "hang_before",
                count: SLOTS
            })
        );
    }
}

#[test]
fn orders_without_a_probe_come_together_where_a_payment_is_orphaned() {
    for seed in 0..50 {
        let orders = orders();
        let plan = Plan::new(Made::OneProcess, seed, 40, &orders);
        let blind: Vec<&Stage> = plan.stages.iter().filter(|stage| stage.alone).collect();
        assert_eq!(blind.len(), BLIND_STAGES, "seed {seed}");
        for stage in blind {
            assert!(
                stage.orders.len() > 2 && stage.orders.iter().all(|order| orders[*order].blind)
            );
            assert!(matches!(
                stage.kill,
                Some(Kill::Stall(Stall {
                    point: "W5" | "W6" | "W7",
                    ..
                }))
            ));
        }
    }
}

#[test]
fn a_stall_is_within_what_its_stage_can_reach() {
    for seed in 0..20 {
        for stage in Plan::new(Made::OneProcess, seed, 40, &orders()).stages {
            if let Some(Kill::Stall(Stall { nth, .. })) = stage.kill {
                assert!(
                    nth >= 1 && nth <= 2 * stage.orders.len().max(1),
                    "seed {seed}: {nth} of {} orders",
                    stage.orders.len()
                );
            }
        }
    }
}

#[test]
fn a_cluster_loses_processes_of_every_kind_and_nothing_is_paused_without_one() {
    for seed in 0..50 {
        let plan = Plan::new(Made::Cluster, seed, 24, &orders());
        let victims: BTreeSet<Who> = kills(&plan).iter().map(|kill| kill.victim()).collect();
        let all = [Who::Nodes, Who::Workers, Who::Servers, Who::Payments];
        assert_eq!(victims, BTreeSet::from(all), "seed {seed}");
        let paused: Vec<Who> = plan.stages.iter().filter_map(|stage| stage.pause).collect();
        assert_eq!(paused.len(), 8);
        assert!(paused.contains(&Who::Nodes) && paused.contains(&Who::Workers));
    }
    let plan = Plan::new(Made::OneProcess, 1, 40, &orders());
    assert!(plan.stages.iter().all(|stage| stage.pause.is_none()));
}

#[test]
fn a_short_plan_of_a_cluster_kills_servers_nodes_and_workers() {
    for seed in 0..20 {
        let victims: BTreeSet<Who> = kills(&Plan::new(Made::Cluster, seed, FIRST, &orders()))
            .iter()
            .map(|kill| kill.victim())
            .collect();
        let all = [Who::Nodes, Who::Workers, Who::Servers, Who::Payments];
        assert_eq!(victims, BTreeSet::from(all), "seed {seed}");
    }
}
