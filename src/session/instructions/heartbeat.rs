//! The guidance of a heartbeat on a thread without a route: codex's collaboration mode carries it.
//!
//! Codex keeps the mode of a turn for those that follow, so it is taken back at the next one. On its
//! lite models codex drops the text (0.155.1 and 0.171.0): nothing better exists there.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::context::turn_kind::TurnKind;
use crate::session::machine::Session;
use crate::session::parent::turn::StartTurn;
use crate::wire::envelope::member;
use crate::wire::scan;

impl Session {
    /// Gives a turn the mode that its kind needs, or takes the one of a heartbeat back.
    ///
    /// A mode of the client's own is never touched.
    pub(in crate::session) fn set_mode(
        &mut self,
        line: &Bytes,
        turn: &mut StartTurn,
        kind: TurnKind,
    ) {
        let thread = turn.thread.as_str();
        let Some(told) = self.ledger.find(thread) else {
            return;
        };
        let params = &turn.request.params;
        let own = member(line, params, &[MEMBER]);
        let is_own = own.is_some_and(|own| !scan::is_null(line, &own));
        let guidance = kind.closing();
        if !self.client.experimental_api || is_own || guidance.is_some() == told.set.is_in_heartbeat
        {
            let is_in_heartbeat = told.set.is_in_heartbeat && !is_own;
            self.ledger.set_heartbeat(thread, is_in_heartbeat);
            return;
        }
        let settings = told.set.settings.as_ref();
        let settings =
            settings.and_then(|it| serde_json::from_slice::<Map<String, Value>>(it).ok());
        let settings = settings.unwrap_or_default();
        let of_turn = |name: &str| {
            let value = line.get(member(line, params, &[name])?)?;
            let value: Value = serde_json::from_slice(value).ok()?;
            (!value.is_null()).then_some(value)
        };
        let of_thread = |name: &str| of_turn(name).or_else(|| settings.get(name).cloned());
        let Some(model) = of_thread("model").filter(Value::is_string) else {
            return;
        };
        if guidance.is_some() && is_clients_own(settings.get(MEMBER)) {
            return;
        }
        let mode = json!({
            "mode": "default",
            "settings": {
                "model": model,
                "reasoning_effort": of_thread("effort"),
                "developer_instructions": guidance,
            },
        });
        turn.renewed.sets(MEMBER, mode);
        self.ledger.set_heartbeat(thread, guidance.is_some());
    }
}

/// Whether a thread's mode is another than the one that it begins with.
fn is_clients_own(mode: Option<&Value>) -> bool {
    let Some(mode) = mode.filter(|mode| !mode.is_null()) else {
        return false;
    };
    let instructions = mode.pointer("/settings/developer_instructions");
    let is_plain = mode.get("mode").is_none_or(|name| name == "default");
    !is_plain || instructions.is_some_and(|it| !it.is_null())
}

/// The member of `turn/start`, of a client with `experimentalApi` alone.
const MEMBER: &str = "collaborationMode";
