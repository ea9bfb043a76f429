//! The client's side: one connection, one request at a time.
//!
//! Every answer that is `Ok` is what the runtime said. Whoever needs to submit and to watch at once opens two connections.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use leasehold_json::AcceptedJson;
use leasehold_nats::Target;
use leasehold_protocol::{CancelRequest, DecideRequest, RunId, Submission};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::net::UnixStream;
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::backing;
use super::server::{self, Stream};
use super::wire::{
    Answered, Happening, Hello, MAX_ANSWER, Receipt, Refusal, RefusalCode, Reply, Request,
};
use crate::failure::{Exit, Failure};
use crate::material::Material;
use crate::place::Place;
use crate::view::{QuestionView, RunSummary, RunView};

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The cluster cannot be worked on.
    #[error(transparent)]
    NoCluster(#[from] leasehold_nats::StartError),
    /// Nobody serves the folder.
    #[error(
        "no `leasehold dev` runs on {folder} ({why}); start one with: leasehold dev --data {folder} --tools FILE"
    )]
    NoRuntime {
        /// The folder, as shown.
        folder: String,
        /// The system's words.
        why: String,
    },
    /// The runtime went away before it had answered.
    #[error("`leasehold dev` on {place} went away before it had answered; {todo}")]
    Gone {
        /// The place, as shown.
        place: String,
        /// What to do.
        todo: &'static str,
    },
    /// The runtime refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The answer cannot be read.
    #[error(
        "the answer of `leasehold dev` cannot be read ({0}); use the same version on both sides"
    )]
    Garbled(String),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::NoRuntime { .. }
            | ClientError::Gone { .. }
            | ClientError::NoCluster(_) => Exit::NoRuntime,
            ClientError::Refused(refusal) => match refusal.code {
                RefusalCode::Unknown | RefusalCode::Store => Exit::Broken,
                _ => Exit::Usage,
            },
            ClientError::Garbled(_) => Exit::Broken,
        };
        Failure::new(exit, error.to_string())
    }
}

/// A connection to the runtime on a data folder, or to a cluster.
pub(crate) struct Client {
    lines: Framed<Box<dyn Stream>, LinesCodec>,
    place: String,
    /// Ends the desk in this process.
    _desk: Option<DropGuard>,
}

/// Bytes on their way between the command and its own desk: one large answer does not wait for its reader piece by piece.
const PIPE: usize = 1024 * 1024;

impl Client {
    /// Connects; at once an error if nobody serves the place.
    pub(crate) async fn connect(place: &Place) -> Result<Self, ClientError> {
        match place {
            Place::Folder(folder) => Self::connect_folder(folder).await,
            Place::Cluster(target) => Self::connect_cluster(target).await,
        }
    }

    async fn connect_cluster(target: &Target) -> Result<Self, ClientError> {
        let desk = Arc::new(backing::open(target).await?);
        let (ours, its) = tokio::io::duplex(PIPE);
        let stop = CancellationToken::new();
        let (tasks, stopped) = (desk.tasks.clone(), stop.clone());
        tasks.spawn(async move {
            let serving = server::serve(its, desk, &stopped);
            stopped.run_until_cancelled(serving).await;
        });
        Ok(Self {
            lines: Framed::new(
                Box::new(ours) as Box<dyn Stream>,
                LinesCodec::new_with_max_length(MAX_ANSWER),
            ),
            place: target.url.clone(),
            _desk: Some(stop.drop_guard()),
        })
    }

    async fn connect_folder(folder: &Path) -> Result<Self, ClientError> {
        let none = |error: io::Error| ClientError::NoRuntime {
            folder: folder.display().to_string(),
            why: match error.kind() {
                io::ErrorKind::NotFound => "it has no socket there".to_owned(),
                io::ErrorKind::ConnectionRefused => "nobody listens on its socket".to_owned(),
                _ => error.to_string(),
            },
        };
        let (address, _opened) = super::address(folder).map_err(none)?;
        let stream = UnixStream::connect(&address).await.map_err(none)?;
        Ok(Self {
            lines: Framed::new(
                Box::new(stream) as Box<dyn Stream>,
                LinesCodec::new_with_max_length(MAX_ANSWER),
            ),
            place: folder.display().to_string(),
            _desk: None,
        })
    }

    /// Who serves.
    pub(crate) async fn hello(&mut self) -> Result<Hello, ClientError> {
        self.ask(&Request::Hello).await
    }

    /// Submits a run. Durable once it returns; the same submission again means the same run.
    pub(crate) async fn submit(&mut self, submission: &Submission) -> Result<Receipt, ClientError> {
        let submission = Box::new(submission.clone());
        self.ask(&Request::Submit { submission }).await
    }

    /// Answers a question.
    pub(crate) async fn decide(
        &mut self,
        run: &RunId,
        request: &DecideRequest,
    ) -> Result<Answered, ClientError> {
        let (run, request) = (run.clone(), Box::new(request.clone()));
        self.ask(&Request::Decide { run, request }).await
    }

    /// Asks a run to end.
    pub(crate) async fn cancel(
        &mut self,
        run: &RunId,
        request: &CancelRequest,
    ) -> Result<Answered, ClientError> {
        let (run, request) = (run.clone(), request.clone());
        self.ask(&Request::Cancel { run, request }).await
    }

    /// All runs, in order of id.
    pub(crate) async fn runs(&mut self) -> Result<Vec<RunSummary>, ClientError> {
        self.ask(&Request::Runs).await
    }

    /// One run; absent if nobody submitted it.
    pub(crate) async fn run(&mut self, run: &RunId) -> Result<Option<RunView>, ClientError> {
        self.ask(&Request::Run { run: run.clone() }).await
    }

    /// The open questions of all runs.
    pub(crate) async fn questions(&mut self) -> Result<Vec<QuestionView>, ClientError> {
        self.ask(&Request::Questions).await
    }

    /// Everything stored about a run; absent if nobody submitted it.
    pub(crate) async fn material(&mut self, run: &RunId) -> Result<Option<Material>, ClientError> {
        self.ask(&Request::Material { run: run.clone() }).await
    }

    /// The runs with calls of this tool that are not settled, and where each call stands.
    pub(crate) async fn waiting_for(&mut self, tool: &str) -> Result<Vec<RunSummary>, ClientError> {
        let tool = tool.to_owned();
        self.ask(&Request::WaitingFor { tool }).await
    }

    /// How many calls wait or run, per tool.
    pub(crate) async fn waiting(&mut self) -> Result<BTreeMap<String, usize>, ClientError> {
        self.ask(&Request::Waiting).await
    }

    /// What happens from now on, to one run or to all. Whatever is stored after this returns is told.
    pub(crate) async fn watch(mut self, run: Option<&RunId>) -> Result<Watch, ClientError> {
        self.send(&Request::Watch { run: run.cloned() }).await?;
        match self.item::<Happening>().await? {
            Some(Happening::Subscribed) => Ok(Watch { client: self }),
            other => Err(ClientError::Garbled(format!(
                "expected subscribed, got {other:?}"
            ))),
        }
    }

    /// A raw dump of everything stored, line by line, exact bytes.
    pub(crate) async fn dump(
        mut self,
        mut line: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.send(&Request::Dump).await?;
        while let Some(text) = self.item::<Box<RawValue>>().await? {
            line(text.get())?;
        }
        Ok(())
    }

    async fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        self.send(request).await?;
        match self.reply().await? {
            Some(Reply::Done(answer)) => Ok(answer),
            Some(Reply::Refused(refusal)) => Err(refusal.into()),
            Some(Reply::Item(_)) => Err(ClientError::Garbled(
                "an item where one answer belongs".to_owned(),
            )),
            None => Err(self.gone()),
        }
    }

    /// The next item; none at the end.
    async fn item<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        match self.reply::<Option<T>>().await? {
            Some(Reply::Item(item)) => Ok(item),
            Some(Reply::Done(_)) => Ok(None),
            Some(Reply::Refused(refusal)) => Err(refusal.into()),
            None => Err(self.gone()),
        }
    }

    async fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let text = serde_json::to_string(request)
            .map_err(|error| ClientError::Garbled(error.to_string()))?;
        self.lines.send(text).await.map_err(|_| self.gone())
    }

    async fn reply<T: DeserializeOwned>(&mut self) -> Result<Option<Reply<T>>, ClientError> {
        let garbled = |error: String| ClientError::Garbled(error);
        let line = match self.lines.next().await {
            None => return Ok(None),
            Some(Ok(line)) => line,
            Some(Err(LinesCodecError::Io(_))) => return Ok(None),
            Some(Err(error)) => return Err(garbled(error.to_string())),
        };
        let json = AcceptedJson::check_str(&line).map_err(|error| garbled(error.to_string()))?;
        json.parse()
            .map(Some)
            .map_err(|error| garbled(error.to_string()))
    }

    fn gone(&self) -> ClientError {
        ClientError::Gone {
            place: self.place.clone(),
            todo: "start it again and repeat the command: the same again means the same",
        }
    }
}

/// What happens to runs, as it happens.
pub(crate) struct Watch {
    client: Client,
}

impl Watch {
    /// The next event; none once the runtime stops in good order. An error if it just went away.
    pub(crate) async fn next(&mut self) -> Result<Option<Happening>, ClientError> {
        self.client.item().await
    }
}
