//! A cable between two ends: bytes pass as they are until it is cut.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A running cable; dropping it cuts it for good.
#[derive(Debug)]
pub(crate) struct Cable {
    pub(crate) address: SocketAddr,
    cuts: watch::Sender<u64>,
    _tasks: JoinSet<()>,
}

impl Cable {
    /// Lays one to `end`.
    pub(crate) async fn to(end: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = watch::Sender::new(0);
        let cut = cuts.subscribe();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut cut = cut.clone();
                cut.mark_unchanged();
                while connections.try_join_next().is_some() {}
                connections.spawn(async move {
                    let Ok(mut end) = TcpStream::connect(end).await else {
                        return;
                    };
                    tokio::select! {
                        _ = cut.changed() => {}
                        _ = copy_bidirectional(&mut stream, &mut end) => {}
                    }
                });
            }
        });
        Self {
            address,
            cuts,
            _tasks: tasks,
        }
    }

    /// Cuts every connection that is open.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }
}
