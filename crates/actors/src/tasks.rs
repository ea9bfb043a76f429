//! Tracked tasks: whatever awaits, awaits here and not in an actor's handler, and a stop can wait for it.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Starts tasks, all of which are dropped at their next await when the token is cancelled.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    token: CancellationToken,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self {
            tracker: TaskTracker::new(),
            token: CancellationToken::new(),
        }
    }

    /// Tasks that end with these, and can be ended before them.
    pub(crate) fn child(&self) -> Self {
        Self {
            tracker: self.tracker.clone(),
            token: self.token.child_token(),
        }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let token = self.token.clone();
        let task = async move {
            token.run_until_cancelled(task).await;
        };
        self.tracker.spawn(task).abort_handle()
    }

    /// Something that [`ended`](Self::ended) waits for, like a task. An actor's state keeps one as its last field.
    pub(crate) fn presence(&self) -> TaskTrackerToken {
        self.tracker.token()
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    pub(crate) fn cancel(&self) {
        self.token.cancel();
    }

    /// Returns once no task and no presence is left.
    pub(crate) async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// Runs foreign code (a tool, an agent): a panic in it is an answer and not the end of its caller.
pub(crate) async fn caught<T>(foreign: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(foreign)
        .catch_unwind()
        .await
        .map_err(|panic| panic_text(&*panic))
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
