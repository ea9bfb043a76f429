//! `cargo xtask borders`: which crate may depend on which, checked from what cargo says.
//!
//! The compiler keeps a crate from using what it does not depend on; this keeps it from depending on it.

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cargo::metadata;

/// A dependency as a manifest declares it.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    /// Only for tests and benches.
    dev: bool,
}

/// What a package may, or may not, depend on.
enum Border {
    /// Nobody but these names that package.
    Only(&'static str, &'static [&'static str]),
    /// Of the workspace's own packages it depends on these and no others.
    Ours(&'static str, &'static [&'static str]),
    /// It depends on none of these, except in its tests.
    Never(&'static str, &'static [&'static str]),
}

/// The borders, with the reason that is shown when one is crossed.
const BORDERS: [(Border, &str); 11] = [
    (
        Border::Only("sled", &["leasehold-embedded"]),
        "the store can be exchanged only while one crate knows it",
    ),
    (
        Border::Only("async-nats", &["leasehold-nats", "leasehold-chaos"]),
        "the store can be exchanged only while one crate knows it; the chaos suite handles the servers themselves, from outside",
    ),
    (
        Border::Only("ractor", &["leasehold-actors"]),
        "actors are the shell; nothing else depends on how they are made",
    ),
    (
        Border::Ours("leasehold-json", &[]),
        "the boundary of bytes stands below everything",
    ),
    (
        Border::Ours("leasehold-tools", &["leasehold-json"]),
        "a tool can be written without the runtime",
    ),
    (
        Border::Ours("leasehold-protocol", &["leasehold-json", "leasehold-tools"]),
        "the machines are pure",
    ),
    (
        Border::Never(
            "leasehold-protocol",
            &["tokio", "rand", "uuid", "rustix", "sled", "ractor"],
        ),
        "the machines have no IO, no clock and no randomness",
    ),
    (
        Border::Ours("leasehold-store", &["leasehold-json", "leasehold-protocol"]),
        "the traits know no backend",
    ),
    (
        Border::Never(
            "leasehold-actors",
            &["leasehold-embedded", "leasehold-nats"],
        ),
        "actors know the traits and no backend",
    ),
    (
        Border::Ours("leasehold-checker", &[]),
        "who checks the runtime shares no code with it",
    ),
    (
        Border::Ours("leasehold-chaos", &["leasehold-checker", "leasehold-local"]),
        "who breaks the runtime uses it as its users do, and shares no code with it",
    ),
];

pub(crate) fn run() -> anyhow::Result<()> {
    let metadata = metadata()?;
    let edges = edges(&metadata)?;
    let ours: Vec<&str> = packages(&metadata)?.filter_map(name).collect();
    let crossed = crossed(&edges, &ours);
    for text in &crossed {
        println!("{text}");
    }
    if !crossed.is_empty() {
        bail!("{} borders are crossed", crossed.len());
    }
    println!(
        "{} packages, {} dependencies, {} borders: none crossed",
        ours.len(),
        edges.len(),
        BORDERS.len()
    );
    Ok(())
}

fn packages(metadata: &Value) -> anyhow::Result<std::slice::Iter<'_, Value>> {
    let packages = metadata["packages"].as_array();
    Ok(packages.context("cargo metadata has no packages")?.iter())
}

fn name(package: &Value) -> Option<&str> {
    package["name"].as_str()
}

fn edges(metadata: &Value) -> anyhow::Result<Vec<Edge<'_>>> {
    let mut edges = Vec::new();
    for package in packages(metadata)? {
        let from = name(package).context("a package has no name")?;
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            edges.push(Edge {
                from,
                to: name(dependency).context("a dependency has no name")?,
                dev: dependency["kind"] == "dev",
            });
        }
    }
    Ok(edges)
}

/// One sentence for each dependency that should not be.
fn crossed(edges: &[Edge<'_>], ours: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    for (border, reason) in &BORDERS {
        let wrong = edges.iter().filter(|edge| match border {
            Border::Only(package, by) => edge.to == *package && !by.contains(&edge.from),
            Border::Ours(package, on) => {
                edge.from == *package && ours.contains(&edge.to) && !on.contains(&edge.to)
            }
            Border::Never(package, on) => {
                edge.from == *package && !edge.dev && on.contains(&edge.to)
            }
        });
        out.extend(
            wrong.map(|edge| format!("{} must not depend on {}: {reason}", edge.from, edge.to)),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: &'static str, to: &'static str, dev: bool) -> Edge<'static> {
        Edge { from, to, dev }
    }

    #[test]
    fn each_kind_of_border_is_noticed_when_crossed() {
        let ours = [
            "leasehold-actors",
            "leasehold-embedded",
            "leasehold-protocol",
        ];
        for wrong in [
            edge("leasehold-actors", "sled", true),
            edge("leasehold-actors", "async-nats", false),
            edge("leasehold-actors", "leasehold-embedded", false),
            edge("leasehold-protocol", "leasehold-actors", true),
            edge("leasehold-protocol", "tokio", false),
        ] {
            assert_eq!(crossed(&[wrong], &ours).len(), 1);
        }
        for right in [
            edge("leasehold-embedded", "sled", false),
            edge("leasehold-actors", "leasehold-embedded", true),
            edge("leasehold-protocol", "serde", false),
        ] {
            assert_eq!(crossed(&[right], &ours), Vec::<String>::new());
        }
    }

    #[test]
    fn the_workspace_keeps_its_borders() {
        let metadata = metadata().unwrap();
        let ours: Vec<&str> = packages(&metadata).unwrap().filter_map(name).collect();
        assert_eq!(
            crossed(&edges(&metadata).unwrap(), &ours),
            Vec::<String>::new()
        );
    }
}
