//! Connections that can be cut: what the `reset` fault needs. A cut connection refuses the next write and is closed with
//! a reset, so that the client sees `connection reset` after the service has acted, and not one byte of an answer.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// A listener whose connections can be cut.
pub(super) struct Doors(TcpListener);

impl Doors {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self(listener)
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Listener for Doors {
    type Io = Line;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Line, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.0).await;
        // Answers are one small packet; waiting to fill it would only add latency.
        let _ = stream.set_nodelay(true);
        (
            Line {
                stream,
                cut: Cut::default(),
            },
            peer,
        )
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.address()
    }
}

/// The handle by which a request handler cuts its own connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Cut(Arc<AtomicBool>);

impl Cut {
    /// The connection is reset in place of the answer that the handler returns next.
    pub(super) fn cut(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Connected<IncomingStream<'_, Doors>> for Cut {
    fn connect_info(stream: IncomingStream<'_, Doors>) -> Self {
        stream.io().cut.clone()
    }
}

/// One connection.
pub(super) struct Line {
    stream: TcpStream,
    cut: Cut,
}

impl Line {
    fn whole(&self) -> io::Result<()> {
        if !self.cut.0.load(Ordering::Acquire) {
            return Ok(());
        }
        // Without lingering, closing sends a reset instead of an orderly end.
        self.stream.set_zero_linger()?;
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
