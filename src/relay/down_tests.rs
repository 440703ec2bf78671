use std::sync::atomic::AtomicBool;

use super::*;
use crate::upstream::calls::Calls;

fn frame(fin: bool, opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    FrameHead {
        fin,
        ..FrameHead::last(opcode, payload.len() as u64)
    }
    .encode(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn boundaries_are_found_however_the_stream_is_cut() {
    let stream = [
        frame(false, OpCode::Text, b"ab"),
        frame(true, OpCode::Ping, b"p"),
        frame(true, OpCode::Continuation, b"c"),
        frame(true, OpCode::Text, &[b'x'; 200]),
    ]
    .concat();
    let ends = [stream.len() - 204, stream.len()];
    for step in 1..stream.len() {
        let mut track = Track::default();
        let mut held: Vec<u8> = Vec::new();
        let mut passed = 0;
        for chunk in stream.chunks(step) {
            held.extend_from_slice(chunk);
            let count = track.advance(&held, Pings::Passed);
            passed += count;
            held.drain(..count);
            if track.at_boundary() && held.is_empty() && passed > 0 {
                assert!(
                    ends.contains(&passed),
                    "cut {step}: {passed} of {}",
                    stream.len()
                );
            }
        }
        assert!(track.at_boundary() && held.is_empty());
    }
}

#[test]
fn message_at_the_bound_passes_and_one_above_does_not() {
    let head = |fin, opcode, length| {
        let mut bytes = Vec::new();
        FrameHead {
            fin,
            ..FrameHead::last(opcode, length)
        }
        .encode(&mut bytes);
        bytes
    };
    let limit = MAX_MESSAGE_BYTES as u64;
    let mut track = Track::default();
    track.advance(&head(true, OpCode::Text, limit), Pings::Passed);
    assert!(!track.is_over);
    let mut track = Track::default();
    let over = head(true, OpCode::Binary, limit + 1);
    assert_eq!(
        (track.advance(&over, Pings::Passed), track.is_over),
        (0, true)
    );
    let mut track = Track::default();
    let first = [head(false, OpCode::Text, 1), vec![b'x']].concat();
    assert_eq!(track.advance(&first, Pings::Passed), first.len());
    track.advance(&head(true, OpCode::Continuation, limit), Pings::Passed);
    assert!(track.is_over);
}

#[test]
fn response_is_over_when_a_message_begins_by_saying_so() {
    let over = |messages: &[Vec<u8>]| {
        let stream = messages.concat();
        (1..stream.len()).all(|step| {
            let mut track = Track::default();
            let mut held: Vec<u8> = Vec::new();
            for chunk in stream.chunks(step) {
                held.extend_from_slice(chunk);
                let count = track.advance(&held, Pings::Passed);
                held.drain(..count);
            }
            track.lead.is_answered
        })
    };
    let text = |text: &str| frame(true, OpCode::Text, text.as_bytes());
    let end = r#"{"type":"response.completed","response":{}}"#;
    assert!(over(&[text(end)]));
    assert!(over(&[text("{}"), text(end), text("{}")]));
    let parts = [
        frame(false, OpCode::Text, &end.as_bytes()[..20]),
        frame(true, OpCode::Ping, b"ping"),
        frame(true, OpCode::Continuation, &end.as_bytes()[20..]),
    ];
    assert!(over(&parts));
    assert!(!over(&[frame(true, OpCode::Ping, end.as_bytes())]));
    let late = format!(
        r#"{{"type":"response.output_text.delta","delta":"{}{end}"}}"#,
        " ".repeat(64)
    );
    assert!(!over(&[text(&late)]));
}

#[tokio::test]
async fn refusal_waits_for_the_end_of_a_message() {
    let is_mid_frame = AtomicBool::new(false);
    let answering = Answering {
        is_mid_frame: &is_mid_frame,
        pings: mpsc::channel(1).0,
    };
    let call = Calls::default().idle();
    let (mut upstream, from) = io::duplex(1024);
    let (to, mut codex) = io::duplex(1024);
    let (say, words) = mpsc::channel(1);
    say.send(Word::Text("no".to_owned())).await.unwrap();
    let first = frame(false, OpCode::Continuation, b"ab");
    let last = frame(true, OpCode::Continuation, b"c");
    upstream.write_all(&first).await.unwrap();
    let down = Down {
        track: Track {
            is_open: true,
            ..Track::default()
        },
        ..Down::new(from, to, words, answering, &call)
    };
    let feed = async {
        let mut seen = vec![0; first.len()];
        codex.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, first);
        upstream.write_all(&last).await.unwrap();
        let mut seen = vec![0; last.len() + 4];
        codex.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, [last, frame(true, OpCode::Text, b"no")].concat());
        drop(upstream);
    };
    tokio::join!(down.run(), feed);
}
