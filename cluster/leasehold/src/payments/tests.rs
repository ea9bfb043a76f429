//! The service as its clients see it, over real connections, and its books as a checker sees them.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

const CSV: &str = "order_id,customer,email,item,note,amount,currency,channel,status,paid_at\r\n\
    9007199254740993,\"Zoë \"\"Z\"\" Ü\",,\"a,b\",\"two\r\nlines\",100.10,EUR,web,paid,\r\n\
    9007199254740992,محمد,,,,5,JPY,legacy,paid,\r\n\
    7,Ann,,,,1.250,KWD,web,chargeback,\r\n";

struct Service {
    folder: TempDir,
    address: SocketAddr,
}

impl Service {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("orders.csv"), CSV).unwrap();
        let args = PaymentsArgs {
            db: folder.path().join("payments.db"),
            orders: folder.path().join("orders.csv"),
            map: ColumnMap::default(),
            listen: "127.0.0.1:0".parse().unwrap(),
        };
        let (doors, desk) = open(&args).unwrap();
        let address = doors.address().unwrap();
        // Ends with the test's runtime.
        tokio::task::spawn_local(server::serve(doors, desk));
        Self { folder, address }
    }

    async fn connect(&self, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The whole answer, head and body; or the connection's error.
    async fn post(&self, path: &str, headers: &str, body: &str) -> std::io::Result<String> {
        let mut stream = self.connect(path, headers, body).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn refund(&self, key: &str, deadline: i64) -> String {
        self.post("/tools/refund_order", &headers(key, deadline), REFUND)
            .await
            .unwrap()
    }

    fn count(&self, sql: &str) -> i64 {
        let books = Connection::open(self.folder.path().join("payments.db")).unwrap();
        books.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

const REFUND: &str = r#"{"order_id":9007199254740993,"amount":100.10,"currency":"EUR"}"#;

fn headers(key: &str, deadline: i64) -> String {
    format!(
        "Idempotency-Key: {key}\r\nLeasehold-Run: r%C3%A9\r\nLeasehold-Step: 2-0\r\nLeasehold-Attempt: 3\r\nLeasehold-Epoch: 4\r\n\
         Leasehold-Seconds-Left: 2\r\nLeasehold-Deadline-Unix-Ms: {deadline}\r\n"
    )
}

fn soon() -> i64 {
    unix_ms() + 60_000
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

fn question(key: &str, arguments: &str) -> String {
    format!(
        r#"{{"idempotency_key":"{key}","run":"r","step":"2-0","attempt":1,"arguments":{arguments}}}"#
    )
}

async fn local<F: Future>(test: F) -> F::Output {
    tokio::task::LocalSet::new().run_until(test).await
}

#[tokio::test]
async fn the_lookup_gives_amount_and_id_digit_for_digit() {
    local(async {
        let service = Service::start();
        let answer = service.post("/tools/lookup_order", "", r#"{"order_id":9007199254740993}"#).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let text = body(&answer);
        assert!(text.contains(r#""order_id":9007199254740993,"amount":100.10,"currency":"EUR","customer":"Zoë \"Z\" Ü""#), "{text}");
        assert!(text.contains(r#""note":"two\r\nlines""#) && text.ends_with(r#""refundable":true}"#), "{text}");
        assert!(!text.contains("email"), "{text}");
        let neighbour = service.post("/tools/lookup_order", "", r#"{"order_id":9007199254740992}"#).await.unwrap();
        assert!(body(&neighbour).contains("محمد"), "{neighbour}");
    })
    .await;
}

#[tokio::test]
async fn a_second_request_for_a_key_pays_twice_and_every_request_is_written_down() {
    local(async {
        let service = Service::start();
        let first = service.refund("k", soon()).await;
        assert_eq!(body(&first), r#"{"refund_id":"rf-1","order_id":9007199254740993,"amount":100.10,"currency":"EUR"}"#);
        assert!(service.refund("k", soon()).await.contains("rf-2"));
        assert_eq!(service.count("SELECT count(*) FROM refunds WHERE key = 'k' AND amount = '100.10' AND order_id = '9007199254740993' AND run = 'ré' AND step = '2-0' AND attempt = 3"), 2);
        assert_eq!(service.count("SELECT count(*) FROM requests JOIN refunds ON requests.id = refunds.applied WHERE requests.epoch = 4"), 2);
    })
    .await;
}

#[tokio::test]
async fn a_late_refund_is_refused_in_its_own_transaction() {
    local(async {
        let service = Service::start();
        let answer = service.refund("k", unix_ms() - 1).await;
        assert!(
            answer.starts_with("HTTP/1.1 409")
                && answer.contains("leasehold-effect: nothing_happened"),
            "{answer}"
        );
        assert_eq!(service.count("SELECT count(*) FROM refunds"), 0);
        assert_eq!(service.count("SELECT count(*) FROM requests"), 1);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_refunded_changes_nothing() {
    local(async {
        let service = Service::start();
        for (args, status) in [
            (r#"{"order_id":7,"amount":1.250,"currency":"KWD"}"#, "422"),
            (r#"{"order_id":8,"amount":1,"currency":"KWD"}"#, "404"),
            (
                r#"{"order_id":9007199254740993,"amount":100.11,"currency":"EUR"}"#,
                "422",
            ),
            (
                r#"{"order_id":9007199254740993,"amount":0,"currency":"EUR"}"#,
                "422",
            ),
            (
                r#"{"order_id":9007199254740993,"amount":1,"currency":"USD"}"#,
                "422",
            ),
            (r#"{"order_id":7,"order_id":7}"#, "400"),
            ("", "400"),
        ] {
            let answer = service
                .post("/tools/refund_order", &headers("k", soon()), args)
                .await
                .unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}"))
                    && answer.contains("leasehold-effect: nothing_happened"),
                "{args}: {answer}"
            );
        }
        let unnamed = service
            .post("/tools/refund_order", "", REFUND)
            .await
            .unwrap();
        assert!(unnamed.starts_with("HTTP/1.1 400"), "{unnamed}");
        assert_eq!(service.count("SELECT count(*) FROM refunds"), 0);
        assert_eq!(service.count("SELECT count(*) FROM requests"), 8);
    })
    .await;
}

#[tokio::test]
async fn the_probe_repeats_the_calls_result_and_knows_what_it_cannot_know() {
    local(async {
        let service = Service::start();
        let before = service
            .post("/probe/refund_order", "", &question("k", REFUND))
            .await
            .unwrap();
        assert_eq!(body(&before), r#"{"answer":"not_done"}"#);
        let paid = service.refund("k", soon()).await;
        let after = service
            .post("/probe/refund_order", "", &question("k", REFUND))
            .await
            .unwrap();
        assert_eq!(
            body(&after),
            format!(r#"{{"answer":"done","result":{}}}"#, body(&paid))
        );
        let other = r#"{"order_id":9007199254740993,"amount":1,"currency":"EUR"}"#;
        let conflict = service
            .post("/probe/refund_order", "", &question("k", other))
            .await
            .unwrap();
        assert!(
            body(&conflict).contains(r#""answer":"conflict""#),
            "{conflict}"
        );
        let legacy = service
            .post(
                "/probe/refund_order",
                "",
                &question("k", r#"{"order_id":9007199254740992}"#),
            )
            .await
            .unwrap();
        assert_eq!(
            body(&legacy),
            r#"{"answer":"unknown","detail":"legacy channel keeps no keys"}"#
        );
    })
    .await;
}

#[tokio::test]
async fn a_case_is_closed_and_probed_like_a_refund() {
    local(async {
        let service = Service::start();
        let args = r#"{"order_id":7,"decision":"refused"}"#;
        let closed = service
            .post("/tools/close_case", &headers("c", soon()), args)
            .await
            .unwrap();
        assert_eq!(
            body(&closed),
            r#"{"case_id":"case-1","order_id":7,"decision":"refused"}"#
        );
        let probed = service
            .post("/probe/close_case", "", &question("c", args))
            .await
            .unwrap();
        assert!(body(&probed).contains(body(&closed)), "{probed}");
    })
    .await;
}

async fn arm_fault(service: &Service, fault: &str) {
    let armed = service
        .post(
            "/faults",
            "",
            &format!(r#"{{"tool":"refund_order","fault":"{fault}","count":1}}"#),
        )
        .await
        .unwrap();
    assert!(armed.starts_with("HTTP/1.1 200"), "{armed}");
}

#[tokio::test]
async fn garbage_and_reset_come_after_the_effect_and_hit_once() {
    local(async {
        let service = Service::start();
        arm_fault(&service, "garbage").await;
        let garbage = service.refund("g", soon()).await;
        assert!(
            garbage.starts_with("HTTP/1.1 200") && garbage.contains("<html>"),
            "{garbage}"
        );
        arm_fault(&service, "reset").await;
        let reset = service
            .post("/tools/refund_order", &headers("r", soon()), REFUND)
            .await;
        assert_eq!(
            reset.unwrap_err().kind(),
            std::io::ErrorKind::ConnectionReset
        );
        assert!(service.refund("k", soon()).await.contains("rf-3"));
        assert_eq!(service.count("SELECT count(*) FROM refunds"), 3);
    })
    .await;
}

#[tokio::test]
async fn a_hang_before_pays_nothing_and_a_hang_after_has_paid() {
    local(async {
        let service = Service::start();
        for (fault, paid) in [("hang_before", 0), ("hang_after", 1)] {
            arm_fault(&service, fault).await;
            let requests = service.count("SELECT count(*) FROM requests");
            let mut silent = service
                .connect("/tools/refund_order", &headers(fault, soon()), REFUND)
                .await;
            let sql = if paid == 0 {
                "SELECT count(*) FROM requests"
            } else {
                "SELECT count(*) + (SELECT count(*) FROM refunds) - 1 FROM requests"
            };
            // The books are the only event that a silent service gives.
            while service.count(sql) == requests {
                tokio::task::yield_now().await;
            }
            let heard =
                tokio::time::timeout(std::time::Duration::from_millis(100), silent.read_u8()).await;
            assert!(heard.is_err(), "{fault}: {heard:?}");
            assert_eq!(service.count("SELECT count(*) FROM refunds"), paid);
        }
    })
    .await;
}

/// Where the child finds its folder and address; set only by the test that starts it.
const CHILD: &str = "LEASEHOLD_TEST_PAYMENTS_CHILD";

#[tokio::test]
#[ignore = "the child process of the test below"]
async fn child_that_serves() {
    let Ok(spec) = std::env::var(CHILD) else {
        return;
    };
    let (folder, address) = spec.split_once('|').unwrap();
    let folder = Path::new(folder);
    let args = PaymentsArgs {
        db: folder.join("payments.db"),
        orders: folder.join("orders.csv"),
        map: ColumnMap::default(),
        listen: address.parse().unwrap(),
    };
    run(args).await.unwrap();
}

fn start_child(folder: &Path, address: SocketAddr) -> (std::process::Child, SocketAddr) {
    use std::io::BufRead as _;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "payments::tests::child_that_serves",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD, format!("{}|{address}", folder.display()))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.find_map(|line| {
        Some(
            line.unwrap()
                .split_once("payments listening on ")?
                .1
                .to_owned(),
        )
    });
    // Its standard output stays open: a child that prints more must not die of it.
    std::mem::forget(lines);
    (child, ready.unwrap().parse().unwrap())
}

#[tokio::test]
async fn it_dies_as_told_keeps_its_books_and_comes_back_on_the_same_port() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("orders.csv"), CSV).unwrap();
    let (mut child, address) = start_child(folder.path(), "127.0.0.1:0".parse().unwrap());
    let service = Service { folder, address };
    for (fault, paid) in [("die_before", 0), ("die_after", 1)] {
        arm_fault(&service, fault).await;
        let answer = service
            .post("/tools/refund_order", &headers(fault, soon()), REFUND)
            .await;
        assert!(
            answer.as_ref().is_err() || answer.as_ref().is_ok_and(String::is_empty),
            "{answer:?}"
        );
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
        assert_eq!(service.count("SELECT count(*) FROM refunds"), paid);
        (child, _) = start_child(service.folder.path(), address);
    }
    assert!(service.refund("k", soon()).await.contains("rf-2"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(service.count("SELECT count(*) FROM requests"), 3);
}

#[test]
fn a_bad_file_gives_all_its_faults_with_line_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.csv");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(b"invoice_id,customer,total\n1,A,1.0\n01,B,2\n1,C,3\n2,D,1e\n3, ,4\n")
        .unwrap();
    let map: ColumnMap = "id=invoice_id, amount=total".parse().unwrap();
    let text = Orders::read(&path, &map).unwrap_err().to_string();
    for part in [
        "line 3: the id \"01\"",
        "line 4: the id 1 occurs twice",
        "line 5: the amount \"1e\"",
        "line 6: the customer is blank",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let missing = format!(
        "{:#}",
        Orders::read(&path, &ColumnMap::default()).unwrap_err()
    );
    assert!(missing.contains("no column `order_id`"), "{missing}");
    assert!("id".parse::<ColumnMap>().is_err() && "nope=1".parse::<ColumnMap>().is_err());
}

#[test]
fn a_foreign_file_without_currency_and_status_is_in_dollars_and_paid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.csv");
    std::fs::write(&path, "invoice_id,customer,total\n1,A,1.98\n2,B,0.00\n").unwrap();
    let orders = Orders::read(&path, &"id=invoice_id,amount=total".parse().unwrap()).unwrap();
    let [paid, free] = orders.rows() else {
        panic!("two rows")
    };
    assert_eq!((paid.currency.as_str(), paid.refusal()), ("USD", None));
    assert!(free.refusal().is_some());
}

#[test]
fn the_refund_desk_has_the_orders_that_its_readme_counts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/refund-desk/orders.csv");
    let orders = Orders::read(&path, &ColumnMap::default()).unwrap();
    let limit = |order: &Order| match order.currency.as_str() {
        "EUR" | "USD" => "100.00".parse().unwrap(),
        "JPY" => "15000".parse().unwrap(),
        "KWD" => "30.000".parse::<leasehold_json::Decimal>().unwrap(),
        other => panic!("{other}"),
    };
    let count =
        |test: &dyn Fn(&Order) -> bool| orders.rows().iter().filter(|order| test(order)).count();
    assert_eq!(orders.rows().len(), 240);
    assert_eq!(count(&|order| order.refusal().is_some()), 24);
    assert_eq!(
        count(&|order| order.refusal().is_none() && order.amount().unwrap() > limit(order)),
        30
    );
    assert_eq!(
        count(&|order| order
            .note
            .to_lowercase()
            .contains("customer withdrew the request")),
        15
    );
    assert_eq!(count(&|order| !order.keeps_keys()), 20);
    assert!(count(&|order| order.id.len() > 16) >= 2);
}

#[tokio::test]
async fn only_loopback_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let args = PaymentsArgs {
        db: folder.path().join("x.db"),
        orders: folder.path().join("x.csv"),
        map: ColumnMap::default(),
        listen: "0.0.0.0:0".parse().unwrap(),
    };
    let error = open(&args).map(|_| ()).unwrap_err();
    assert!(
        error.to_string().contains("not a loopback address"),
        "{error}"
    );
}
