//! The schema of all this: what `proto/relay.schema.json` holds.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::control::{answers, params};

/// Makes the schema: for each method its params and its result, for each notification its params,
/// for each method of codex the member that the relay takes out of its params.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let of = &mut generator;
    let methods = json!({
        "relay/info": method::<params::Nothing, answers::Info>(of),
        "relay/context/set": method::<params::ContextSet, answers::Registered>(of),
        "relay/context/clear": method::<params::OfThread, answers::Cleared>(of),
        "relay/status": method::<params::OfThread, answers::Status>(of),
    });
    let thread = reference::<params::ThreadMember>(of);
    let members = json!({
        "thread/start": thread,
        "thread/resume": thread,
        "thread/fork": thread,
        "turn/start": reference::<params::TurnMember>(of),
    });
    let notifications = json!({ "relay/warning": { "params": reference::<answers::Warning>(of) } });
    let definitions: Map<String, Value> = generator.take_definitions(true);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "codex-relay: relay/…",
        "methods": methods,
        "notifications": notifications,
        "relayMemberOf": members,
        "$defs": definitions,
    })
}

fn method<P: JsonSchema, R: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    json!({ "params": reference::<P>(generator), "result": reference::<R>(generator) })
}

fn reference<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}
