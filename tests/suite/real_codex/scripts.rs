//! A plain codex does what the scripts of the other tests expect of it, before the relay is looked at.

use codex_relay::commands::witness::Pair;

use crate::support::case::Case;
use crate::support::codex::Version;
use crate::support::stage::Stage;
use crate::support::story;

/// The purposes of the model requests that arrived, without prewarms.
fn purposes(stage: &Stage) -> Vec<String> {
    let requests = stage.endpoint.model_requests();
    let purposes = requests.iter().map(|it| it.purpose().unwrap_or_default());
    purposes.filter(|it| !it.starts_with("prewarm")).collect()
}

async fn plain_codex_plays_the_scripts(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.plain().tapped().with_thread().await;
    let turn = client.turn(&thread, "[commands 2]").await;
    assert_eq!(turn["status"], "completed");
    assert_eq!(purposes(&stage), ["turn"; 3]);
    story::spawn_child(&mut client, &thread).await;
    assert_eq!(
        purposes(&stage)[3..]
            .iter()
            .filter(|it| *it == "turn/thread_spawn")
            .count(),
        1
    );
    let at = purposes(&stage).len();
    story::review(&mut client, &thread).await;
    assert_eq!(purposes(&stage)[at..], ["turn/review"]);
    story::compact(&mut client, &thread).await;
    assert_eq!(purposes(&stage)[at + 1..], ["compaction"]);
    story::guarded_turn(&mut client, &thread).await;
    assert_eq!(
        purposes(&stage)[at + 2..],
        ["turn", "turn/guardian", "turn"]
    );
    story::pursue_goal(&mut client, &thread).await;
    assert_eq!(purposes(&stage)[at + 5..], ["turn"; 2]);
    let turn = client.turn(&thread, "[full]").await;
    if case.version == Version::V171 {
        story::sample(&mut client, &thread, &turn).await;
        assert_eq!(purposes(&stage)[at + 7..], ["turn"; 2]);
    }
    let at = purposes(&stage).len();
    client.turn(&thread, "[full]").await;
    assert_eq!(purposes(&stage)[at..], ["compaction", "turn"]);
    client.turn(&thread, "[commands 1 full]").await;
    assert_eq!(
        purposes(&stage)[at + 2..],
        ["compaction", "turn", "compaction", "turn"]
    );
    let traffic = stage.traffic().await;
    assert!(
        traffic.lost.is_empty() && traffic.foreign.is_empty(),
        "{traffic:?}"
    );
    assert!(traffic.pairs.iter().all(Pair::is_identical));
    assert!(client.close().await.success());
}
matrix!(plain_codex_plays_the_scripts: all);
