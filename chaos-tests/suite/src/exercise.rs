//! One exercise, from the first process to the last: load, faults, heal, drain, freeze, and everything that is judged afterwards put down in
//! files.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use leasehold_local::Kind;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::board::Board;
use crate::client::{Client, Said, Tally};
use crate::clock;
use crate::faults::{Fault, Injected, Injector};
use crate::ledger::Ledger;
use crate::operators::{Mood, Operators};
use crate::schedule::Schedule;
use crate::show::Show;
use crate::system::{Folder, System};
use crate::workload::{self, Submitted};

/// Between two submissions. Each takes a process, and two cores have to do everything.
const PACE: Duration = Duration::from_millis(700);
/// How long the runs may take to come to their ends when everything is healed: the longest ladder of a call is 7 s, an election 6 s, and a
/// question waits for a person after that; several of them may follow each other in one run.
const DRAIN: Duration = Duration::from_secs(150);
/// How often is looked whether all is over.
const LOOK: Duration = Duration::from_millis(300);
/// How long a process may take to end after SIGTERM: longer than the slowest call.
const ORDERLY: Duration = Duration::from_secs(30);
/// How long a reading command may take.
const READING: Duration = Duration::from_secs(120);

/// What an exercise is made of.
pub(crate) struct Plan {
    pub(crate) schedule: Schedule,
    pub(crate) servers: usize,
    /// The `leasehold` program.
    pub(crate) program: PathBuf,
    pub(crate) folder: Folder,
    /// A rule that is left out, to see that it is noticed.
    pub(crate) sabotage: Option<String>,
}

/// What it leaves behind, beside its files.
pub(crate) struct Done {
    pub(crate) began: i64,
    pub(crate) healed: i64,
    pub(crate) drained: i64,
    pub(crate) injected: Vec<Injected>,
    /// Submissions that were acknowledged.
    pub(crate) stored: BTreeSet<String>,
    /// Submissions of which nobody can say.
    pub(crate) unsure: BTreeSet<String>,
    /// Runs that waited for nothing but an operator at the end.
    pub(crate) parked: BTreeSet<String>,
    pub(crate) requests: Tally,
    pub(crate) ends: std::collections::BTreeMap<String, usize>,
    /// What else went wrong, in sentences.
    pub(crate) troubles: Vec<String>,
}

/// Runs it.
pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Done> {
    let (tasks, stop, load) = (
        TaskTracker::new(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    let mut show = Show::new(&plan.schedule);
    show.say("starting servers, nodes and workers");
    let system = System::start(
        plan.folder.clone(),
        &plan.program,
        plan.servers,
        plan.sabotage.as_deref(),
        &tasks,
    )
    .await?;
    let urls = system.servers.urls()?;
    let client = Client::new(&plan.program, urls.clone(), &plan.folder.history())?;
    let (board, mood, submitted) = (Board::default(), Mood::default(), Submitted::default());
    let began = clock::now();
    let seed = plan.schedule.seed;
    let operators = Operators {
        board: board.clone(),
        client: client.clone(),
        ledger: Ledger::new(plan.folder.ledger()),
        mood: mood.clone(),
        seed,
    };
    let following = board.clone().follow(system.nats.clone());
    tasks.spawn(stop.clone().run_until_cancelled_owned(following));
    tasks.spawn(stop.clone().run_until_cancelled_owned(operators.work()));
    let armed = &plan.schedule.armed;
    let faulty = armed.contains(&Fault::F20) || armed.contains(&Fault::F13);
    let submitting = workload::submit(
        client.clone(),
        submitted.clone(),
        seed,
        faulty,
        PACE,
        load.clone(),
    );
    let submitting = tasks.spawn(stop.clone().run_until_cancelled_owned(submitting));

    let mut injector = Injector::new(system, board.clone(), client.clone(), mood, tasks.clone());
    for (place, period) in plan.schedule.periods.iter().enumerate() {
        let begin = Instant::now();
        show.period(place, period);
        for action in &period.actions {
            injector.tend_until(begin + action.after).await?;
            injector.begin(action.fault, &action.step).await;
        }
        while begin.elapsed() < period.lasts {
            let second = Instant::now() + Duration::from_secs(1);
            injector
                .tend_until(second.min(begin + period.lasts))
                .await?;
            show.numbers(board.numbers());
        }
        injector.heal().await?;
    }
    load.cancel();
    let healed = clock::now();
    show.say("healed; waiting until the runs are over");

    let end = Instant::now() + DRAIN;
    let is_over = || {
        let parked = board.parked();
        let mut open = board.open().into_iter();
        submitting.is_finished()
            && submitted.that(Said::Ok).len() == board.numbers().runs
            && open.all(|run| workload::leaves_open(&run) && parked.contains(&run))
    };
    while !is_over() && Instant::now() < end {
        injector.tend().await?;
        show.numbers(board.numbers());
        sleep(LOOK).await;
    }
    if !is_over() {
        let open = board.open();
        let parked = board.parked();
        let moving = open.iter();
        let moving: Vec<&str> = moving
            .filter(|run| !workload::leaves_open(run) || !parked.contains(*run))
            .map(String::as_str)
            .collect();
        injector.troubles.push(format!(
            "{} s after healing not everything was over: {} runs are open that should not be ({})",
            DRAIN.as_secs(),
            moving.len(),
            moving.join(", ")
        ));
    }
    let drained = clock::now();
    injector.finish();
    stop.cancel();
    let Injector {
        system,
        injected,
        ends,
        mut troubles,
        ..
    } = injector;
    show.say("drained; freezing, dumping, replaying");
    freeze(&system, &urls, &mut troubles).await?;
    system
        .fleet
        .panics()?
        .into_iter()
        .for_each(|panic| troubles.push(panic));
    let System { fleet, servers, .. } = system;
    let down = timeout(ORDERLY, fleet.down());
    down.await.context("stopping the processes")??;
    drop(servers);
    tasks.close();
    show.done();
    Ok(Done {
        began,
        healed,
        drained,
        injected,
        stored: submitted.that(Said::Ok),
        unsure: submitted.that(Said::Info),
        parked: board.parked(),
        requests: client.tally(),
        ends,
        troubles,
    })
}

/// Stops what acts, reads everything that is stored, and has it replayed in fresh processes.
async fn freeze(system: &System, urls: &str, troubles: &mut Vec<String>) -> anyhow::Result<()> {
    for name in system.fleet.stop_all(Kind::Worker, ORDERLY).await? {
        troubles.push(format!(
            "{name} did not stop in good order; its log says why"
        ));
    }
    let folder = &system.folder;
    // It asks a node for the tools' classes.
    let verified = folder.path("verify.json");
    let words = ["--nats", urls, "--json", "verify"].map(str::to_owned);
    if !to_file(&system.program, &words, &verified).await? {
        troubles.push(format!(
            "`leasehold verify` found broken invariants, or could not read a journal: see {}",
            verified.display()
        ));
    }
    for name in system.fleet.stop_all(Kind::Node, ORDERLY).await? {
        troubles.push(format!(
            "{name} did not stop in good order; its log says why"
        ));
    }
    let what = || format!("writing {}", folder.dump().display());
    let mut dump =
        std::io::BufWriter::new(std::fs::File::create(folder.dump()).with_context(what)?);
    system.nats.dump(&mut dump).await.with_context(what)?;
    let products = folder.path("dump-by-leasehold.jsonl");
    let mut words: Vec<String> = ["--nats", urls, "dump"].map(str::to_owned).to_vec();
    for logbook in system.logbooks() {
        words.push("--logbook".to_owned());
        words.push(logbook.to_string_lossy().into_owned());
    }
    if to_file(&system.program, &words, &products).await? {
        add_logbooks(&products, &mut dump).with_context(what)?;
    } else {
        troubles.push("`leasehold dump` failed".to_owned());
    }
    std::io::Write::flush(&mut dump).with_context(what)?;
    let inputs = system.gather()?;
    let words = [
        "--nats",
        urls,
        "--json",
        "replay-inputs",
        &inputs.to_string_lossy(),
    ]
    .map(str::to_owned);
    let replayed = folder.path("replay.json");
    if !to_file(&system.program, &words, &replayed).await? {
        troubles.push(format!(
            "a replay of the recorded inputs gave other commits: see {}",
            replayed.display()
        ));
    }
    Ok(())
}

/// The workers' logbooks lie in a store that only the product reads: its lines about them are added as they are.
fn add_logbooks(from: &std::path::Path, to: &mut impl std::io::Write) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(from)?;
    for line in text.lines() {
        if crate::json::text(&crate::json::read(line.as_bytes()), "stream") == "logbook" {
            writeln!(to, "{line}")?;
        }
    }
    Ok(())
}

/// Runs a command of the product to its end; its output goes to a file. Whether it succeeded.
async fn to_file(
    program: &std::path::Path,
    words: &[String],
    file: &std::path::Path,
) -> anyhow::Result<bool> {
    let out =
        std::fs::File::create(file).with_context(|| format!("creating {}", file.display()))?;
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(out)
        .kill_on_drop(true)
        .spawn()
        .context("starting leasehold")?;
    match timeout(READING, child.wait()).await {
        Ok(status) => Ok(status?.success()),
        Err(_) => Ok(false),
    }
}
