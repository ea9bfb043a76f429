//! `tools.json` in the data folder: the specification of every tool that a runtime on this folder ever knew, latest version each.
//!
//! Recovery and the invariants depend on a tool's class; a reader of the folder has to know it also when no runtime is there to ask, and
//! of tools that are gone from the tools file since.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use leasehold_json::AcceptedJson;
use leasehold_tools::{Registry, SideEffect, ToolSpec};
use serde::{Deserialize, Serialize};

use crate::failure::{Exit, Failure};
use crate::place::Place;
use crate::socket::client::Client;

const FORMAT: u32 = 1;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct KnownTools(BTreeMap<String, ToolSpec>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    v: u32,
    tools: Vec<ToolSpec>,
}

fn path(folder: &Path) -> PathBuf {
    folder.join("tools.json")
}

impl KnownTools {
    /// The tools known in a place: those of its folder's file, or those that a node of the cluster has.
    pub(crate) async fn of(place: &Place) -> Result<Self, Failure> {
        match place {
            Place::Folder(folder) => Self::read(folder),
            Place::Cluster(_) => {
                let tools = Client::connect(place)
                    .await?
                    .hello()
                    .await?
                    .tools
                    .into_iter();
                Ok(Self(tools.map(|spec| (spec.name.clone(), spec)).collect()))
            }
        }
    }

    /// Reads the file; a folder without one knows no tools.
    pub(crate) fn read(folder: &Path) -> Result<Self, Failure> {
        let path = path(folder);
        let refused = |why: String| {
            let text = format!(
                "{}: {why}; move the file away, and `leasehold dev` writes it anew",
                path.display()
            );
            Failure::new(Exit::FolderRefused, text)
        };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(refused(error.to_string())),
        };
        let json = AcceptedJson::check(&bytes).map_err(|error| refused(error.to_string()))?;
        let file: File = json.parse().map_err(|error| refused(error.to_string()))?;
        if file.v > FORMAT {
            return Err(refused(format!(
                "it is of format {}, this binary knows up to {FORMAT}",
                file.v
            )));
        }
        let tools = file.tools.into_iter();
        Ok(Self(tools.map(|spec| (spec.name.clone(), spec)).collect()))
    }

    /// Adds the tools of a runtime, and writes the file anew. The caller holds the folder's lock.
    pub(crate) fn add(folder: &Path, registry: &Registry) -> Result<(), Failure> {
        let mut known = Self::read(folder)?;
        for tool in registry.iter() {
            known
                .0
                .insert(tool.spec().name.clone(), tool.spec().clone());
        }
        let file = File {
            v: FORMAT,
            tools: known.0.into_values().collect(),
        };
        let text = serde_json::to_vec(&file).map_err(Failure::broken)?;
        let (path, fresh) = (path(folder), folder.join("tools.json.new"));
        let written = fs::File::create(&fresh)
            .and_then(|mut new| new.write_all(&text).and_then(|()| new.sync_all()))
            .and_then(|()| fs::rename(&fresh, &path));
        written.map_err(|error| {
            Failure::new(
                Exit::FolderRefused,
                format!("{} cannot be written: {error}", path.display()),
            )
        })
    }

    /// Whether no tool is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The specification last seen under this name.
    pub(crate) fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.0.get(name)
    }

    /// The class that decides recovery; of a tool that nobody ever registered, the worst it could be.
    pub(crate) fn class(&self, name: &str) -> SideEffect {
        self.get(name)
            .map_or(SideEffect::Destructive, |spec| spec.side_effect)
    }
}
