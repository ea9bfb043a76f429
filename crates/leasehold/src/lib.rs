//! Leasehold, as one crate to depend on: runs of tool-calling agents that survive their process and know what their tools did.
//!
//! Nothing is defined here. Each module is one crate of the workspace under a shorter name; what a first program needs stands at the top.
//!
//! # The tour
//!
//! A tool is an async function. It is told who calls (the [`Call`]), and gives back bytes or says what its failure means:
//!
//! ```
//! use leasehold::{Call, ToolError, ToolOutput};
//!
//! async fn greet(call: Call) -> Result<ToolOutput, ToolError> {
//!     let name: String = call
//!         .arguments
//!         .member("name")
//!         .and_then(|name| name.parse().ok())
//!         // Nothing was done yet, and that is worth saying: the agent simply decides anew.
//!         .ok_or_else(|| ToolError::nothing_happened("name is missing"))?;
//!     Ok(ToolOutput::new(format!(r#"{{"greeting":"hello, {name}"}}"#)))
//! }
//! ```
//!
//! Its [`ToolSpec`] says what the agent reads, what its arguments look like, and, with the class, what recovery may do with it. A registry
//! checks all tools together:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use leasehold::{Origin, Registered, Registry, RustTool, SideEffect, ToolSpec};
//! # use leasehold::{Call, ToolError, ToolOutput};
//! # async fn greet(_: Call) -> Result<ToolOutput, ToolError> { Ok(ToolOutput::default()) }
//!
//! let spec = ToolSpec::new(
//!     "greet",
//!     "Greets one person. Changes nothing; call it as often as you like.",
//!     r#"{"type":"object","properties":{"name":{"type":"string","description":"Who."}},"required":["name"],"additionalProperties":false}"#,
//!     SideEffect::ReadOnly,
//!     Duration::from_secs(2),
//! );
//! let greet = Registered::new(spec, Origin::Rust, Arc::new(RustTool::new(greet)));
//! let tools = Registry::assemble(vec![greet]).map_err(|errors| format!("{errors:?}"))?;
//! assert!(tools.get("greet").is_some());
//! # Ok::<(), String>(())
//! ```
//!
//! The whole program: a data folder, the runtime on it, and one run whose agent follows a script. The script stands in the run's input, so
//! no model is needed; [`ScriptAgent`] plays its decisions one turn at a time and completes with what it saw last.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use leasehold::{
//!     Agents, Call, Clock, DefaultPolicy, EmbeddedStore, Ids, LogbookOptions, OpenOptions, Origin, RandomIds, Registered, Registry,
//!     RunId, Runtime, RuntimeOptions, RustTool, ScriptAgent, SideEffect, SledLogbook, Status, Submission, SystemClock, ToolError,
//!     ToolOutput, ToolSpec, Until, WorkerId,
//! };
//! use leasehold::{json::AcceptedJson, protocol};
//!
//! async fn greet(call: Call) -> Result<ToolOutput, ToolError> {
//!     let name: Option<String> = call.arguments.member("name").and_then(|name| name.parse().ok());
//!     let name = name.ok_or_else(|| ToolError::nothing_happened("name is missing"))?;
//!     Ok(ToolOutput::new(format!(r#"{{"greeting":"hello, {name}"}}"#)))
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec = ToolSpec::new(
//!     "greet",
//!     "Greets one person. Changes nothing; call it as often as you like.",
//!     r#"{"type":"object","properties":{"name":{"type":"string","description":"Who."}},"required":["name"],"additionalProperties":false}"#,
//!     SideEffect::ReadOnly,
//!     Duration::from_secs(2),
//! );
//! let greet = Registered::new(spec, Origin::Rust, Arc::new(RustTool::new(greet)));
//! let tools = Registry::assemble(vec![greet]).map_err(|errors| format!("{errors:?}"))?;
//!
//! // One folder holds everything. A second process on it is refused for as long as this one lives.
//! let folder = tempfile::tempdir()?;
//! let (session, now) = (RandomIds.session()?, SystemClock.now().wall);
//! let store = EmbeddedStore::open(folder.path(), OpenOptions { session: session.clone(), now })?;
//! let worker = WorkerId::new("local")?;
//! let logbook = SledLogbook::open(store.logbook_folder(&worker), LogbookOptions { worker, now })?.logbook;
//!
//! let mut agents = Agents::new();
//! agents.register(ScriptAgent)?;
//! let cluster = store.cluster().clone();
//! let runtime = Runtime::start(RuntimeOptions::new(
//!     Arc::new(store),
//!     Arc::new(logbook),
//!     Arc::new(tools),
//!     Arc::new(DefaultPolicy),
//!     agents,
//!     cluster,
//!     session,
//! )?)
//! .await?;
//!
//! let run = RunId::new("greet-ada")?;
//! let script = r#"{"script":[{"kind":"tool_calls","calls":[{"id":"c1","tool":"greet","arguments":{"name":"Ada"}}]}]}"#;
//! runtime
//!     .submit(&Submission {
//!         v: protocol::WIRE_VERSION,
//!         run: run.clone(),
//!         client: protocol::ClientId::new("tour")?,
//!         agent: "script".into(),
//!         goal: "greet Ada".into(),
//!         input: Some(AcceptedJson::check_str(script)?),
//!         tools: vec!["greet".into()],
//!         limits: Default::default(),
//!     })
//!     .await?;
//!
//! // Durable from here on: whatever happens to this process, another one on the folder would finish it.
//! let state = runtime.wait(&run, Until::Ended).await?.ok_or("the run is gone")?;
//! let ending = state.ending.ok_or("the run has not ended")?;
//! assert_eq!(ending.status, Status::Completed);
//! runtime.drain(Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```
//!
//! From there: a tool that changes something wants a probe (`docs/guide/writing-a-tool.md`), a call that a person should see wants a
//! [`RulePolicy`], and a model takes the script's place behind the [`Agent`] trait.

pub use leasehold_actors as actors;
pub use leasehold_agents as agents;
pub use leasehold_embedded as embedded;
pub use leasehold_json as json;
pub use leasehold_protocol as protocol;
pub use leasehold_store as store;
pub use leasehold_tools as tools;
pub use leasehold_workers as workers;

pub use leasehold_actors::{
    Clock, Drained, Ids, RandomIds, Runtime, RuntimeOptions, SystemClock, Until,
};
pub use leasehold_agents::{Agent, AgentError, Agents, FnAgent, ScriptAgent};
pub use leasehold_embedded::{EmbeddedStore, LogbookOptions, OpenOptions, SledLogbook};
pub use leasehold_protocol::{
    DefaultPolicy, Limits, Policy, RulePolicy, RunId, Status, Submission, WorkerId,
};
pub use leasehold_tools::{
    Call, Origin, ProbeAnswer, ProbeError, ProbeKind, ProbeQuestion, Registered, Registry,
    SideEffect, Tool, ToolError, ToolOutput, ToolSpec,
};
pub use leasehold_workers::{CommandTool, HttpClient, HttpTool, RustTool};
