//! The server's side: accepts connections of its own user, answers requests from the runtime.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use leasehold_actors::{Answer, CommandError, Progress, Runtime, SubmitRefusal};
use leasehold_json::AcceptedJson;
use leasehold_protocol::RunId;
use leasehold_store::{Backend, StoreError};
use leasehold_tools::SideEffect;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_util::codec::{Framed, LinesCodec};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backing::Backing;
use super::wire::{
    Answered, Happening, Hello, MAX_REQUEST, Receipt, Refusal, RefusalCode, Reply, Request,
};
use crate::material::{Material, all_runs};
use crate::view::{IN_FLIGHT, RunSummary, RunView, open_steps, questions};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 128;
/// Dump lines that may wait for their reader.
const DUMP_BACKLOG: usize = 256;
/// Pause after a failed accept (out of file descriptors, mostly): long enough not to spin.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// What requests are answered from.
pub(crate) struct Desk {
    pub(crate) runtime: Runtime,
    pub(crate) hello: Hello,
    pub(crate) backing: Backing,
    /// What runs for as long as the desk is open.
    pub(crate) tasks: TaskTracker,
}

impl Desk {
    fn store(&self) -> &dyn Backend {
        &**self.runtime.store()
    }
}

/// A listening server.
pub(crate) struct Server {
    path: PathBuf,
    tasks: TaskTracker,
    stop: CancellationToken,
}

type Lines<S> = Framed<S, LinesCodec>;

/// What a connection is made of.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + Sync {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + Sync> Stream for S {}

impl Server {
    /// Listens in the data folder. The caller holds the folder's lock, so a socket that is there is a dead process's.
    pub(crate) fn start(folder: &Path, desk: Arc<Desk>) -> io::Result<Self> {
        let path = super::path(folder);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (address, _opened) = super::address(folder)?;
        let socket = UnixSocket::new_stream()?;
        socket.bind(&address)?;
        // Nobody can connect before `listen`.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let listener = socket.listen(BACKLOG)?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(accept(listener, desk, tasks.clone(), stop.clone()));
        Ok(Self { path, tasks, stop })
    }

    /// Takes the socket away and ends every connection.
    pub(crate) async fn stop(self) {
        let _ = std::fs::remove_file(&self.path);
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn accept(
    listener: UnixListener,
    desk: Arc<Desk>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if !is_own_user(&stream) {
            continue;
        }
        let (desk, stop) = (desk.clone(), stop.clone());
        tasks.spawn(async move {
            stop.run_until_cancelled(serve(stream, desk, &stop)).await;
        });
    }
}

fn is_own_user(stream: &UnixStream) -> bool {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == rustix::process::geteuid().as_raw() => true,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "a connection of another user was refused");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "a connection of an unknown user was refused");
            false
        }
    }
}

/// Answers the requests of one connection until it ends.
pub(super) async fn serve<S: Stream>(stream: S, desk: Arc<Desk>, stop: &CancellationToken) {
    let mut lines = Framed::new(stream, LinesCodec::new_with_max_length(MAX_REQUEST));
    while let Some(line) = lines.next().await {
        let request = line
            .map_err(|error| error.to_string())
            .and_then(|line| read(&line));
        let sent = match request {
            Ok(request) => answer(&mut lines, &desk, request, stop).await,
            Err(why) => {
                let refusal = Refusal::new(RefusalCode::BadRequest, why);
                let _ = send(&mut lines, &Reply::<()>::Refused(refusal)).await;
                return;
            }
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a client went away");
            return;
        }
    }
}

fn read(line: &str) -> Result<Request, String> {
    let json = AcceptedJson::check_str(line).map_err(|error| error.to_string())?;
    json.parse().map_err(|error| error.to_string())
}

async fn send<T: Serialize, S: Stream>(lines: &mut Lines<S>, reply: &Reply<T>) -> io::Result<()> {
    let text = serde_json::to_string(reply)?;
    lines.send(text).await.map_err(io::Error::other)
}

async fn answer<S: Stream>(
    lines: &mut Lines<S>,
    desk: &Desk,
    request: Request,
    stop: &CancellationToken,
) -> io::Result<()> {
    if let Some(refusal) = desk.backing.attend(desk, &request).await.err() {
        return send(lines, &Reply::<()>::Refused(refusal)).await;
    }
    match request {
        Request::Hello => send(lines, &Reply::Done(&desk.hello)).await,
        Request::Submit { submission } => {
            let submitted = desk.runtime.submit(&submission).await.map_err(of_submit);
            let receipt = submitted.map(|done| Receipt {
                run: done.run,
                inbox: done.inbox,
                repeated: done.repeated,
            });
            finish(lines, async { receipt }).await
        }
        Request::Decide { run, request } => {
            finish(lines, async {
                let answer = desk.runtime.decide(&run, &request).await;
                answer.map(answered).map_err(of_command)
            })
            .await
        }
        Request::Cancel { run, request } => {
            finish(lines, async {
                let answer = desk.runtime.cancel(&run, &request).await;
                answer.map(answered).map_err(of_command)
            })
            .await
        }
        Request::Runs => finish(lines, summaries(desk)).await,
        Request::Run { run } => finish(lines, view(desk, &run)).await,
        Request::Questions => finish(lines, open_questions(desk)).await,
        Request::Material { run } => {
            finish(lines, async {
                Material::read(desk.store(), &run).await.map_err(of_store)
            })
            .await
        }
        Request::WaitingFor { tool } => finish(lines, waiting_for(desk, &tool)).await,
        Request::Waiting => finish(lines, waiting_calls(desk)).await,
        Request::Watch { run } => watch(lines, desk, run, stop).await,
        Request::Dump => dump(lines, desk).await,
    }
}

async fn finish<T: Serialize, S: Stream>(
    lines: &mut Lines<S>,
    answer: impl Future<Output = Result<T, Refusal>>,
) -> io::Result<()> {
    match answer.await {
        Ok(answer) => send(lines, &Reply::Done(answer)).await,
        Err(refusal) => send(lines, &Reply::<()>::Refused(refusal)).await,
    }
}

async fn summaries(desk: &Desk) -> Result<Vec<RunSummary>, Refusal> {
    let quarantined = desk.runtime.status().await.quarantined;
    let mut summaries = Vec::new();
    for run in all_runs(desk.store()).await.map_err(of_store)? {
        if let Some(material) = Material::journal(desk.store(), &run)
            .await
            .map_err(of_store)?
        {
            let mut summary = RunSummary::of(&run, &material.state());
            summary.problem = summary.problem.or_else(|| quarantined.get(&run).cloned());
            summaries.push(summary);
        }
    }
    Ok(summaries)
}

async fn waiting_for(desk: &Desk, tool: &str) -> Result<Vec<RunSummary>, Refusal> {
    let mut known = desk.hello.tools.iter();
    let class = known
        .find(|spec| spec.name == tool)
        .map_or(SideEffect::Destructive, |spec| spec.side_effect);
    crate::waiting::calls_of(desk.store(), tool, class)
        .await
        .map_err(of_store)
}

async fn view(desk: &Desk, run: &RunId) -> Result<Option<RunView>, Refusal> {
    let material = Material::journal(desk.store(), run)
        .await
        .map_err(of_store)?;
    let Some(material) = material else {
        return Ok(None);
    };
    let mut view = RunView::of(run, &material.state());
    if view.summary.problem.is_none() {
        view.summary.problem = desk.runtime.status().await.quarantined.remove(run);
    }
    Ok(Some(view))
}

async fn open_questions(desk: &Desk) -> Result<Vec<crate::view::QuestionView>, Refusal> {
    let mut open = Vec::new();
    for run in all_runs(desk.store()).await.map_err(of_store)? {
        let material = Material::journal(desk.store(), &run)
            .await
            .map_err(of_store)?;
        let state = material.and_then(|material| material.state().ok());
        let asked = state.iter().flat_map(questions);
        open.extend(asked.filter(|question| question.is_open()));
    }
    Ok(open)
}

/// Calls that were dispatched and are not settled, per tool.
async fn waiting_calls(desk: &Desk) -> Result<BTreeMap<String, usize>, Refusal> {
    let mut waiting = BTreeMap::new();
    for head in desk.store().open_runs().await.map_err(of_store)? {
        let journal = Material::journal(desk.store(), &head.run);
        let state = journal
            .await
            .map_err(of_store)?
            .and_then(|read| read.state().ok());
        for step in state.iter().flat_map(open_steps) {
            if step.phase == IN_FLIGHT {
                *waiting.entry(step.tool).or_default() += 1;
            }
        }
    }
    Ok(waiting)
}

async fn watch<S: Stream>(
    lines: &mut Lines<S>,
    desk: &Desk,
    run: Option<RunId>,
    stop: &CancellationToken,
) -> io::Result<()> {
    let mut progress = desk.runtime.watch();
    send(lines, &Reply::Item(Happening::Subscribed)).await?;
    let is_wanted = |progress: &Progress| run.as_ref().is_none_or(|run| progress.run() == run);
    loop {
        let event = tokio::select! {
            event = progress.recv() => event,
            // Nothing is said on a connection that watches: this is its end.
            _ = lines.next() => return Ok(()),
            () = stop.cancelled() => Err(RecvError::Closed),
        };
        let happening = match event {
            Ok(event) if is_wanted(&event) => happening(event),
            Ok(_) => continue,
            Err(RecvError::Lagged(events)) => Happening::Missed { events },
            Err(RecvError::Closed) => return send(lines, &Reply::<()>::Done(())).await,
        };
        send(lines, &Reply::Item(happening)).await?;
    }
}

fn happening(progress: Progress) -> Happening {
    match progress {
        Progress::Committed { run, commit } => Happening::Committed { run, commit },
        Progress::Left { run, reason } => Happening::Left {
            run,
            reason: format!("{reason:?}"),
        },
        Progress::Quarantined { run, why } => Happening::Quarantined { run, why },
    }
}

async fn dump<S: Stream>(lines: &mut Lines<S>, desk: &Desk) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<String>(DUMP_BACKLOG);
    let backing = desk.backing.clone();
    let handle = tokio::runtime::Handle::current();
    // Dumps write as they read, and wait for their reader.
    let writing = tokio::task::spawn_blocking(move || {
        let mut out = LineSender {
            sender,
            partial: Vec::new(),
        };
        backing.dump(&handle, &mut out)
    });
    while let Some(line) = receiver.recv().await {
        let line = RawValue::from_string(line)?;
        send(lines, &Reply::Item(line)).await?;
    }
    finish(lines, async {
        let written = writing.await.map_err(|error| error.to_string());
        match written.and_then(|dumped| dumped) {
            Ok(()) => Ok(None::<()>),
            Err(why) => Err(Refusal::new(RefusalCode::Store, why)),
        }
    })
    .await
}

/// Hands whole lines to the connection. Fails once the reader is gone, which ends the dump.
struct LineSender {
    sender: mpsc::Sender<String>,
    partial: Vec<u8>,
}

impl Write for LineSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).take(end).collect();
            let line = String::from_utf8(line).map_err(io::Error::other)?;
            // A cluster's dump writes from within a task that its own thread drives.
            let sent = tokio::task::block_in_place(|| self.sender.blocking_send(line));
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answered(answer: Answer) -> Answered {
    match answer {
        Answer::Taken => Answered::Taken,
        Answer::Answered(why) => Answered::Unused { why },
        Answer::RunEnded => Answered::RunEnded,
        Answer::Waiting => Answered::Stored,
    }
}

fn of_submit(error: SubmitRefusal) -> Refusal {
    let code = match &error {
        SubmitRefusal::Invalid(_) | SubmitRefusal::Never(_) => RefusalCode::Invalid,
        SubmitRefusal::IdUsed { .. } => RefusalCode::IdUsed,
        SubmitRefusal::Unknown(_) => RefusalCode::Unknown,
        SubmitRefusal::Store(_) => RefusalCode::Store,
    };
    let mut refusal = Refusal::new(code, &error);
    if let SubmitRefusal::Invalid(problems) = error {
        refusal.problems = problems.iter().map(ToString::to_string).collect();
    }
    refusal
}

fn of_command(error: CommandError) -> Refusal {
    let code = match &error {
        CommandError::UnknownRun(_) => RefusalCode::UnknownRun,
        CommandError::SaidOtherwise(_) => RefusalCode::SaidOtherwise,
        CommandError::Never(_) => RefusalCode::Invalid,
        CommandError::Unknown(_) => RefusalCode::Unknown,
        CommandError::Read(_) => RefusalCode::Store,
    };
    Refusal::new(code, error)
}

fn of_store(error: StoreError) -> Refusal {
    Refusal::new(RefusalCode::Store, error)
}
