//! Bodies that hardly anybody would send, and many of one thread.

use serde_json::{Value, json};

use crate::support::mirror::{Mirror, Peer, SOUL, masked, of_child, of_turn};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn mirror() -> Mirror {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    mirror
}

/// Sends a body in one of the ways and gives what arrives of it.
async fn arrived(mirror: &Mirror, way: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    if way == "socket" {
        let (mut codex, mut upstream, _) = mirror.socket("", "").await;
        codex.write(&masked(0x81, body)).await;
        return upstream.message().await;
    }
    let mut codex = mirror.dial().await;
    let post = match way {
        "zstd" => {
            let packed = zstd::encode_all(body, 3).unwrap();
            mirror.post(&format!("{headers}Content-Encoding: zstd\r\n"), &packed)
        }
        "sized zstd" => {
            let packed = zstd::bulk::compress(body, 3).unwrap();
            mirror.post(&format!("{headers}Content-Encoding: zstd\r\n"), &packed)
        }
        "chunks" => {
            let headers = format!("{headers}Transfer-Encoding: chunked\r\n");
            let mut post = mirror.head("POST", "/responses", &headers);
            for part in body.chunks(1 + body.len() / 3) {
                post.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                post.extend_from_slice(part);
                post.extend_from_slice(b"\r\n");
            }
            [&post[..], b"0\r\n\r\n"].concat()
        }
        _ => mirror.post(headers, body),
    };
    let sending = codex.write(&post);
    let taking = async {
        let mut upstream = mirror.accept().await;
        let got = take(&mut upstream).await;
        upstream.write(OK).await;
        got
    };
    let ((), got) = tokio::join!(sending, taking);
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{way}: {head}");
    if way.ends_with("zstd") {
        return zstd::decode_all(&got[..]).unwrap();
    }
    got
}

/// Reads a request, whatever its framing.
async fn take(upstream: &mut Peer) -> Vec<u8> {
    let head = upstream.head().await.to_lowercase();
    if let Some((_, after)) = head.split_once("content-length: ") {
        let length = after.split("\r\n").next().unwrap().parse().unwrap();
        return upstream.exactly(length).await;
    }
    let mut body = Vec::new();
    loop {
        let size = String::from_utf8(upstream.until(b"\r\n").await).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        body.extend(upstream.exactly(size).await);
        upstream.exactly(2).await;
        if size == 0 {
            return body;
        }
    }
}

/// A body in no spelling of codex's: what stands before and behind the place of its context.
fn odd(metadata: &Value, pad: usize) -> [Vec<u8>; 2] {
    let metadata = Value::from(metadata.to_string());
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let mut before =
        b"\t{\n\"lone\" : \"\\ud83d\", \"\\udc00\":-0.0,\"big\":12345678901234567890e999,".to_vec();
    before.extend_from_slice(b"\"bytes\":\"\xff\xc3\x28\",\"nul\":\"\\u0000\",\"unknown_tool\":{\"type\":\"namespace\"},");
    before.extend_from_slice(format!("\"deep\":{deep},\"type\":\"response.create\",").as_bytes());
    before.extend_from_slice(b"\"instructions\" :  \"old \\ud83d \\\" \xf0\x9f\x98\x80\\\\");
    let mut after = format!("\"  ,\"input\":[\"{}\"],\"x\":1,\"x\":", "y".repeat(pad)).into_bytes();
    after.extend_from_slice(format!("{{\"instructions\":2}},\"client_metadata\":{{\"x-codex-turn-metadata\":{metadata}}} ,\"z\":null}}\r\n ").as_bytes());
    [before, after]
}

#[tokio::test]
async fn odd_bodies_gain_their_context_and_nothing_else_changes() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let metadata = of_turn("t", "u", &generation);
    let told = format!("x-codex-turn-metadata: {metadata}\r\n");
    let claim = json!({"x-codex-turn-metadata": metadata.to_string()});
    let plain = json!({"client_metadata": claim}).to_string();
    let plain = arrived(&mirror, "plain", "", plain.as_bytes()).await;
    let plain: Value = serde_json::from_slice(&plain).unwrap();
    let text = plain["instructions"].as_str().unwrap();
    assert!(text.ends_with(SOUL), "{text}");
    let gained = Value::from(format!("\n\n{text}")).to_string();
    let gained = gained.trim_matches('"');
    for way in ["plain", "chunks", "zstd", "sized zstd", "socket"] {
        for headers in ["", &told] {
            for pad in [1, 400_000] {
                let [before, after] = odd(&metadata, pad);
                let body = [&before[..], &after].concat();
                let expected = [&before[..], gained.as_bytes(), &after].concat();
                let got = arrived(&mirror, way, headers, &body).await;
                assert!(got == expected, "{way} {headers:?} {pad}");
                let body = odd(&of_child(), pad).concat();
                let got = arrived(&mirror, way, "x-openai-subagent: review\r\n", &body).await;
                assert!(got == body, "{way} {pad}: a child's");
            }
        }
    }
}

#[tokio::test]
async fn bytes_that_are_not_what_they_claim_pass_where_nothing_is_read() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    for coding in ["zstd", "gzip", "zstd, gzip", "x-unheard-of"] {
        let headers = format!("x-openai-subagent: compact\r\nContent-Encoding: {coding}\r\n");
        let body = b"\x28\xb5\x2f\xfd no frame at all";
        codex.write(&mirror.post(&headers, body)).await;
        let mut upstream = mirror.accept().await;
        let head = upstream.head().await;
        assert!(
            head.contains(&format!("Content-Encoding: {coding}\r\n")),
            "{head}"
        );
        assert_eq!(upstream.exactly(body.len()).await, body);
        upstream
            .write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            .await;
        assert!(codex.head().await.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test]
async fn turns_of_a_thread_begin_with_the_same_bytes() {
    let mut mirror = mirror().await;
    let mut last: Option<Vec<u8>> = None;
    let mut input = vec![json!({"role": "user", "content": "0"})];
    for turn in 0..30 {
        let id = format!("u{turn}");
        let generation = mirror.turn("t", &id).await;
        let metadata = Value::from(of_turn("t", &id, &generation).to_string());
        let told = json!({"x-codex-turn-metadata": metadata});
        let items = Value::from(input.clone()).to_string();
        let (items, _) = items.rsplit_once(']').unwrap();
        let body = format!(
            "{{\"model\":\"m\",\"instructions\":\"own\",\"input\":{items}],\"client_metadata\":{told}}}"
        );
        let got = arrived(&mirror, "plain", "", body.as_bytes()).await;
        if let Some(last) = last {
            // What the provider's cache goes by: all up to the end of what was said before.
            assert!(got.starts_with(&last), "{turn}");
        }
        let end = memchr::memmem::find(&got, b"],\"client_metadata\"").unwrap();
        assert!(memchr::memmem::find(&got[..end], SOUL.as_bytes()).is_some());
        last = Some(got[..end].to_vec());
        input.push(json!({"role": "user", "content": turn.to_string()}));
    }
}
