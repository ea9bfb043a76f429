//! Rust tools.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails the test"
)]

mod support;

use leasehold_tools::{Call, ProbeAnswer, ProbeError, ProbeQuestion, Tool, ToolError, ToolOutput};
use leasehold_workers::RustTool;
use support::{ARGUMENTS, call, question};

#[tokio::test]
async fn s14_a_closure_gets_the_call_and_its_answer_is_passed_on() {
    let echo = RustTool::new(async |call: Call| Ok(ToolOutput::new(call.arguments.as_bytes())));
    assert_eq!(
        echo.call(call()).await.unwrap().content,
        ARGUMENTS.trim().as_bytes()
    );
    assert_eq!(echo.probe(question()).await, Err(ProbeError::NoProbe));

    let abort = ToolError::Abort {
        detail: "stop".into(),
    };
    let given = abort.clone();
    let failing = RustTool::new(move |_| std::future::ready(Err(given.clone())))
        .with_probe(async |question: ProbeQuestion| Ok(ProbeAnswer::Unknown(question.run)));
    assert_eq!(failing.call(call()).await, Err(abort));
    assert_eq!(
        failing.probe(question()).await,
        Ok(ProbeAnswer::Unknown("r é/1".into()))
    );
}
