//! Nobody but the parent sees the persona: what others send arrives byte for byte.

use codex_relay::commands::witness::{Pair, Pairing};

use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::persona::{self, assert_injected, assert_untouched};
use crate::support::stage::Stage;
use crate::support::story;

/// A relay in front of a tapped codex, with a thread that has had a turn.
async fn begin(case: Case) -> (Stage, Client, String) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().tapped().with_thread().await;
    client.turn(&thread, "hello").await;
    (stage, client, thread)
}

/// Ends the session and parts the pairs: those of the thread's own turns, and all others but its prewarms.
async fn end(stage: &Stage, client: Client, thread: &str) -> (Vec<Pair>, Vec<Pair>) {
    assert!(client.close().await.success());
    let Pairing {
        pairs,
        lost,
        foreign,
    } = stage.traffic().await;
    assert!(
        lost.is_empty() && foreign.is_empty(),
        "lost {lost:?}, foreign {foreign:?}"
    );
    let is_own = |it: &Pair| it.sent.thread() == Some(thread) && !it.sent.is_child();
    let (own, others): (Vec<_>, Vec<_>) = pairs.into_iter().partition(is_own);
    let kind = |it: &Pair| it.sent.purpose().unwrap_or_default();
    let (turns, own_others): (Vec<_>, Vec<_>) = own.into_iter().partition(|it| kind(it) == "turn");
    let own_others = own_others.into_iter().filter(|it| kind(it) != "prewarm");
    (turns, others.into_iter().chain(own_others).collect())
}

/// Asserts that the thread's turns are injected and the others are not; `purpose` is among the others.
fn check(turns: &[Pair], others: &[Pair], purpose: &str) {
    for pair in turns {
        assert_injected(pair);
    }
    for pair in others {
        assert_untouched(pair);
    }
    let purposes: Vec<_> = others.iter().filter_map(|it| it.sent.purpose()).collect();
    assert!(purposes.iter().any(|it| it == purpose), "{purposes:?}");
}

async fn child_gets_no_persona(case: Case) {
    let (stage, mut client, thread) = begin(case).await;
    story::spawn_child(&mut client, &thread).await;
    let (turns, others) = end(&stage, client, &thread).await;
    assert!(turns.len() >= 3);
    check(&turns, &others, "turn/thread_spawn");
    // What makes this hard: 0.171.0 hands the parent's metadata down to the child.
    let generation = |it: &Pair| {
        let metadata = it.sent.metadata()?;
        Some(metadata.get("codex_relay_generation")?.as_str()?.to_owned())
    };
    let of_child = others.iter().filter(|it| it.sent.turn().is_some());
    let inherited: Vec<_> = of_child.filter_map(generation).collect();
    let is_handed_down = case.version == crate::support::codex::Version::V171;
    assert_eq!(inherited.is_empty(), !is_handed_down, "{inherited:?}");
    let parents: Vec<_> = turns.iter().filter_map(generation).collect();
    assert!(inherited.iter().all(|it| parents.contains(it)));
}
matrix!(child_gets_no_persona: all);

async fn review_gets_no_persona(case: Case) {
    let (stage, mut client, thread) = begin(case).await;
    let turn = story::review(&mut client, &thread).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    client.turn(&thread, "hello again").await;
    let (turns, others) = end(&stage, client, &thread).await;
    assert_eq!(turns.len(), 2);
    check(&turns, &others, "turn/review");
}
matrix!(review_gets_no_persona: all);

async fn guardian_gets_no_persona(case: Case) {
    let (stage, mut client, thread) = begin(case).await;
    let turn = story::guarded_turn(&mut client, &thread).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(stage.project.path().join("approved").exists());
    let (turns, others) = end(&stage, client, &thread).await;
    assert_eq!(turns.len(), 3);
    check(&turns, &others, "turn/guardian");
}
matrix!(guardian_gets_no_persona: all);

async fn sample_gets_no_persona(case: Case) {
    let (stage, mut client, thread) = begin(case).await;
    let turn = client.turn(&thread, "hello again").await;
    story::sample(&mut client, &thread, &turn).await;
    client.turn(&thread, "and again").await;
    let (turns, others) = end(&stage, client, &thread).await;
    assert_eq!(turns.len(), 3);
    check(&turns, &others, "turn");
}
matrix!(sample_gets_no_persona: new);

async fn compaction_that_the_client_asks_for_gets_no_persona(case: Case) {
    let (stage, mut client, thread) = begin(case).await;
    let turn = story::compact(&mut client, &thread).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    client.turn(&thread, "hello again").await;
    let (turns, others) = end(&stage, client, &thread).await;
    assert_eq!(turns.len(), 2);
    check(&turns, &others, "compaction");
}
matrix!(compaction_that_the_client_asks_for_gets_no_persona: all);

async fn automatic_compaction_gets_no_persona(case: Case) {
    let (stage, mut client, thread) = begin(case).await;
    client.turn(&thread, "[full]").await;
    let turn = client.turn(&thread, "[commands 1 full]").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let (turns, others) = end(&stage, client, &thread).await;
    assert_eq!(turns.len(), 4);
    // Before the turn, and in the middle of it; both carry the turn's generation.
    assert_eq!(others.len(), 2);
    check(&turns, &others, "compaction");
}
matrix!(automatic_compaction_gets_no_persona: all);
