//! A runner that gives only pipes, and closes them in odd orders.

use serde_json::Value;

use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::processes::{eventually_one, none_marked};
use crate::support::stage::Stage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    In,
    Out,
    Err,
}

impl Stream {
    fn close(self, client: &Client) {
        match self {
            Self::In => client.close_stdin(),
            Self::Out => client.close_stdout(),
            Self::Err => client.close_stderr(),
        }
    }
}

/// The orders in which streams are closed; those that are missing never are.
const ORDERS: [&[Stream]; 8] = [
    &[Stream::Out],
    &[Stream::Out, Stream::Err],
    &[Stream::Out, Stream::In, Stream::Err],
    &[Stream::Err, Stream::Out],
    &[Stream::Err, Stream::In],
    &[Stream::Err, Stream::Out, Stream::In],
    &[Stream::In, Stream::Out, Stream::Err],
    &[Stream::In, Stream::Err, Stream::Out],
];

async fn no_order_of_closing_leaves_anything(case: Case) {
    let stage = Stage::set(case).await;
    for order in ORDERS {
        // Stderr has something to say all the time.
        let launch = || stage.relay().env("RUST_LOG", "info");
        let (mut idle, thread) = launch().with_thread().await;
        if order[0] == Stream::Err {
            Stream::Err.close(&idle);
            let turn = idle.turn(&thread, "hello").await;
            assert_eq!(turn["status"], "completed", "{turn}");
        }
        close(&mut idle, order).await;
        let (mut busy, thread) = launch().with_thread().await;
        let from = busy.inbox.len();
        busy.start_turn(&thread, "[wait]").await;
        let is_command = |params: &Value| params["item"]["type"] == "commandExecution";
        busy.notification(from, "item/started", is_command).await;
        eventually_one(&busy.mark, |it| it.command.starts_with("sleep ")).await;
        close(&mut busy, order).await;
    }
}
matrix!(no_order_of_closing_leaves_anything: versions);

/// Closes the streams, and waits until nothing is left.
async fn close(client: &mut Client, order: &[Stream]) {
    for stream in order {
        stream.close(client);
    }
    let exit = client.exit().await;
    assert_eq!(exit.code(), Some(0), "{order:?}");
    none_marked(&client.mark).await;
}
