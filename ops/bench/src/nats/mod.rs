//! `bench nats`: the same steps on real servers, with node, worker, tool and client each in a process of its own.
//!
//! The floor (a plain publish with its acknowledgement, and a conditional append to a journal) is measured on the same servers, before each
//! width and in turns with the steps of one run at a time.

mod fail_over;
mod floor;
mod idle;
mod process;
mod rig;
mod steps;

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use leasehold_local::SyncInterval;

use crate::echo::Echo;
use crate::report::Report;

pub(crate) use process::{ProcessArgs, serve};

/// Servers and streams that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Config {
    servers: usize,
    sync: SyncInterval,
    shards: u16,
}

/// What is measured unless said otherwise.
const CONFIGS: [Config; 4] = [
    Config::of(1, SyncInterval::Lazy, 8),
    Config::of(1, SyncInterval::Always, 1),
    Config::of(1, SyncInterval::Always, 8),
    Config::of(3, SyncInterval::Always, 2),
];

impl Config {
    const fn of(servers: usize, sync: SyncInterval, shards: u16) -> Self {
        Self {
            servers,
            sync,
            shards,
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = match self.sync {
            SyncInterval::Always => "always",
            SyncInterval::Lazy => "lazy",
        };
        write!(f, "r{}-{sync}-{}", self.servers, self.shards)
    }
}

impl FromStr for Config {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let wrong = || {
            anyhow!(
                "a configuration is r1 or r3, lazy or always, and a number of shards, as in r1-always-8"
            )
        };
        let (servers, rest) = text.split_once('-').with_context(wrong)?;
        let (sync, shards) = rest.split_once('-').with_context(wrong)?;
        let servers = match servers {
            "r1" => 1,
            "r3" => 3,
            _ => return Err(wrong()),
        };
        let sync = match sync {
            "lazy" => SyncInterval::Lazy,
            "always" => SyncInterval::Always,
            _ => return Err(wrong()),
        };
        Ok(Self::of(
            servers,
            sync,
            shards.parse().map_err(|_| wrong())?,
        ))
    }
}

/// A part of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Latency, throughput, CPU time (G1, G2, G3, G5)
    Steps,
    /// A node is killed while it drives many runs (G6)
    FailOver,
    /// Parked runs and what they cost (G7)
    Idle,
}

/// Arguments of `bench nats`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NatsArgs {
    /// Leave out the other parts
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "steps,fail-over,idle"
    )]
    only: Vec<Part>,
    /// How often the steps are measured, in turns
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    passes: u32,
    /// How long each measurement of steps takes, after a start of half of it; each floor takes a quarter
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How many runs are driven side by side
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    widths: Vec<usize>,
    /// How many tools the worker declares
    #[arg(long, value_delimiter = ',', default_value = "1,50")]
    tools: Vec<usize>,
    /// Servers, syncs, shards [default: r1-lazy-8,r1-always-1,r1-always-8,r3-always-2]
    #[arg(long, value_delimiter = ',')]
    configs: Vec<Config>,
    /// How many runs the killed node drives
    #[arg(long, default_value_t = 500)]
    runs: usize,
    /// Its session's time to live, seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    ttl: u64,
    /// How many runs are parked; 100000 takes a quarter of an hour
    #[arg(long, default_value_t = 500)]
    parked: usize,
    /// Threads of node and worker, 1 for a runtime on one thread; 0: as in production
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Where the servers' and the logbook's folders are made: the disk that is measured
    #[arg(long, value_name = "DIR", default_value = "target")]
    disk: PathBuf,
    /// One line of JSON at the end
    #[arg(long)]
    json: bool,
}

impl NatsArgs {
    fn configs(&self) -> &[Config] {
        if self.configs.is_empty() {
            &CONFIGS
        } else {
            &self.configs
        }
    }

    /// Where the two parts are measured that need only one: one server that syncs, if that is among those chosen.
    fn one_config(&self) -> Config {
        let usual = Config::of(1, SyncInterval::Always, 8);
        let chosen = self.configs();
        if chosen.contains(&usual) {
            usual
        } else {
            chosen.first().copied().unwrap_or(usual)
        }
    }

    fn span(&self, part: f64) -> Duration {
        Duration::from_secs_f64((self.seconds * part).clamp(0.01, 1e6))
    }
}

pub(crate) async fn run(args: &NatsArgs) -> anyhow::Result<()> {
    fs::create_dir_all(&args.disk).with_context(|| args.disk.display().to_string())?;
    let echo = Echo::start().await?;
    let mut report = Report::default();
    if args.only.contains(&Part::Steps) {
        steps::measure_all(args, &echo, &mut report).await?;
    }
    if args.only.contains(&Part::FailOver) {
        fail_over::measure(args, &echo, &mut report).await?;
    }
    if args.only.contains(&Part::Idle) {
        idle::measure(args, &echo, &mut report).await?;
    }
    report.tell(args.json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_as_it_is_written() {
        for config in CONFIGS {
            assert_eq!(config.to_string().parse::<Config>().unwrap(), config);
        }
        for text in ["", "r1", "r1-lazy", "r2-lazy-1", "r1-never-1", "r1-lazy-x"] {
            assert!(text.parse::<Config>().is_err(), "{text:?}");
        }
    }
}
