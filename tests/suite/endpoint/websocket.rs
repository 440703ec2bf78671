//! Frames both ways.

use serde_json::Value;

use crate::support::mirror::{Mirror, Peer, SOUL, masked, of_child, of_turn, request, unmasked};
use crate::support::processes::descriptors;

async fn mirror() -> Mirror {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    mirror
}

#[tokio::test]
async fn identity_is_read_per_message() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    let parent = request(&of_turn("t", "u", &generation), "");
    let child = request(&of_child(), "");
    let interrupt = r#"{"type":"response.interrupt","response_id":"r"}"#;
    for round in 0..3 {
        // Several requests in flight: nothing waits for an answer.
        codex.write(&masked(0x81, parent.as_bytes())).await;
        codex.write(&masked(0x81, child.as_bytes())).await;
        codex.write(&masked(0x81, interrupt.as_bytes())).await;
        codex.write(&masked(0x82, b"\x00\xff")).await;
        codex.write(&masked(0x81, b"not json")).await;
        let got = String::from_utf8(upstream.message().await).unwrap();
        assert!(got.contains(SOUL), "{round}: {got}");
        assert!(got.ends_with(&parent[1..]), "{round}: {got}");
        for expected in [
            child.as_bytes(),
            interrupt.as_bytes(),
            b"\x00\xff",
            b"not json",
        ] {
            assert_eq!(upstream.message().await, expected, "{round}");
        }
    }
}

#[tokio::test]
async fn fragments_of_any_size_are_one_message() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    let parent = request(&of_turn("t", "u", &generation), ",\"instructions\":\"own\"");
    let bytes = parent.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let opcode = u8::from(at == 0);
        let fin = u8::from(at + 1 == bytes.len()) << 7;
        codex.write(&masked(fin | opcode, &[*byte])).await;
        if at == 7 {
            codex.write(&masked(0x89, b"between")).await;
            let (first, payload) = upstream.frame().await;
            assert_eq!((first, payload.as_slice()), (0x89, &b"between"[..]));
        }
    }
    let got = String::from_utf8(upstream.message().await).unwrap();
    let (before, after) = parent.split_once("own").unwrap();
    let own = got
        .strip_prefix(before)
        .and_then(|got| got.strip_suffix(after))
        .unwrap();
    assert!(own.starts_with(r"own\n\n") && own.contains(SOUL), "{own}");
}

#[tokio::test]
async fn pong_passes_while_a_long_message_goes_up() {
    let mirror = mirror().await;
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    let message = request(
        &of_child(),
        &format!(",\"pad\":\"{}\"", "x".repeat(30_000_000)),
    );
    codex.write(&masked(0x81, message.as_bytes())).await;
    // The upstream has read nothing yet: the message is stuck in the middle.
    let (first, mut got) = upstream.frame().await;
    assert_eq!(first, 0x01);
    upstream.write(&unmasked(0x89, b"alive?")).await;
    let (first, payload) = codex.frame().await;
    assert_eq!((first, payload.as_slice()), (0x89, &b"alive?"[..]));
    codex.write(&masked(0x8A, b"alive?")).await;
    let mut has_pong = false;
    loop {
        let (first, payload) = upstream.frame().await;
        if first == 0x8A {
            assert_eq!(payload, b"alive?");
            has_pong = true;
            continue;
        }
        got.extend_from_slice(&payload);
        if first & 0x80 != 0 {
            break;
        }
    }
    assert!(has_pong, "the pong came behind the message");
    assert!(got == message.as_bytes(), "the message is another");
}

#[tokio::test]
async fn ping_is_answered_while_codex_is_in_the_middle_of_a_frame() {
    let mirror = mirror().await;
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    let message = request(&of_child(), "");
    let frame = masked(0x81, message.as_bytes());
    let (first, rest) = frame.split_at(frame.len() / 2);
    // Behind a message, so that the relay has surely read the half.
    codex
        .write(&[&masked(0x82, b"before"), first].concat())
        .await;
    assert_eq!(upstream.frame().await, (0x82, b"before".to_vec()));
    for payload in [&b""[..], &[7; 125]] {
        upstream.write(&unmasked(0x89, payload)).await;
        assert_eq!(upstream.frame().await, (0x8A, payload.to_vec()));
    }
    upstream.write(&unmasked(0x81, b"for codex")).await;
    assert_eq!(codex.frame().await, (0x81, b"for codex".to_vec()));
    codex.write(rest).await;
    assert_eq!(upstream.message().await, message.as_bytes());
    upstream.write(&unmasked(0x89, b"again")).await;
    assert_eq!(codex.frame().await, (0x89, b"again".to_vec()));
}

#[tokio::test]
async fn nothing_comes_behind_a_close_of_ours() {
    let mirror = mirror().await;
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    let first = unmasked(0x01, b"x");
    let limit = vec![b'y'; 33_554_432];
    let rest = [unmasked(0x80, &limit), unmasked(0x81, b"next")].concat();
    upstream.write(&first).await;
    // The relay may hang up before it has taken it all.
    let send = async {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut upstream.0, &rest).await;
    };
    let read = async {
        assert_eq!(codex.frame().await, (0x01, b"x".to_vec()));
        let (opcode, payload) = codex.frame().await;
        assert_eq!((opcode, &payload[..2]), (0x88, &1009_u16.to_be_bytes()[..]));
        assert_eq!(codex.rest().await, b"");
    };
    tokio::join!(send, read);
}

/// Reads a close frame, behind which nothing comes, and gives its code.
async fn closed_with(peer: &mut Peer) -> u16 {
    let (first, payload) = peer.frame().await;
    let words = String::from_utf8_lossy(&payload[2..]).into_owned();
    assert_eq!(first, 0x88, "{words}");
    assert!(words.starts_with("codex-relay: "), "{words}");
    assert_eq!(peer.rest().await, b"", "{words}");
    u16::from_be_bytes([payload[0], payload[1]])
}

#[tokio::test]
async fn codex_that_breaks_the_protocol_is_told_so() {
    let mirror = mirror().await;
    let child = request(&of_child(), "");
    let impossible = [0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    for (frames, code) in [
        (
            [masked(0x01, b"begun"), masked(0x81, child.as_bytes())].concat(),
            1002,
        ),
        (masked(0x80, b"never begun"), 1002),
        (masked(0xC1, child.as_bytes()), 1002),
        (masked(0xA9, b"ping"), 1002),
        (unmasked(0x81, child.as_bytes()), 1002),
        (masked(0x83, b"reserved"), 1002),
        (masked(0x8B, b"reserved"), 1002),
        (masked(0x09, b"ping"), 1002),
        (masked(0x8A, &[b'x'; 126]), 1002),
        (impossible.to_vec(), 1002),
        (masked(0x88, b"\x03"), 1002),
        (masked(0x88, b"\x03\xed"), 1002),
        (masked(0x88, b"\x13\x88"), 1002),
        (masked(0x88, b"\x03\xe8\xff"), 1007),
    ] {
        let (mut codex, mut upstream, _) = mirror.socket("", "").await;
        // It stands in the middle of a message of the upstream.
        upstream.write(&unmasked(0x01, b"first")).await;
        assert_eq!(codex.frame().await, (0x01, b"first".to_vec()));
        codex.write(&frames).await;
        assert_eq!(closed_with(&mut codex).await, code, "{frames:x?}");
        assert_eq!(upstream.rest().await, b"", "{frames:x?}");
    }
}

#[tokio::test]
async fn upstream_that_breaks_the_protocol_is_a_failure_for_codex() {
    let mirror = mirror().await;
    let server = |first: u8, payload: &[u8]| {
        let mut frame = unmasked(first, payload);
        frame[0] = first;
        frame
    };
    for frames in [
        [server(0x01, b"begun"), server(0x81, b"{}")].concat(),
        server(0x80, b"never begun"),
        server(0xC1, b"{}"),
        masked(0x81, b"{}"),
        server(0x83, b"reserved"),
        server(0x8B, b"reserved"),
        server(0x09, b"ping"),
        server(0x8A, &[b'x'; 126]),
        vec![0x82, 0x7F, 0x80, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let (mut codex, mut upstream, _) = mirror.socket("", "").await;
        upstream.write(&server(0x81, b"well")).await;
        upstream.write(&frames).await;
        assert_eq!(codex.frame().await, (0x81, b"well".to_vec()));
        if frames.starts_with(&[0x01]) {
            assert_eq!(codex.frame().await, (0x01, b"begun".to_vec()));
        }
        assert_eq!(closed_with(&mut codex).await, 1011, "{frames:x?}");
        drop(codex);
        upstream.rest().await;
    }
}

#[tokio::test]
async fn close_codes_and_last_frames_arrive() {
    let mirror = mirror().await;
    for code in [1000_u16, 1001, 1008, 1009, 1011, 1012, 4000] {
        let payload = [&code.to_be_bytes()[..], "because \u{e9}".as_bytes()].concat();
        let (mut codex, mut upstream, _) = mirror.socket("", "").await;
        let last = [
            unmasked(0x01, b"la"),
            unmasked(0x80, b"st"),
            unmasked(0x88, &payload),
        ]
        .concat();
        upstream.write(&last).await;
        drop(upstream);
        assert_eq!(codex.rest().await, last, "{code}");
        let (mut codex, mut upstream, _) = mirror.socket("", "").await;
        codex.write(&masked(0x81, b"last")).await;
        codex.write(&masked(0x88, &payload)).await;
        drop(codex);
        assert_eq!(upstream.message().await, b"last", "{code}");
        assert_eq!(upstream.frame().await, (0x88, payload), "{code}");
        assert_eq!(upstream.rest().await, b"");
    }
    // An end without a close stays one.
    let (mut codex, upstream, _) = mirror.socket("", "").await;
    drop(upstream);
    assert_eq!(codex.rest().await, b"");
}

#[tokio::test]
async fn last_words_before_a_reset_arrive_in_the_middle_of_an_upload() {
    let mirror = mirror().await;
    let pad = format!(",\"pad\":\"{}\"", "x".repeat(16_000_000));
    let message = masked(0x81, request(&of_child(), &pad).as_bytes());
    for _ in 0..3 {
        let (mut codex, mut upstream, _) = mirror.socket("", "").await;
        // Longer than what the relay reads at once.
        let said = "{\"type\":\"error\"}".repeat(3_000);
        let close = [&1009_u16.to_be_bytes()[..], b"too long"].concat();
        let last = [unmasked(0x81, said.as_bytes()), unmasked(0x88, &close)].concat();
        let uploading = async {
            // It may end before all has gone.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut codex.0, &message).await;
            codex.rest().await
        };
        let ending = async {
            upstream.exactly(1000).await;
            upstream.write(&last).await;
            // With unread bytes in it, a dropped socket is reset.
            drop(upstream);
        };
        let (rest, ()) = tokio::join!(uploading, ending);
        assert!(rest == last, "{} bytes", rest.len());
    }
}

#[tokio::test]
async fn sockets_that_come_and_go_leave_nothing() {
    let mirror = mirror().await;
    let before = descriptors(mirror.client.pid());
    for cycle in 0..120 {
        let (mut codex, mut upstream, _) = mirror.socket("", "").await;
        // Idle sockets live by their pings, in both directions.
        upstream.write(&unmasked(0x89, b"up")).await;
        assert_eq!(codex.frame().await, (0x89, b"up".to_vec()));
        codex.write(&masked(0x8A, b"up")).await;
        assert_eq!(upstream.frame().await, (0x8A, b"up".to_vec()));
        codex.write(&masked(0x89, b"down")).await;
        assert_eq!(upstream.frame().await, (0x89, b"down".to_vec()));
        upstream.write(&unmasked(0x8A, b"down")).await;
        assert_eq!(codex.frame().await, (0x8A, b"down".to_vec()));
        match cycle % 4 {
            0 => drop(codex),
            1 => drop(upstream),
            2 => {
                // A reset of one side or the other.
                codex.write(&masked(0x81, b"{}")).await;
                upstream.0.readable().await.unwrap();
                drop(upstream);
                codex.rest().await;
            }
            _ => {
                let bye = 1000_u16.to_be_bytes();
                codex.write(&masked(0x88, &bye)).await;
                assert_eq!(upstream.frame().await, (0x88, bye.to_vec()));
                upstream.write(&unmasked(0x88, &bye)).await;
                assert_eq!(codex.frame().await, (0x88, bye.to_vec()));
            }
        }
    }
    mirror.lets_go(before).await;
}

#[tokio::test]
async fn codex_that_is_gone_ends_an_upload_that_the_upstream_does_not_take() {
    let mirror = mirror().await;
    let before = descriptors(mirror.client.pid());
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    let message = request(
        &of_child(),
        &format!(",\"pad\":\"{}\"", "x".repeat(30_000_000)),
    );
    codex.write(&masked(0x81, message.as_bytes())).await;
    upstream.frame().await;
    drop(codex);
    // The upstream reads on only then.
    mirror.lets_go(before).await;
    let rest = upstream.rest().await;
    assert!(
        rest.len() < message.len() / 2,
        "{} bytes came all the same",
        rest.len()
    );
}

#[tokio::test]
async fn refusal_stands_between_messages_and_the_socket_goes_on() {
    let mirror = mirror().await;
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    upstream.write(&unmasked(0x01, b"half")).await;
    assert_eq!(codex.frame().await, (0x01, b"half".to_vec()));
    let stale = request(&of_turn("t", "u", "stale"), "");
    codex.write(&masked(0x81, stale.as_bytes())).await;
    codex.write(&masked(0x81, b"{}")).await;
    assert_eq!(upstream.message().await, b"{}");
    upstream.write(&unmasked(0x80, b"whole")).await;
    assert_eq!(codex.frame().await, (0x80, b"whole".to_vec()));
    let (first, payload) = codex.frame().await;
    let event: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(
        (first, &event["type"]),
        (0x81, &Value::from("response.failed"))
    );
    assert_eq!(event["response"]["error"]["code"], "invalid_prompt");
    let words = event["response"]["error"]["message"].as_str().unwrap();
    assert!(words.contains("(generation_stale)"), "{words}");
}
