//! What must make the demo fail makes it fail, and nothing else does.

use leasehold_checker::Violation;

use super::super::orders::OrderOf;
use super::super::plan::Traits;
use super::super::scene::Who;
use super::*;

fn order(id: &str, refundable: bool, withdrawn: bool) -> OrderOf {
    let traits = Traits {
        blind: true,
        withdrawn,
        refundable,
    };
    OrderOf {
        id: id.into(),
        amount: "9.90".into(),
        currency: "EUR".into(),
        customer: "A".into(),
        traits,
    }
}

fn job() -> Job {
    Job {
        orders: vec![
            order("1", true, false),
            order("2", false, false),
            order("3", true, true),
        ],
    }
}

fn paid(orders: &[&str]) -> BTreeMap<String, Vec<Paid>> {
    let mut paid: BTreeMap<String, Vec<Paid>> = BTreeMap::new();
    for order in orders {
        paid.entry((*order).to_owned()).or_default().push(Paid {
            amount: "9.90".into(),
            currency: "EUR".into(),
        });
    }
    paid
}

fn report() -> Report {
    let resolved = Resolved {
        adopted_outcome: 1,
        tombstone: 1,
        revoked: 1,
        probe_done: 1,
        probe_not_done: 1,
        operator: 1,
        superseded: 0,
        unknown: 0,
    };
    Report {
        orders: 3,
        expected: 1,
        applied: 1,
        duplicates: 0,
        excused: 0,
        lost: 0,
        unexpected: 0,
        unknown_applied: 0,
        paid_twice: 0,
        by_tool: Default::default(),
        runs: Runs {
            completed: 2,
            cancelled: 1,
            ..Runs::default()
        },
        takeovers: 4,
        orphans: 6,
        resolved,
        violations: Vec::new(),
        orphaned: Vec::new(),
    }
}

fn complaints(change: impl FnOnce(&mut Report), paid: &BTreeMap<String, Vec<Paid>>) -> Vec<String> {
    let (job, mut report) = (job(), report());
    change(&mut report);
    let mut kills = Tally::default();
    kills.add(Who::Runtime, 2);
    kills.add(Who::Payments, 1);
    let outcome = Outcome {
        job: &job,
        report: &report,
        paid,
        kills,
        pauses: Tally::default(),
        planned: 3,
        shown: Shown::EveryWay,
        troubles: Vec::new(),
        seed: 1,
        seconds: 1.0,
    };
    outcome.complaints()
}

#[test]
fn what_adds_up_gives_no_complaint_whether_or_not_a_withdrawn_order_was_paid() {
    assert_eq!(complaints(|_| {}, &paid(&["1"])), Vec::<String>::new());
    assert_eq!(complaints(|_| {}, &paid(&["1", "3"])), Vec::<String>::new());
}

#[test]
fn each_thing_that_does_not_add_up_is_one_sentence() {
    type Change = fn(&mut Report);
    let cases: [(Change, &str); 9] = [
        (
            |report| report.duplicates = 2,
            "2 refunds were paid a second time",
        ),
        (|report| report.lost = 1, "lost"),
        (|report| report.unexpected = 1, "unexpected"),
        (|report| report.paid_twice = 1, "paid twice"),
        (|report| report.runs.waiting = 1, "did not come to an end"),
        (|report| report.runs.failed = 1, "runs failed"),
        (
            |report| report.orders = 2,
            "3 orders were to be submitted, 2 were",
        ),
        (
            |report| report.resolved.probe_not_done = 0,
            "probe not done",
        ),
        (
            |report| {
                report.violations.push(Violation {
                    invariant: "I1".into(),
                    run: "order-1".into(),
                    text: "twice".into(),
                })
            },
            "invariant I1 is broken in run order-1: twice",
        ),
    ];
    for (change, part) in cases {
        let found = complaints(change, &paid(&["1"]));
        assert!(
            found.len() == 1 && found[0].contains(part),
            "{part}: {found:?}"
        );
    }
}

#[test]
fn the_orders_are_compared_with_the_books_themselves() {
    for (books, part) in [
        (paid(&[]), "order 1 is owed 1 refund and got 0"),
        (paid(&["1", "1"]), "order 1 is owed 1 refund and got 2"),
        (paid(&["1", "2"]), "order 2 is owed 0 refund and got 1"),
    ] {
        let found = complaints(|_| {}, &books);
        assert!(found.len() == 1 && found[0].contains(part), "{found:?}");
    }
    let other = BTreeMap::from([(
        "1".to_owned(),
        vec![Paid {
            amount: "9.9".into(),
            currency: "EUR".into(),
        }],
    )]);
    assert!(
        complaints(|_| {}, &other)[0].contains("is owed 9.90 EUR"),
        "digit for digit"
    );
}

#[test]
fn many_violations_are_cut_short_and_counted() {
    let found = complaints(
        |report| {
            let broken = Violation {
                invariant: "I7".into(),
                run: String::new(),
                text: "x".into(),
            };
            report.violations = vec![broken; 12];
        },
        &paid(&["1"]),
    );
    assert_eq!(found.len(), MAX_SHOWN + 1);
    assert_eq!(
        found.last().map(String::as_str),
        Some("and 7 more of this kind")
    );
}

#[test]
fn the_line_for_programs_begins_with_the_promised_names_in_order() {
    let (job, report, paid) = (job(), report(), paid(&["1"]));
    let mut kills = Tally::default();
    kills.add(Who::Runtime, 2);
    kills.add(Who::Payments, 1);
    let outcome = Outcome {
        job: &job,
        report: &report,
        paid: &paid,
        kills,
        pauses: Tally::default(),
        planned: 3,
        shown: Shown::EveryWay,
        troubles: Vec::new(),
        seed: 1,
        seconds: 12.34,
    };
    let line = outcome.line(Vec::new()).unwrap();
    let promised = [
        "orders",
        "expected",
        "applied",
        "duplicates",
        "lost",
        "runs",
        "kills",
        "takeovers",
        "orphans",
        "resolved",
        "seconds",
    ];
    let line = leasehold_json::AcceptedJson::check_str(&line).unwrap();
    let names: Vec<String> = line.members().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[..promised.len()], promised);
    assert_eq!(line.member("kills").unwrap().as_str(), "3");
}
