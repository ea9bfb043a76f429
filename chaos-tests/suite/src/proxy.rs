//! A TCP proxy that stands between one process and those whom it talks to, and misbehaves as networks do.
//!
//! Each direction of a link has a condition of its own. *Held* bytes wait, as in a partition that the kernel's retransmission outlives: after
//! healing they arrive, late. *Swallowed* bytes are read and lost without a reset: nobody is told anything, and after healing the connection
//! has a hole, so it is cut then. A *delayed* direction passes each piece on after a while. While either direction is held or swallowed an
//! end of the connection is not passed on either: the other side keeps a half-open connection. New connections are accepted always, and
//! then get what the conditions say, so a process that connects anew is not told more than one that waits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;

/// What one direction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Flow {
    /// Passes bytes on.
    #[default]
    Open,
    /// Passes each piece on after this long.
    Delayed(Duration),
    /// Passes nothing on; what was sent arrives after healing.
    Held,
    /// Reads and loses what is sent.
    Swallowed,
}

impl Flow {
    fn is_broken(self) -> bool {
        matches!(self, Flow::Held | Flow::Swallowed)
    }
}

/// What a link does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Condition {
    /// From the process to whom it talks to.
    pub(crate) out: Flow,
    /// The other way.
    pub(crate) back: Flow,
}

impl Condition {
    fn is_broken(self) -> bool {
        self.out.is_broken() || self.back.is_broken()
    }
}

/// How much a link has done to its connections, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Bytes that were lost.
    pub(crate) swallowed: u64,
    /// Pieces that waited.
    pub(crate) waited: u64,
    /// Connections that were cut.
    pub(crate) cut: u64,
}

#[derive(Debug, Default)]
struct Counters {
    swallowed: AtomicU64,
    waited: AtomicU64,
    cut: AtomicU64,
}

/// The connections of one process to some addresses: a proxy for each, one condition for all.
#[derive(Debug)]
pub(crate) struct Link {
    addresses: Vec<SocketAddr>,
    control: Control,
    stop: CancellationToken,
}

#[derive(Debug, Clone)]
struct Control {
    condition: Arc<watch::Sender<Condition>>,
    /// Counts up with each cut: a connection lives as long as it does not change.
    generation: Arc<watch::Sender<u64>>,
    counters: Arc<Counters>,
}

impl Link {
    /// Listens on as many ports as there are addresses, in their order.
    pub(crate) async fn to(upstreams: &[SocketAddr], tasks: &TaskTracker) -> anyhow::Result<Self> {
        let control = Control {
            condition: Arc::new(watch::Sender::new(Condition::default())),
            generation: Arc::new(watch::Sender::new(0)),
            counters: Arc::default(),
        };
        let stop = CancellationToken::new();
        let mut addresses = Vec::new();
        for upstream in upstreams {
            let listener = TcpListener::bind("127.0.0.1:0")
                .await
                .context("listening as a proxy")?;
            addresses.push(listener.local_addr()?);
            let accepting = accept(listener, *upstream, control.clone(), tasks.clone());
            tasks.spawn(stop.clone().run_until_cancelled_owned(accepting));
        }
        Ok(Self {
            addresses,
            control,
            stop,
        })
    }

    /// Where the process connects.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// From now on; [`Condition::default`] heals.
    pub(crate) fn set(&self, condition: Condition) {
        self.control.condition.send_replace(condition);
    }

    /// What it does now.
    pub(crate) fn condition(&self) -> Condition {
        *self.control.condition.borrow()
    }

    /// Ends every connection that there is, on both sides.
    pub(crate) fn cut(&self) {
        self.control
            .generation
            .send_modify(|generation| *generation += 1);
    }

    pub(crate) fn counts(&self) -> Counts {
        let counters = &self.control.counters;
        Counts {
            swallowed: counters.swallowed.load(Ordering::Relaxed),
            waited: counters.waited.load(Ordering::Relaxed),
            cut: counters.cut.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.cancel();
        self.cut();
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, control: Control, tasks: TaskTracker) {
    while let Ok((stream, _)) = listener.accept().await {
        tasks.spawn(serve(stream, upstream, control.clone()));
    }
}

/// One connection, until an end of it is passed on, or it is cut.
async fn serve(near: TcpStream, upstream: SocketAddr, control: Control) {
    let mut generation = control.generation.subscribe();
    let began = *generation.borrow_and_update();
    let Ok(far) = TcpStream::connect(upstream).await else {
        // Whom it talks to is away: the process is told as it would be without a proxy.
        let _ = near.set_zero_linger();
        return;
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    let out = pass(near_read, far_write, &control, |condition| condition.out);
    let back = pass(far_read, near_write, &control, |condition| condition.back);
    tokio::select! {
        () = out => {}
        () = back => {}
        _ = generation.wait_for(|now| *now != began) => {
            control.counters.cut.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Passes bytes on in one direction; returns when the connection should end.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    control: &Control,
    of: impl Fn(&Condition) -> Flow,
) {
    let mut condition = control.condition.subscribe();
    let mut piece = vec![0; PIECE];
    let mut has_hole = false;
    loop {
        let read = from.read(&mut piece).await;
        let Some(bytes) = read
            .ok()
            .and_then(|read| piece.get(..read))
            .filter(|bytes| !bytes.is_empty())
        else {
            break;
        };
        let flow = of(&condition.borrow_and_update());
        match flow {
            Flow::Open => {}
            Flow::Delayed(by) => {
                control.counters.waited.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(by).await;
            }
            Flow::Held => {
                control.counters.waited.fetch_add(1, Ordering::Relaxed);
                if condition
                    .wait_for(|now| of(now) != Flow::Held)
                    .await
                    .is_err()
                {
                    return;
                }
            }
            Flow::Swallowed => {
                let lost = u64::try_from(bytes.len()).unwrap_or(0);
                control
                    .counters
                    .swallowed
                    .fetch_add(lost, Ordering::Relaxed);
                has_hole = true;
                continue;
            }
        }
        if has_hole {
            control.counters.cut.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if to.write_all(bytes).await.is_err() {
            break;
        }
    }
    // The other side hears of the end only once the link is whole.
    let _ = condition.wait_for(|now| !now.is_broken()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Echoes, on an address of its own.
    async fn echo(tasks: &TaskTracker) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            }
        });
        address
    }

    struct Bench {
        link: Link,
        stream: TcpStream,
    }

    async fn bench() -> Bench {
        let tasks = TaskTracker::new();
        let link = Link::to(&[echo(&tasks).await], &tasks).await.unwrap();
        let stream = TcpStream::connect(link.addresses()[0]).await.unwrap();
        let mut bench = Bench { link, stream };
        assert_eq!(bench.ask(b"a").await, Some(b'a'));
        bench
    }

    impl Bench {
        /// What comes back; nothing at the connection's end.
        async fn ask(&mut self, word: &[u8; 1]) -> Option<u8> {
            self.stream.write_all(word).await.unwrap();
            self.hear().await
        }

        async fn hear(&mut self) -> Option<u8> {
            self.stream.read_u8().await.ok()
        }

        async fn until(&self, so: impl Fn(Counts) -> bool) {
            while !so(self.link.counts()) {
                tokio::task::yield_now().await;
            }
        }
    }

    fn one_way(back: Flow) -> Condition {
        Condition {
            out: Flow::Open,
            back,
        }
    }

    #[tokio::test]
    async fn f5_held_bytes_arrive_after_healing_on_the_same_connection() {
        let mut bench = bench().await;
        bench.link.set(one_way(Flow::Held));
        bench.stream.write_all(b"b").await.unwrap();
        bench.until(|counts| counts.waited == 1).await;
        bench.link.set(Condition::default());
        assert_eq!(bench.hear().await, Some(b'b'));
        assert_eq!(bench.ask(b"c").await, Some(b'c'));
    }

    #[tokio::test]
    async fn f5_swallowed_bytes_are_lost_without_a_word_and_the_hole_ends_the_connection_after_healing()
     {
        let mut bench = bench().await;
        bench.link.set(one_way(Flow::Swallowed));
        bench.stream.write_all(b"b").await.unwrap();
        bench.until(|counts| counts.swallowed == 1).await;
        bench.link.set(Condition::default());
        assert_eq!(bench.ask(b"c").await, None);
        assert_eq!(bench.link.counts().cut, 1);
    }

    #[tokio::test]
    async fn f5_a_cut_ends_what_is_there_and_takes_what_comes() {
        let mut bench = bench().await;
        bench.link.cut();
        assert_eq!(bench.hear().await, None);
        bench.stream = TcpStream::connect(bench.link.addresses()[0]).await.unwrap();
        assert_eq!(bench.ask(b"b").await, Some(b'b'));
    }
}
