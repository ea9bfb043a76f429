//! A data folder, tools with a ledger of their effects, and lives of a runtime on them.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_actors::{
    Clock, Ids, Place, Point, Points, RandomIds, Runtime, RuntimeOptions, SystemClock, Until,
};
use leasehold_agents::{Agents, FnAgent, ScriptAgent};
use leasehold_embedded::{EmbeddedStore, LogbookOptions, OpenError, OpenOptions, SledLogbook};
use leasehold_json::{AcceptedJson, Digest};
use leasehold_protocol::{
    ClientId, Commit, Event, Finding, Limits, Observation, OperatorId, Policy, PolicyRequest,
    RunId, RunState, Submission, Verdict, WIRE_VERSION, WorkerId,
};
use leasehold_tools::{
    Call, Origin, ProbeAnswer, ProbeError, ProbeKind, ProbeQuestion, Registered, Registry,
    SideEffect, Tool, ToolError, ToolOutput, ToolSpec,
};
use tempfile::TempDir;
use tokio::sync::Notify;

/// No test waits longer for anything: on a loaded machine a durable write can take a second.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What the tools did to the world: one entry per effect, by idempotency key.
#[derive(Default)]
pub struct Ledger(Mutex<Vec<(Digest, u32)>>);

impl Ledger {
    fn apply(&self, key: Digest, attempt: u32) {
        self.0.lock().unwrap().push((key, attempt));
    }
    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
    fn holds(&self, key: Digest) -> bool {
        self.0
            .lock()
            .unwrap()
            .iter()
            .any(|(applied, _)| *applied == key)
    }
}

/// One tool that does what its arguments say: `{"do": "pay" | ...}`.
struct Obedient {
    ledger: Arc<Ledger>,
    gate: Arc<Gate>,
}

/// Lets tests hold tools up.
#[derive(Default)]
pub struct Gate {
    open: AtomicBool,
    opened: Notify,
    pub entered: Notify,
}

impl Gate {
    pub fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        self.opened.notify_waiters();
    }
    async fn pass(&self) {
        self.entered.notify_one();
        loop {
            let opened = self.opened.notified();
            if self.open.load(Ordering::SeqCst) {
                return;
            }
            opened.await;
        }
    }
}

#[async_trait]
impl Tool for Obedient {
    async fn call(&self, call: Call) -> Result<ToolOutput, ToolError> {
        let order: String = call
            .arguments
            .member("do")
            .map(|word| word.parse().unwrap())
            .unwrap_or_default();
        let apply = || self.ledger.apply(call.idempotency_key, call.attempt);
        match order.as_str() {
            "refuse" => Err(ToolError::nothing_happened("not today")),
            "unsure" => Err(ToolError::may_have_happened("the line went dead")),
            "unclassified" => Err(ToolError::Unclassified("exit code 3".into())),
            "abort" => Err(ToolError::Abort {
                detail: "the house is on fire".into(),
            }),
            "panic" => panic!("the tool is broken"),
            "verbose" => Err(ToolError::nothing_happened("ä".repeat(2 << 20))),
            "garbage" => {
                apply();
                Ok(ToolOutput::new(&b"{\"a\":1,\"a\":2}"[..]))
            }
            "hang" => {
                apply();
                call.cancel.cancelled().await;
                Err(ToolError::may_have_happened("cancelled"))
            }
            "late" => {
                apply();
                call.cancel.cancelled().await;
                Ok(ToolOutput::new(&b"{\"late\":true}"[..]))
            }
            "gate" => {
                self.gate.pass().await;
                apply();
                Ok(ToolOutput::new(&b"{\"gate\":true}"[..]))
            }
            "large" => {
                apply();
                Ok(ToolOutput::new(format!("\"{}\"", "x".repeat(100_000))))
            }
            _ => {
                apply();
                Ok(ToolOutput::new(&b"{\"paid\":12345678901234567890}"[..]))
            }
        }
    }

    async fn probe(&self, question: ProbeQuestion) -> Result<ProbeAnswer, ProbeError> {
        Ok(if self.ledger.holds(question.idempotency_key) {
            ProbeAnswer::Done(b"{\"probed\":true}".to_vec())
        } else {
            ProbeAnswer::NotDone
        })
    }
}

/// Allows everything but what is called `asked`, which a person has to approve, and `denied`.
struct TestPolicy;

impl Policy for TestPolicy {
    fn identity(&self) -> String {
        "test@1".into()
    }
    fn judge(&self, request: &PolicyRequest, _: Option<&ToolSpec>) -> Result<Verdict, String> {
        Ok(match request.tool.as_str() {
            "asked" => Verdict::RequireApproval {
                approval_kind: "test".into(),
                capability: "act once".into(),
                presentation: request.arguments.clone(),
            },
            "denied" => Verdict::Deny {
                reason: "never".into(),
            },
            _ => Verdict::Allow,
        })
    }
}

/// Everything that outlives a process.
pub struct World {
    folder: TempDir,
    pub ledger: Arc<Ledger>,
    pub gate: Arc<Gate>,
}

impl World {
    pub fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            ledger: Arc::default(),
            gate: Arc::default(),
        }
    }

    fn tools(&self) -> Registry {
        let schema = r#"{"type":"object","properties":{"do":{"type":"string"},"n":{"type":"integer"}},"additionalProperties":false}"#;
        let tool = |name: &str, class, shape: fn(ToolSpec) -> ToolSpec| {
            let spec = ToolSpec::new(
                name,
                "Does what it is told.",
                schema,
                class,
                Duration::from_millis(400),
            );
            let works = Arc::new(Obedient {
                ledger: self.ledger.clone(),
                gate: self.gate.clone(),
            });
            Registered::new(shape(spec), Origin::Rust, works)
        };
        let remote = SideEffect::RemoteMutation;
        let slow = |spec: ToolSpec| ToolSpec {
            timeout_ms: 30_000,
            ..spec
        };
        Registry::assemble(vec![
            tool("look", SideEffect::ReadOnly, |spec| spec),
            tool("pay", remote, |spec| ToolSpec {
                timeout_ms: 30_000,
                ..spec
            }),
            tool("hasty", remote, |spec| spec),
            tool("asked", remote, slow),
            tool("denied", remote, |spec| spec),
            tool("close", SideEffect::LocalMutation, |spec| {
                spec.with_terminal(true)
            }),
            tool("abort", remote, |spec| spec.with_may_abort(true)),
            tool("probed", remote, |spec| ToolSpec {
                timeout_ms: 30_000,
                ..spec.with_probe(ProbeKind::Fencing)
            }),
            tool("single", remote, |spec| ToolSpec {
                timeout_ms: 30_000,
                ..spec.with_concurrency("one", 1)
            }),
        ])
        .unwrap()
    }

    /// A new life on the folder.
    pub async fn start(&self) -> Life {
        self.start_with(|_| {}).await
    }

    /// A new life, with other options.
    pub async fn start_with(&self, change: impl FnOnce(&mut RuntimeOptions)) -> Life {
        let session = RandomIds.session().unwrap();
        let now = SystemClock.now().wall;
        let store = match EmbeddedStore::open(
            self.folder.path(),
            OpenOptions {
                session: session.clone(),
                now,
            },
        ) {
            Ok(store) => store,
            Err(OpenError::Locked { .. }) => panic!("an earlier life still holds the folder"),
            Err(error) => panic!("{error}"),
        };
        let worker = WorkerId::new("local").unwrap();
        let logbook = SledLogbook::open(
            store.logbook_folder(&worker),
            LogbookOptions { worker, now },
        )
        .unwrap()
        .logbook;
        let mut agents = Agents::new();
        agents.register(ScriptAgent).unwrap();
        agents
            .register(FnAgent::new("panics", |_| panic!("the agent is broken")))
            .unwrap();
        let cluster = store.cluster().clone();
        let mut options = RuntimeOptions::new(
            Arc::new(store),
            Arc::new(logbook),
            Arc::new(self.tools()),
            Arc::new(TestPolicy),
            agents,
            cluster,
            session,
        )
        .unwrap();
        change(&mut options);
        Life {
            runtime: Runtime::start(options).await.unwrap(),
        }
    }

    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}

/// One life of a process.
pub struct Life {
    pub runtime: Runtime,
}

impl Life {
    /// Submits a scripted run.
    pub async fn submit(&self, run: &str, script: &str) -> RunId {
        let submission = submission(run, script);
        self.runtime.submit(&submission).await.unwrap();
        submission.run
    }

    pub async fn until(&self, run: &RunId, until: Until) -> RunState {
        match tokio::time::timeout(PATIENCE, self.runtime.wait(run, until)).await {
            Ok(Ok(state)) => state.unwrap(),
            Ok(Err(error)) => panic!("{error}"),
            Err(_) => panic!(
                "waited too long for {run}: {:?} {:#?}",
                self.runtime.status().await,
                self.events(run).await
            ),
        }
    }

    pub async fn ended(&self, run: &RunId) -> RunState {
        self.until(run, Until::Ended).await
    }

    pub async fn parked(&self, run: &RunId) -> RunState {
        self.until(run, Until::Parked).await
    }

    /// All events of the run, in order.
    pub async fn events(&self, run: &RunId) -> Vec<Event> {
        let journal = self.runtime.journal(run).await.unwrap();
        journal
            .iter()
            .flat_map(|commit| Commit::decode(commit.body.as_bytes()).unwrap().events)
            .collect()
    }

    pub async fn findings(&self, run: &RunId) -> Vec<Finding> {
        let finding = |event| match event {
            Event::Found { finding, .. } => Some(finding),
            _ => None,
        };
        self.events(run)
            .await
            .into_iter()
            .filter_map(finding)
            .collect()
    }

    pub async fn dispatched(&self, run: &RunId) -> usize {
        self.events(run)
            .await
            .iter()
            .filter(|event| matches!(event, Event::Dispatched { .. }))
            .count()
    }

    /// Ends the life as a crash would.
    pub async fn crash(self) {
        patient(self.runtime.abort()).await;
    }
}

pub async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .expect("waited too long")
}

pub fn submission(run: &str, script: &str) -> Submission {
    Submission {
        v: WIRE_VERSION,
        run: RunId::new(run).unwrap(),
        client: ClientId::new("tester").unwrap(),
        agent: "script".into(),
        goal: "show that it works".into(),
        input: Some(AcceptedJson::check_str(&format!("{{\"script\":[{script}]}}")).unwrap()),
        tools: [
            "look", "pay", "hasty", "asked", "denied", "close", "abort", "probed", "single",
        ]
        .map(String::from)
        .to_vec(),
        limits: Limits::default(),
    }
}

/// A decision with these calls: tool and what it is told to do.
pub fn calls(calls: &[(&str, &str)]) -> String {
    let calls: Vec<String> = calls
        .iter()
        .enumerate()
        .map(|(n, (tool, order))| format!(r#"{{"id":"{tool}-{order}-{n}","tool":"{tool}","arguments":{{"do":"{order}","n":{n}}}}}"#))
        .collect();
    format!(r#"{{"kind":"tool_calls","calls":[{}]}}"#, calls.join(","))
}

pub fn operator() -> OperatorId {
    OperatorId::new("olga").unwrap()
}

/// The observations of a run's last turn.
pub fn observations(state: &RunState) -> Vec<Observation> {
    state
        .turns
        .iter()
        .flat_map(|turn| turn.steps.iter())
        .filter_map(|step| step.observation.clone())
        .collect()
}

/// Stops for ever at one point, the n-th time it is reached.
pub struct StopAt {
    point: Point,
    left: Mutex<u32>,
    pub stopped: Notify,
}

impl StopAt {
    pub fn new(point: Point) -> Arc<Self> {
        Arc::new(Self {
            point,
            left: Mutex::new(1),
            stopped: Notify::new(),
        })
    }
}

#[async_trait]
impl Points for StopAt {
    fn wants(&self, point: Point) -> bool {
        point == self.point
    }
    async fn reached(&self, _: Point, _: Place<'_>) {
        let stop = {
            let mut left = self.left.lock().unwrap();
            *left = left.saturating_sub(1);
            *left == 0
        };
        if stop {
            self.stopped.notify_one();
            std::future::pending::<()>().await;
        }
    }
}
