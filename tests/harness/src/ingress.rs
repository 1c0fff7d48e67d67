//! What stands before the webhook receivers: one address that GitHub knows, and any number of receivers behind it that come and go.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// A load balancer of connections. Connections to a receiver that is taken out are cut; without any, new ones are closed at once.
#[derive(Debug)]
pub struct Ingress {
    address: SocketAddr,
    receivers: watch::Sender<Arc<[String]>>,
    tasks: TaskTracker,
    _stop: DropGuard,
}

impl Ingress {
    /// Listens on a free port, with nobody behind it.
    ///
    /// # Errors
    ///
    /// When there is no free port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (receivers, watched) = watch::channel(Arc::from([]));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (connections, until) = (tasks.clone(), stop.clone());
        tasks.spawn(async move {
            let accept = async {
                let mut turn = 0_usize;
                loop {
                    // A client that went away is no reason to stop.
                    let Ok((client, _)) = listener.accept().await else { continue };
                    turn = turn.wrapping_add(1);
                    let (watched, until) = (watched.clone(), until.clone());
                    connections.spawn(async move {
                        until.run_until_cancelled(pass_on(client, watched, turn)).await;
                    });
                }
            };
            until.run_until_cancelled(accept).await;
        });
        Ok(Self { address, receivers, tasks, _stop: stop.drop_guard() })
    }

    /// The URL to register as a webhook's.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// From now on these receivers, as addresses with ports, take turns.
    pub fn serve(&self, receivers: impl IntoIterator<Item = String>) {
        self.receivers.send_replace(receivers.into_iter().collect());
    }

    /// Ends, with all connections.
    pub async fn stop(self) {
        let Self { tasks, _stop, .. } = self;
        drop(_stop);
        tasks.close();
        tasks.wait().await;
    }
}

/// Serves one connection by the receiver whose turn it is, or the next one that answers.
async fn pass_on(mut client: TcpStream, mut receivers: watch::Receiver<Arc<[String]>>, turn: usize) {
    let known = receivers.borrow_and_update().clone();
    let first = turn.checked_rem(known.len()).unwrap_or_default();
    let (before, after) = known.split_at(first);
    for receiver in after.iter().chain(before) {
        let Ok(mut server) = TcpStream::connect(receiver.as_str()).await else { continue };
        let taken_out = receivers.wait_for(|now| !now.contains(receiver));
        tokio::select! {
            _ = io::copy_bidirectional(&mut client, &mut server) => {}
            _ = taken_out => {}
        }
        return;
    }
}
