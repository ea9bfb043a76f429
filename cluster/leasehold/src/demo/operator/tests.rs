//! The careful operator's word about a call of which nobody can say what became of it.

use leasehold_json::{AcceptedJson, Digest};
use rusqlite::{Connection, params};

use super::*;
use crate::demo::clerk::{CLOSE, LOOKUP, REFUND};

const RUN: &str = "order-9007199254740993";
const LONG_AGO: i64 = 1_000;

fn books(folder: &Path) -> (PathBuf, Connection) {
    let path = folder.join("payments.db");
    let books = Connection::open(&path).unwrap();
    let schema = "CREATE TABLE requests (run TEXT, step TEXT, deadline INTEGER);
        CREATE TABLE refunds (id INTEGER PRIMARY KEY, order_id TEXT, amount TEXT, currency TEXT, run TEXT, step TEXT);
        CREATE TABLE cases (id INTEGER PRIMARY KEY, order_id TEXT, decision TEXT, run TEXT, step TEXT);";
    books.execute_batch(schema).unwrap();
    (path, books)
}

fn question(tool: &str, asked_at: i64) -> QuestionView {
    let run = RunId::new(RUN).unwrap();
    QuestionView {
        approval: serde_json::from_value(serde_json::json!("2-0.1")).unwrap(),
        step: Some("2-0".parse().unwrap()),
        hash: Digest::of(b""),
        question: Question::InterruptedSideEffect {
            attempt: serde_json::from_value(serde_json::json!(1)).unwrap(),
            evidence: Vec::new(),
        },
        tool: tool.to_owned(),
        arguments: None,
        asked_at,
        expires_at: None,
        state: "open".to_owned(),
        decision: None,
        by: None,
        run,
    }
}

#[test]
fn what_stands_in_the_books_is_recorded_digit_for_digit() {
    let folder = tempfile::tempdir().unwrap();
    let (path, books) = books(folder.path());
    let row = params![RUN, "2-0"];
    books
        .execute("INSERT INTO refunds VALUES (7, '9007199254740993', '1234567890123456.70', 'EUR', ?1, ?2)", row)
        .unwrap();
    books
        .execute(
            "INSERT INTO cases VALUES (3, '9007199254740993', 'refunded', ?1, ?2)",
            row,
        )
        .unwrap();
    let recorded = |tool| match look_it_up(&path, &question(tool, i64::MAX)).unwrap() {
        Some(Decision::RecordDone { result }) => result,
        other => panic!("{other:?}"),
    };
    let refund = r#"{"refund_id":"rf-7","order_id":9007199254740993,"amount":1234567890123456.70,"currency":"EUR"}"#;
    assert_eq!(recorded(REFUND), AcceptedJson::check_str(refund).unwrap());
    assert_eq!(
        recorded(CLOSE).as_str(),
        r#"{"case_id":"case-3","order_id":9007199254740993,"decision":"refunded"}"#
    );
}

#[test]
fn what_can_no_longer_happen_and_did_not_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, books) = books(folder.path());
    assert_eq!(
        look_it_up(&path, &question(REFUND, LONG_AGO)).unwrap(),
        Some(Decision::RunAgain)
    );
    books
        .execute(
            "INSERT INTO requests VALUES (?1, '2-0', ?2)",
            params![RUN, LONG_AGO],
        )
        .unwrap();
    assert_eq!(
        look_it_up(&path, &question(REFUND, LONG_AGO)).unwrap(),
        Some(Decision::RunAgain)
    );
    // Another step of the same run, and another tool, say nothing.
    books
        .execute(
            "INSERT INTO refunds VALUES (7, '1', '1', 'EUR', ?1, '4-0')",
            params![RUN],
        )
        .unwrap();
    assert_eq!(
        look_it_up(&path, &question(REFUND, LONG_AGO)).unwrap(),
        Some(Decision::RunAgain)
    );
    assert_eq!(
        look_it_up(&path, &question(LOOKUP, LONG_AGO)).unwrap(),
        Some(Decision::RunAgain)
    );
}

#[test]
fn what_may_still_happen_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (path, books) = books(folder.path());
    let now = SystemClock.now().wall;
    assert_eq!(
        look_it_up(&path, &question(REFUND, now)).unwrap(),
        None,
        "a request may be on its way"
    );
    books
        .execute(
            "INSERT INTO requests VALUES (?1, '2-0', ?2)",
            params![RUN, now + 60_000],
        )
        .unwrap();
    assert_eq!(
        look_it_up(&path, &question(REFUND, LONG_AGO)).unwrap(),
        None,
        "the request's deadline has not passed"
    );
}
