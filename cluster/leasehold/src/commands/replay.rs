//! `leasehold replay-inputs`: steps every recorded machine again and compares each commit that it asks for with the stored one.
//!
//! The machines are the protocol's own; everything they were told stands in the recording. So a difference means that the shell did
//! something that the core did not ask for, or that the core is not the pure function that it has to be. Three things are differences: a
//! commit asked for that is stored with other bytes, one acknowledged that is not stored, and one stored by a recorded life that no machine
//! asked for. A machine whose process was killed is compared up to its last recorded input.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_actors::Recorded;
use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    Body, Commit, CommitRequest, Effect, Input, Now, RunConfig, RunId, RunMachine, Seq, SessionId,
    StoredCommit,
};
use leasehold_tools::Registry;
use serde::{Deserialize, Serialize};

use super::Context;
use crate::dev::{Line, run_weakening};
use crate::failure::{Exit, Failure};
use crate::place::Place;
use crate::say;
use crate::source::Source;

/// Differences that are told one by one; the count has all of them.
const SHOWN_DIFFERENCES: usize = 20;

/// Arguments of `leasehold replay-inputs`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ReplayArgs {
    /// What `leasehold dev --record FILE` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Compare with a raw dump instead of the data folder
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    lives: u64,
    machines: u64,
    inputs: u64,
    /// Lines that a kill cut off.
    cut: u64,
    /// Commits asked for by a replayed machine and stored.
    compared: usize,
    differing: usize,
    differences: Vec<String>,
}

pub(crate) async fn run(context: Context<'_>, args: ReplayArgs) -> Result<Exit, Failure> {
    let stored = match &args.dump {
        Some(path) => Stored::of_dump(path)?,
        None => Stored::of_place(context.place).await?,
    };
    let mut replay = Replay::new(stored);
    replay.read(&args.file)?;
    let report = replay.finish();
    let exit = if report.differing == 0 {
        Exit::Done
    } else {
        Exit::Broken
    };
    if context.json {
        say::json(&report)?;
        return Ok(exit);
    }
    for difference in &report.differences {
        say::line(&say::plain(difference))?;
    }
    say::line(&format!(
        "{} lives, {} machines, {} inputs, {} commits compared, {} differing",
        report.lives, report.machines, report.inputs, report.compared, report.differing
    ))?;
    Ok(exit)
}

/// Every stored commit.
#[derive(Default)]
struct Stored {
    by_place: BTreeMap<(RunId, Seq), Body>,
    /// By commit id, which is unique in its run and names the session that wrote it.
    by_id: BTreeMap<(RunId, String), Seq>,
}

#[derive(Deserialize)]
struct DumpLine {
    seq: Seq,
    stream: String,
    run: Option<RunId>,
    body: Option<String>,
}

impl Stored {
    async fn of_place(place: &Place) -> Result<Self, Failure> {
        let mut source = Source::open(place).await?;
        let mut stored = Self::default();
        for summary in source.runs().await? {
            let material = source.material(place, &summary.run).await?;
            for StoredCommit { seq, body, .. } in material.commits {
                stored.add(summary.run.clone(), seq, body);
            }
        }
        Ok(stored)
    }

    fn of_dump(path: &Path) -> Result<Self, Failure> {
        let mut stored = Self::default();
        for (place, line) in lines(path)?.enumerate() {
            let wrong = |why: String| {
                Failure::usage(format!("{}: line {}: {why}", path.display(), place + 1))
            };
            let line = line.map_err(|error| wrong(error.to_string()))?;
            let json = AcceptedJson::check(&line).map_err(|error| wrong(error.to_string()))?;
            let line: DumpLine = json.parse().map_err(|error| wrong(error.to_string()))?;
            // A body that is no text was not written by any machine.
            if let ("journal" | "call", Some(run), Some(body)) =
                (line.stream.as_str(), line.run, line.body)
            {
                stored.add(run, line.seq, Body::from(body.into_bytes()));
            }
        }
        Ok(stored)
    }

    fn add(&mut self, run: RunId, seq: Seq, body: Body) {
        if let Ok(commit) = Commit::decode(body.as_bytes()) {
            self.by_id.insert((run.clone(), commit.id.to_string()), seq);
        }
        self.by_place.insert((run, seq), body);
    }
}

fn lines(path: &Path) -> Result<impl Iterator<Item = std::io::Result<Vec<u8>>>, Failure> {
    let file = File::open(path)
        .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))?;
    Ok(BufReader::new(file).split(b'\n'))
}

struct Machine {
    machine: RunMachine,
    run: RunId,
    /// The commit asked for last.
    asked: Option<CommitRequest>,
}

struct Replay {
    stored: Stored,
    /// The tools of each life.
    lives: BTreeMap<SessionId, Arc<Registry>>,
    machines: BTreeMap<(SessionId, u64), Machine>,
    /// Ids of stored commits that a replayed machine asked for.
    compared: BTreeSet<(RunId, String)>,
    report: Report,
}

impl Replay {
    fn new(stored: Stored) -> Self {
        Self {
            stored,
            lives: BTreeMap::new(),
            machines: BTreeMap::new(),
            compared: BTreeSet::new(),
            report: Report::default(),
        }
    }

    fn read(&mut self, path: &Path) -> Result<(), Failure> {
        let mut cut: Option<(usize, String)> = None;
        for (place, line) in lines(path)?.enumerate() {
            let wrong = |place: usize, why: &str| {
                Failure::broken(format!("{}: line {}: {why}", path.display(), place + 1))
            };
            let line = line.map_err(|error| wrong(place, &error.to_string()))?;
            let line = Line::read(&line);
            if let (Some((place, why)), false) = (&cut, matches!(line, Line::Life(_))) {
                return Err(wrong(*place, why));
            }
            cut = None;
            let taken = match line {
                Line::Life(life) => self.life(life.session, life.tools),
                Line::Record(record) => self.record(*record),
                Line::Unreadable(why) => {
                    // Whether a kill cut it off shows the next line.
                    cut = Some((place, why));
                    self.report.cut += 1;
                    Ok(())
                }
            };
            taken.map_err(|why| wrong(place, &why))?;
        }
        Ok(())
    }

    fn life(
        &mut self,
        session: SessionId,
        tools: Vec<leasehold_tools::ToolSpec>,
    ) -> Result<(), String> {
        let registry = Registry::specs_only(tools)
            .map_err(|errors| format!("its tools do not assemble: {errors:?}"))?;
        self.lives.insert(session, Arc::new(registry));
        self.report.lives += 1;
        Ok(())
    }

    fn record(&mut self, record: Recorded) -> Result<(), String> {
        match record {
            Recorded::Machine {
                machine,
                run,
                cluster,
                node,
                session,
                clock_bound_ms,
                session_ttl_ms,
                hook,
                weakening,
            } => {
                let tools = self.lives.get(&session);
                let tools = tools
                    .ok_or("a machine of a life that has no header")?
                    .clone();
                let weakening = run_weakening(&weakening)
                    .ok_or_else(|| format!("unknown weakening {weakening:?}"))?;
                let config = RunConfig {
                    cluster,
                    node,
                    session: session.clone(),
                    tools,
                    clock_bound_ms,
                    session_ttl_ms,
                    hook,
                    weakening,
                };
                let replayed = Machine {
                    machine: RunMachine::new(config, run.clone()),
                    run,
                    asked: None,
                };
                self.machines.insert((session, machine), replayed);
                self.report.machines += 1;
                Ok(())
            }
            Recorded::Input {
                machine,
                session,
                now,
                input,
            } => self.input((session, machine), now, input),
        }
    }

    fn input(&mut self, key: (SessionId, u64), now: Now, input: Input) -> Result<(), String> {
        let machine = self.machines.get_mut(&key);
        let machine = machine.ok_or("an input of a machine that was not recorded")?;
        self.report.inputs += 1;
        let run = machine.run.clone();
        let acknowledged = match &input {
            Input::CommitStored { seq } => Some((*seq, machine.asked.take())),
            _ => None,
        };
        let effects = machine.machine.step(now, input);
        let requests = effects.into_iter().filter_map(|effect| match effect {
            Effect::Commit(request) => Some(request),
            _ => None,
        });
        let requests: Vec<CommitRequest> = requests.collect();
        if let Some(last) = requests.last() {
            machine.asked = Some(last.clone());
        }
        if let Some((seq, asked)) = acknowledged {
            self.acknowledged(&run, seq, asked.as_ref());
        }
        for request in &requests {
            self.asked(&run, request);
        }
        Ok(())
    }

    /// A commit that was acknowledged stands where it was acknowledged, and is what the machine asked for.
    fn acknowledged(&mut self, run: &RunId, seq: Seq, asked: Option<&CommitRequest>) {
        let stored = self.stored.by_place.get(&(run.clone(), seq));
        match (stored, asked) {
            (Some(stored), Some(asked)) if *stored == asked.body => {}
            (None, _) => self.differs(format!(
                "run {run}: nothing is stored at {seq}, which was acknowledged"
            )),
            (Some(_), _) => self.differs(format!(
                "run {run}: what is stored at {seq} is not what the machine asked for"
            )),
        }
    }

    fn asked(&mut self, run: &RunId, request: &CommitRequest) {
        let Ok(commit) = Commit::decode(request.body.as_bytes()) else {
            return self.differs(format!(
                "run {run}: the machine asks for a commit that cannot be read"
            ));
        };
        let id = (run.clone(), commit.id.to_string());
        let Some(seq) = self.stored.by_id.get(&id).copied() else {
            return;
        };
        if self.stored.by_place.get(&(run.clone(), seq)) != Some(&request.body) {
            self.differs(format!(
                "run {run}: commit {} is stored at {seq} with other bytes",
                commit.id
            ));
        }
        self.compared.insert(id);
    }

    fn differs(&mut self, text: String) {
        self.report.differing += 1;
        if self.report.differences.len() < SHOWN_DIFFERENCES {
            self.report.differences.push(text);
        }
    }

    fn finish(mut self) -> Report {
        let of_recorded_life = |id: &str| {
            let mut sessions = self.lives.keys();
            sessions.any(|session| {
                id.strip_prefix(session.as_str())
                    .is_some_and(|rest| rest.starts_with('.'))
            })
        };
        let unasked: Vec<String> = self
            .stored
            .by_id
            .iter()
            .filter(|(id, _)| !self.compared.contains(*id) && of_recorded_life(&id.1))
            .map(|((run, id), seq)| {
                format!("run {run}: commit {id} at {seq} was asked for by no machine")
            })
            .collect();
        unasked.into_iter().for_each(|text| self.differs(text));
        self.report.compared = self.compared.len();
        self.report
    }
}
