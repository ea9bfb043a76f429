//! Taking a run in: everything that is wrong with a submission is said at once, before anything is written.

use bytes::Bytes;
use leasehold_protocol::{ClientId, Limits, RunId, Seq, Submission, WIRE_VERSION};
use leasehold_store::{InboxKind, StoreError, SubmitError};

use crate::runtime::Runtime;
use crate::shared::Shared;

/// Longest submission in bytes. Its goal and input stand in the run's first commit, which has to fit every backend's largest message.
const MAX_SUBMISSION: usize = 256 * 1024;
/// Most calls of one turn side by side that a run may ask for.
const MAX_PARALLEL_CALLS: u32 = 64;

/// One thing that is wrong with a submission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitProblem {
    /// The format is another one.
    #[error("the submission has format version {0}; this binary takes version {WIRE_VERSION}")]
    Version(u32),
    /// Nothing but white space.
    #[error("the goal is blank; say what the run is for")]
    BlankGoal,
    /// Nobody is called so.
    #[error("no agent is called {agent:?}; known agents: {}", .known.join(", "))]
    UnknownAgent {
        /// The name asked for.
        agent: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// No such tool.
    #[error("no tool is called {tool:?}; known tools: {}", .known.join(", "))]
    UnknownTool {
        /// The name asked for.
        tool: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Named twice.
    #[error("tool {0:?} is named more than once")]
    RepeatedTool(String),
    /// A limit with which no run could do anything, or none could be held.
    #[error("limit {limit}: {why}")]
    Limit {
        /// Which.
        limit: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Too long.
    #[error(
        "the submission has {size} bytes, at most {MAX_SUBMISSION} are taken; put large material where a tool can read it"
    )]
    TooLarge {
        /// Its length.
        size: usize,
    },
}

/// Why a submission was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SubmitRefusal {
    /// It is wrong. Nothing was written.
    #[error("the submission is refused: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<SubmitProblem>),
    /// The name stands for another run. Nothing was written.
    #[error(
        "run id {run} is used by another submission (client {client}); choose another id, or submit exactly the same to mean the same run"
    )]
    IdUsed {
        /// The id.
        run: RunId,
        /// Who used it.
        client: String,
    },
    /// It can never be stored.
    #[error("the submission was not stored: {0}")]
    Never(String),
    /// Stored or not, nobody knows.
    #[error("nobody knows whether the submission was stored: {0}; submit exactly the same again")]
    Unknown(String),
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A submission was taken: the run will be driven, whatever happens to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The run.
    pub run: RunId,
    /// The submission's inbox position.
    pub inbox: Seq,
    /// Whether the same submission had been taken before.
    pub repeated: bool,
}

impl Runtime {
    /// Takes a run in. The same submission again means the same run, whoever sends it. Durable once it returns `Ok`.
    pub async fn submit(&self, submission: &Submission) -> Result<Submitted, SubmitRefusal> {
        let run = submission.run.clone();
        if let Some(inbox) = self.standing(submission).await? {
            return Ok(Submitted {
                run,
                inbox,
                repeated: true,
            });
        }
        let body = submission.encode();
        let problems = problems(&self.shared, submission, body.len());
        if !problems.is_empty() {
            return Err(SubmitRefusal::Invalid(problems));
        }
        match self
            .shared
            .store
            .put(
                &run,
                InboxKind::Submit(submission.client.clone()),
                Bytes::from(body),
            )
            .await
        {
            Ok(_) => {}
            Err(SubmitError::Exists { .. }) => return Err(id_used(&run, &submission.client)),
            Err(SubmitError::Never(error)) => return Err(SubmitRefusal::Never(error)),
            Err(SubmitError::Unknown(error)) => return Err(SubmitRefusal::Unknown(error)),
        }
        // Another client may have used the same name at the same moment: the first one's run it is.
        match self.standing(submission).await? {
            Some(inbox) => Ok(Submitted {
                run,
                inbox,
                repeated: false,
            }),
            None => Err(SubmitRefusal::Unknown(
                "it is not there when read again".to_owned(),
            )),
        }
    }

    /// The position of this submission if it stands already; an error if another one does.
    async fn standing(&self, submission: &Submission) -> Result<Option<Seq>, SubmitRefusal> {
        let Some(first) = self.shared.store.submission(&submission.run).await? else {
            return Ok(None);
        };
        let client = match &first.kind {
            InboxKind::Submit(client) => client.clone(),
            _ => submission.client.clone(),
        };
        match Submission::decode(&first.body) {
            Ok(standing)
                if (Submission {
                    client: submission.client.clone(),
                    ..standing.clone()
                }) == *submission =>
            {
                Ok(Some(first.seq))
            }
            _ => Err(id_used(&submission.run, &client)),
        }
    }
}

fn id_used(run: &RunId, client: &ClientId) -> SubmitRefusal {
    SubmitRefusal::IdUsed {
        run: run.clone(),
        client: client.to_string(),
    }
}

fn problems(shared: &Shared, submission: &Submission, size: usize) -> Vec<SubmitProblem> {
    let mut problems = Vec::new();
    if submission.v != WIRE_VERSION {
        problems.push(SubmitProblem::Version(submission.v));
    }
    if submission.goal.trim().is_empty() {
        problems.push(SubmitProblem::BlankGoal);
    }
    if shared.agents.get(&submission.agent).is_none() {
        let known = shared.agents.names().map(str::to_owned).collect();
        problems.push(SubmitProblem::UnknownAgent {
            agent: submission.agent.clone(),
            known,
        });
    }
    for (place, tool) in submission.tools.iter().enumerate() {
        if shared.tools.get(tool).is_none() {
            let known = shared
                .tools
                .iter()
                .map(|tool| tool.spec().name.clone())
                .collect();
            problems.push(SubmitProblem::UnknownTool {
                tool: tool.clone(),
                known,
            });
        }
        if submission
            .tools
            .iter()
            .take(place)
            .any(|earlier| earlier == tool)
        {
            problems.push(SubmitProblem::RepeatedTool(tool.clone()));
        }
    }
    problems.extend(limit_problems(&submission.limits));
    if size > MAX_SUBMISSION {
        problems.push(SubmitProblem::TooLarge { size });
    }
    problems
}

fn limit_problems(limits: &Limits) -> impl Iterator<Item = SubmitProblem> {
    let zero = |limit: &'static str, value: u64| {
        (value == 0).then(|| SubmitProblem::Limit {
            limit,
            why: "it is 0, so the run would end before its first turn".to_owned(),
        })
    };
    let parallel = limits.max_parallel_calls;
    let parallel = (parallel == 0 || parallel > MAX_PARALLEL_CALLS).then(|| SubmitProblem::Limit {
        limit: "max_parallel_calls",
        why: format!("it is {parallel}; it must be 1 to {MAX_PARALLEL_CALLS}"),
    });
    [
        zero("max_steps", limits.max_steps.into()),
        zero(
            "max_consecutive_failures",
            limits.max_consecutive_failures.into(),
        ),
        zero("max_active_ms", limits.max_active_ms),
        zero("max_elapsed_ms", limits.max_elapsed_ms),
        zero("max_repeats", limits.max_repeats.into()),
        parallel,
    ]
    .into_iter()
    .flatten()
}
