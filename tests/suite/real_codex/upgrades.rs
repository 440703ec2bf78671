//! An upstream without WebSockets is spoken to over HTTP at once.

use codex_relay::commands::endpoint::{Reply, Script, Upgrade};
use codex_relay::commands::witness::{Kind, Recorded};
use http::StatusCode;

use crate::support::case::Case;
use crate::support::model::Model;
use crate::support::persona;
use crate::support::stage::Stage;

/// Knows no WebSockets, and says so in a way of its own.
struct HttpAlone(Model, StatusCode);

impl Script for HttpAlone {
    fn reply(&self, request: &Recorded) -> Reply {
        self.0.reply(request)
    }

    fn upgrade(&self, _request: &Recorded) -> Upgrade {
        Upgrade::Refuse(Reply::text(self.1, "no such thing"))
    }
}

async fn upstream_without_websockets_gets_one_upgrade(case: Case) {
    let statuses = [
        StatusCode::NOT_FOUND,
        StatusCode::METHOD_NOT_ALLOWED,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    for status in statuses {
        let stage = Stage::with(case, HttpAlone(Model::default(), status)).await;
        persona::write(&stage);
        let (mut client, thread) = stage.relay().with_thread().await;
        let turn = client.turn(&thread, "[commands 1]").await;
        assert_eq!(turn["status"], "completed", "{turn}");
        assert!(client.close().await.success());
        let journal = stage.endpoint.journal();
        let upgrades = journal
            .requests
            .iter()
            .filter(|it| it.kind == Kind::Upgrade);
        assert_eq!(upgrades.count(), 1, "{status}");
        for request in journal.model_requests() {
            assert_eq!(request.kind, Kind::Http);
            persona::injected_text(request, None);
        }
    }
}
matrix!(upstream_without_websockets_gets_one_upgrade: versions);
