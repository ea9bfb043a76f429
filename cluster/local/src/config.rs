//! The shipped server configurations, and the values that differ from server to server.
//!
//! The files under `cluster/nats` are used as they are; a server of a local cluster gets in its environment what a production server gets
//! from its unit file. Two things can be changed in the text: benches compare with a server that does not sync, and chaos tests with proxies
//! need servers that do not tell clients of each other.

use std::collections::BTreeMap;
use std::path::Path;

const ONE: &str = include_str!("../../nats/one.conf");
const THREE: &str = include_str!("../../nats/three.conf");

/// The line of both files that a lazy server has otherwise.
const ALWAYS: &str = "sync_interval: always";
/// The server's own default.
const LAZY: &str = "sync_interval: 2m";

/// When a server writes to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncInterval {
    /// Before each acknowledgement, as in production.
    #[default]
    Always,
    /// Every two minutes, the server's default. For benches only: a power loss takes back what was acknowledged. A killed server loses
    /// nothing, because the kernel has the data.
    Lazy,
}

/// The ports of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) client: u16,
    pub(crate) monitor: u16,
    /// For the other servers; a single server has none.
    pub(crate) cluster: Option<u16>,
}

/// What the ports are for, in records and statuses.
pub(crate) const CLIENT: &str = "client";
pub(crate) const MONITOR: &str = "monitor";
pub(crate) const CLUSTER: &str = "cluster";

impl Ports {
    pub(crate) fn named(self) -> BTreeMap<String, u16> {
        [
            (CLIENT, Some(self.client)),
            (MONITOR, Some(self.monitor)),
            (CLUSTER, self.cluster),
        ]
        .into_iter()
        .filter_map(|(name, port)| Some((name.to_owned(), port?)))
        .collect()
    }
}

/// The line that begins what servers have to do with each other.
const CLUSTERED: &str = "cluster {\n";
/// What it is followed by where servers do not tell clients of each other.
const SECRETIVE: &str = "cluster {\n    no_advertise: true\n";

/// The configuration file for a cluster of this many servers. `None`: none is shipped.
pub(crate) fn text(count: usize, sync: SyncInterval, advertise: bool) -> Option<String> {
    let text = match count {
        1 => ONE,
        3 => THREE,
        _ => return None,
    };
    let text = match sync {
        SyncInterval::Always => text.to_owned(),
        SyncInterval::Lazy => text.replace(ALWAYS, LAZY),
    };
    Some(match advertise {
        true => text,
        false => text.replace(CLUSTERED, SECRETIVE),
    })
}

/// The values of one server: the words that begin with `$` in its file.
pub(crate) fn values(
    name: &str,
    ports: Ports,
    store: &Path,
    max_file: u64,
    routes: &[u16],
) -> BTreeMap<String, String> {
    let mut values = vec![
        ("NAME", quoted(name)),
        ("LISTEN", loopback(ports.client)),
        ("MONITOR", loopback(ports.monitor)),
        ("STORE", quoted(&store.to_string_lossy())),
        ("MAX_FILE", max_file.to_string()),
    ];
    if let Some(cluster) = ports.cluster {
        let routes: Vec<String> = routes
            .iter()
            .map(|port| quoted(&format!("nats://127.0.0.1:{port}")))
            .collect();
        values.push(("CLUSTER", quoted("leasehold-local")));
        values.push(("CLUSTER_LISTEN", loopback(cluster)));
        values.push(("ROUTES", format!("[{}]", routes.join(", "))));
    }
    values
        .into_iter()
        .map(|(name, value)| (format!("LEASEHOLD_NATS_{name}"), value))
        .collect()
}

fn loopback(port: u16) -> String {
    quoted(&format!("127.0.0.1:{port}"))
}

/// A value is read as configuration text, so a folder's name must not be taken for syntax.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_files_sync_always_and_only_the_lazy_variant_does_not() {
        for count in [1, 3] {
            let shipped = text(count, SyncInterval::Always, true).unwrap();
            let settings = |text: &str, wanted: &str| {
                text.lines().filter(|line| line.trim() == wanted).count()
            };
            assert_eq!(settings(&shipped, ALWAYS), 1);
            let lazy = text(count, SyncInterval::Lazy, true).unwrap();
            assert_eq!((settings(&lazy, ALWAYS), settings(&lazy, LAZY)), (0, 1));
        }
        assert_eq!(text(2, SyncInterval::Always, true), None);
    }

    #[test]
    fn only_servers_that_do_not_advertise_keep_their_peers_from_clients() {
        let secretive = text(3, SyncInterval::Always, false).unwrap();
        assert_eq!(secretive.matches("no_advertise: true").count(), 1);
        assert!(!THREE.contains("no_advertise"));
    }

    #[test]
    fn every_value_that_a_shipped_file_asks_for_is_given() {
        for (text, cluster) in [(ONE, None), (THREE, Some(3))] {
            let ports = Ports {
                client: 1,
                monitor: 2,
                cluster,
            };
            let values = values("nats-1", ports, Path::new("/data"), 1, &[3]);
            let settings = text
                .lines()
                .filter(|line| !line.trim_start().starts_with('#'));
            let mut asked: Vec<&str> = settings
                .filter_map(|line| Some(line.split_once(" $")?.1))
                .collect();
            asked.sort_unstable();
            assert_eq!(asked, values.keys().map(String::as_str).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_two_files_agree_in_all_that_is_not_about_the_cluster() {
        let settings = |text: &'static str| -> Vec<&str> {
            let lines = text.lines().map(str::trim);
            lines
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .collect()
        };
        let (one, three) = (settings(ONE), settings(THREE));
        assert_eq!(one[..], three[..one.len()]);
        assert_eq!(three[one.len()], "cluster {");
    }
}
