//! A network link to the API server that can be cut.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards connections. While it is cut, nothing arrives in either direction and nobody is told: as when a switch fails.
#[derive(Debug)]
pub(crate) struct Link {
    address: SocketAddr,
    whole: watch::Sender<bool>,
    _work: JoinSet<()>,
}

impl Link {
    /// A whole link to this port of the loopback interface.
    pub(crate) async fn to(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (whole, state) = watch::channel(true);
        let mut work = JoinSet::new();
        work.spawn(serve(listener, port, state));
        Ok(Self { address, whole, _work: work })
    }

    /// Where it is reached.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Cuts or mends it.
    pub(crate) fn set_whole(&self, whole: bool) {
        self.whole.send_replace(whole);
    }
}

/// Ends with the task, and with it every connection.
async fn serve(listener: TcpListener, port: u16, state: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let state = state.clone();
        connections.spawn(async move {
            let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            tokio::select! {
                () = forward(near_read, far_write, state.clone()) => {}
                () = forward(far_read, near_write, state) => {}
            }
        });
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut whole: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let Some(bytes) = buffer.get(..read) else { return };
        if whole.wait_for(|whole| *whole).await.is_err() || to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
