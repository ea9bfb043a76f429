//! Where readers read: from the running `leasehold dev` or the cluster, or straight from the data folder while nobody runs on it.

use std::path::{Path, PathBuf};

use leasehold_actors::{Clock as _, SystemClock};
use leasehold_embedded::{EmbeddedStore, OpenError, OpenOptions};
use leasehold_protocol::RunId;

use crate::failure::{Exit, Failure};
use crate::known_tools::KnownTools;
use crate::material::{Material, all_runs};
use crate::place::Place;
use crate::socket::client::{Client, ClientError};
use crate::view::RunSummary;
use crate::waiting::calls_of;

/// See the module.
pub(crate) enum Source {
    Live(Box<Client>),
    Folder(EmbeddedStore),
}

impl Source {
    /// Connects, or opens the folder under its lock.
    pub(crate) async fn open(place: &Place) -> Result<Self, Failure> {
        match (Client::connect(place).await, place) {
            (Ok(client), _) => Ok(Source::Live(Box::new(client))),
            (Err(ClientError::NoRuntime { .. }), Place::Folder(folder)) => {
                open_folder(folder).map(Source::Folder)
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    pub(crate) async fn runs(&mut self) -> Result<Vec<RunSummary>, Failure> {
        let store = match self {
            Source::Live(client) => return Ok(client.runs().await?),
            Source::Folder(store) => store,
        };
        let mut summaries = Vec::new();
        for run in all_runs(store).await.map_err(Failure::broken)? {
            let material = Material::journal(store, &run)
                .await
                .map_err(Failure::broken)?;
            if let Some(material) = material {
                summaries.push(RunSummary::of(&run, &material.state()));
            }
        }
        Ok(summaries)
    }

    /// The runs with calls of this tool that are not settled, and where each call stands.
    pub(crate) async fn waiting_for(
        &mut self,
        place: &Place,
        tool: &str,
    ) -> Result<Vec<RunSummary>, Failure> {
        match self {
            Source::Live(client) => Ok(client.waiting_for(tool).await?),
            Source::Folder(store) => {
                let class = KnownTools::of(place).await?.class(tool);
                calls_of(store, tool, class).await.map_err(Failure::broken)
            }
        }
    }

    /// Everything stored about the run; an error if there is none.
    pub(crate) async fn material(
        &mut self,
        place: &Place,
        run: &RunId,
    ) -> Result<Material, Failure> {
        let material = match self {
            Source::Live(client) => client.material(run).await?,
            Source::Folder(store) => Material::read(store, run).await.map_err(Failure::broken)?,
        };
        material.ok_or_else(|| no_such_run(place, run))
    }
}

/// Opens a folder on which nobody runs; one without a store is refused.
pub(crate) fn open_folder(folder: &Path) -> Result<EmbeddedStore, Failure> {
    EmbeddedStore::open_existing(folder, reading_options()?).map_err(|error| match error {
        OpenError::Locked { .. } => {
            let text = format!(
                "{error} (it does not answer on {})",
                socket(folder).display()
            );
            Failure::new(Exit::FolderRefused, text)
        }
        error => error.into(),
    })
}

/// What a folder is opened with to be read: the session drives nothing.
pub(crate) fn reading_options() -> Result<OpenOptions, Failure> {
    Ok(OpenOptions {
        session: crate::dev::fresh_session()?,
        now: SystemClock.now().wall,
    })
}

fn socket(folder: &Path) -> PathBuf {
    crate::socket::path(folder)
}

fn no_such_run(place: &Place, run: &RunId) -> Failure {
    Failure::usage(format!(
        "there is no run {:?} in {place}; `leasehold runs` lists them",
        run.as_str()
    ))
}
