//! Connections to the upstream that end while they are used again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;

use crate::support::dice::Dice;
use crate::support::mirror::{Mirror, Peer, of_child, request};

/// Answers one request after the other and goes away at some moment, in order or by a reset; counts how
/// often it has seen each, as a whole.
async fn fickle(mut peer: Peer, seen: Arc<Mutex<BTreeMap<String, usize>>>, mut left: usize) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match peer.0.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        if left == 0 {
            // The body is unread: a reset.
            return;
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let (_, after) = head.split_once("content-length: ").unwrap();
        let length: usize = after.split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        peer.0.read_exact(&mut body).await.unwrap();
        let (_, number) = head.split_once("x-number: ").unwrap();
        let number = number.split("\r\n").next().unwrap().to_owned();
        *seen.lock().unwrap().entry(number.clone()).or_default() += 1;
        left -= 1;
        let answer =
            format!("HTTP/1.1 200 OK\r\nx-number: {number}\r\nContent-Length: 2\r\n\r\nok");
        peer.write(answer.as_bytes()).await;
        if left == 0 && length.is_multiple_of(2) {
            return;
        }
    }
}

#[tokio::test]
async fn requests_that_meet_the_end_of_their_connection_are_never_sent_twice() {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    let mut dice = Dice::new();
    let seen: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let mut peers = JoinSet::new();
    let mut codex = mirror.dial().await;
    let mut failed = 0;
    for number in 0..500 {
        let pad = "x".repeat(usize::try_from(dice.roll(3)).unwrap());
        let body = request(&of_child(), &format!(",\"pad\":\"{pad}\""));
        let post = mirror.post(&format!("x-number: {number}\r\n"), body.as_bytes());
        codex.write(&post).await;
        let mut answer = Box::pin(codex.head());
        let head = loop {
            tokio::select! {
                head = &mut answer => break head,
                peer = mirror.accept() => {
                    let left = 1 + usize::try_from(dice.roll(3)).unwrap();
                    peers.spawn(fickle(peer, Arc::clone(&seen), left));
                }
            }
        };
        drop(answer);
        let lower = head.to_lowercase();
        let (_, length) = lower.split_once("content-length: ").unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        let words = String::from_utf8(codex.exactly(length).await).unwrap();
        let count = seen
            .lock()
            .unwrap()
            .get(&number.to_string())
            .copied()
            .unwrap_or(0);
        if head.starts_with("HTTP/1.1 200 ") {
            assert!(lower.contains(&format!("x-number: {number}\r\n")), "{head}");
            assert_eq!(count, 1, "{number}");
        } else {
            // It had been sent when the connection ended.
            assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
            assert!(words.contains("upstream: connection "), "{words}");
            assert!(count <= 1, "{number}");
            failed += 1;
        }
    }
    assert!(failed < 400, "{failed} of 500 failed");
}
