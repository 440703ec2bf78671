//! The client's return to a thread that it has left and that codex still has in its memory.
//!
//! Codex takes the client in again and leaves the thread as it is, its commands and its developer
//! instructions, unless the resume brings something of its own: then it loads the thread anew (0.155.1
//! and 0.171.0). So it must bring nothing of the relay's either, where the thread already goes its way.

use bytes::Bytes;
use serde_json::json;

use crate::base::ids::ThreadId;
use crate::session::given::relay_member::RelayMember;
use crate::session::intercept::{Ask, ClientVerdict, Patience, Then};
use crate::session::machine::Session;
use crate::session::methods::ThreadWay;
use crate::session::reading::Request;
use crate::wire::envelope::{listed, member_text, text};
use crate::wire::known::Place;
use crate::wire::scan::{self, Members, ScanError};

/// A resume that may be such a return.
#[derive(Debug, PartialEq)]
pub(in crate::session) struct Rejoining {
    request: Request,
    member: RelayMember,
    thread: ThreadId,
}

impl Session {
    /// The thread that a resume may return to, if it brings nothing of its own.
    pub(in crate::session) fn may_rejoin(
        &self,
        line: &[u8],
        way: ThreadWay,
        request: &Request,
    ) -> Option<ThreadId> {
        let thread = member_text(line, &request.params, &["threadId"])?;
        let known = self.registry.find(&thread)?;
        let may_be = way == ThreadWay::Resume
            && !known.is_subscribed()
            && self.ledger.is_loaded(&thread)
            && !self.is_silent
            && brings_nothing(line, request.params.range().start).unwrap_or(false);
        ThreadId::new(thread).filter(|_| may_be)
    }

    /// Asks codex whether it still has the thread: it may have unloaded it, and told nobody.
    pub(in crate::session) fn ask_whether_loaded(
        &mut self,
        request: Request,
        member: RelayMember,
        thread: ThreadId,
    ) -> ClientVerdict {
        let (id, question) = self.own.ask("thread/loaded/list", &json!({}));
        ClientVerdict::Ask(Ask {
            question,
            id,
            patience: Patience::Short,
            thread: Some(thread.clone()),
            then: Then::Rejoin(Box::new(Rejoining {
                request,
                member,
                thread,
            })),
        })
    }

    /// Goes on with the resume; without an answer the thread is taken as one to be loaded.
    pub(in crate::session) fn go_on_with_loaded(
        &mut self,
        line: &Bytes,
        rejoining: Rejoining,
        answer: Option<&Bytes>,
    ) -> ClientVerdict {
        let Rejoining {
            request,
            member,
            thread,
        } = rejoining;
        let is_loaded = answer.is_some_and(|answer| lists(answer, &thread));
        self.on_thread(line, (ThreadWay::Resume, is_loaded), request, member)
    }
}

/// Whether the object at `start` names a thread and nothing that codex would load it anew for.
fn brings_nothing(line: &[u8], start: usize) -> Result<bool, ScanError> {
    let mut members = Members::at(line, start)?;
    while let Some(member) = members.next_member()? {
        let name = scan::name(line, &member.key);
        let is_of_the_answer = OF_THE_ANSWER.iter().any(|known| *name == *known.as_bytes());
        if !is_of_the_answer && !scan::is_null(line, &member.value) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether `answer` lists a thread among those that are loaded.
fn lists(answer: &Bytes, thread: &ThreadId) -> bool {
    let Some(mut elements) = listed(answer) else {
        return false;
    };
    while let Ok(Some(element)) = elements.next_element() {
        if text(answer, &element).as_deref() == Some(thread.as_str()) {
            return true;
        }
    }
    false
}

/// Members of `thread/resume` that say which thread, and what its answer shall hold.
const OF_THE_ANSWER: [&str; 3] = ["excludeTurns", "initialTurnsPage", "threadId"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resume_brings_something_where_a_member_is_more_than_its_answer() {
        for (params, brings_none) in [
            (r#"{"threadId":"t"}"#, true),
            (r#"{"threadId":"t","excludeTurns":true,"model":null}"#, true),
            (r#"{"threadId":"t","config":{}}"#, false),
            (r#"{"threadId":"t","\u0063wd":"/a"}"#, false),
        ] {
            let found = brings_nothing(params.as_bytes(), 0).ok();
            assert_eq!(found, Some(brings_none), "{params}");
        }
    }

    #[test]
    fn list_of_loaded_threads_is_gone_through() {
        let thread = ThreadId::new("b").unwrap();
        for (answer, is_there) in [
            (
                r#"{"id":1,"result":{"data":["a","b"],"nextCursor":null}}"#,
                true,
            ),
            (r#"{"id":1,"result":{"data":["a"]}}"#, false),
            (r#"{"id":1,"error":{"message":"b"}}"#, false),
        ] {
            assert_eq!(lists(&Bytes::from(answer), &thread), is_there, "{answer}");
        }
    }
}
