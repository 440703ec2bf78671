use bytes::Bytes;

use super::*;
use crate::base::ids::{Generation, RequestId};
use crate::context::compose::Prepared;
use crate::context::supplier::Supplier;
use crate::session::intercept::ClientVerdict;
use crate::session::observe::CodexVerdict;
use crate::session::parent::decide::Purpose;
use crate::wire::edit::apply;

struct Story {
    session: Session,
    admitted: u32,
    /// The user's configuration, as codex tells it.
    config: &'static str,
}

impl Story {
    fn new(experimental: bool) -> Self {
        let mut story = Self {
            session: Session::new(Config::of_tests(Supplier::Workspace)),
            admitted: 0,
            config: "{}",
        };
        let _ = story.client(
            &format!(
                r#"{{"id":0,"method":"initialize","params":{{"capabilities":{{"experimentalApi":{experimental}}}}}}}"#
            ),
            "",
        );
        story.codex(r#"{"id":0,"result":{}}"#);
        story
    }

    fn with_thread(experimental: bool) -> Self {
        let mut story = Self::new(experimental);
        let _ = story.client(r#"{"id":1,"method":"thread/start","params":{}}"#, "first");
        story.codex(r#"{"id":1,"result":{"thread":{"id":"t"}}}"#);
        story
    }

    /// The line that codex gets, or the denial.
    fn client(&mut self, line: &str, text: &str) -> Result<String, Denial> {
        let line = Bytes::from(line.to_owned());
        let mut verdict = self.session.on_client_line(&line);
        self.admitted += u32::from(matches!(verdict, ClientVerdict::Prepare(_)));
        let verdict = loop {
            verdict = match verdict {
                ClientVerdict::Wait(waiting) => self.session.on_opened(&line, waiting),
                ClientVerdict::Prepare(prepare) => {
                    let fresh = Generation::new(format!("g{}", self.admitted)).unwrap();
                    let context = Some(prepared(text));
                    self.session.on_context(&line, prepare, context, fresh)
                }
                ClientVerdict::Ask(ask) => {
                    let config = Bytes::from(format!(
                        r#"{{"id":"own-0","result":{{"config":{}}}}}"#,
                        self.config
                    ));
                    self.session.on_own_answer(&line, ask, Some(&config))
                }
                ClientVerdict::Answer(_)
                | ClientVerdict::Bare { .. }
                | ClientVerdict::Drop
                | ClientVerdict::Interrupt { .. }
                | ClientVerdict::Pass
                | ClientVerdict::Refuse { .. }
                | ClientVerdict::Rewrite(_) => break verdict,
            };
        };
        match verdict {
            ClientVerdict::Pass => Ok(String::from_utf8(line.to_vec()).unwrap()),
            ClientVerdict::Rewrite(edits) => {
                Ok(String::from_utf8(apply(&line, edits).to_vec()).unwrap())
            }
            ClientVerdict::Refuse { denial, .. } => Err(denial),
            ClientVerdict::Answer(_)
            | ClientVerdict::Ask(_)
            | ClientVerdict::Bare { .. }
            | ClientVerdict::Drop
            | ClientVerdict::Interrupt { .. }
            | ClientVerdict::Prepare(_)
            | ClientVerdict::Wait(_) => {
                panic!("each is asked for once")
            }
        }
    }

    fn codex(&mut self, line: &str) -> CodexVerdict {
        self.session.on_codex_line(&Bytes::from(line.to_owned()))
    }

    fn turn(&mut self, id: u32, text: &str) -> Result<String, Denial> {
        self.client(
            &format!(r#"{{"id":{id},"method":"turn/start","params":{{"threadId":"t"}}}}"#),
            text,
        )
    }

    fn decide(&self, turn: &str, generation: Option<&str>) -> Decision {
        self.session
            .decide(&request("t", turn, generation, Purpose::Turn))
    }
}

fn prepared(text: &str) -> Arc<Prepared> {
    Arc::new(Prepared::of_text(text.to_owned()))
}

fn snapshot(text: &str) -> Arc<Snapshot> {
    Arc::new(Snapshot::new(text.to_owned(), Vec::new()))
}

fn request(thread: &str, turn: &str, generation: Option<&str>, purpose: Purpose) -> ParentRequest {
    ParentRequest {
        thread: ThreadId::new(thread).unwrap(),
        turn: TurnId::new(turn),
        generation: generation.and_then(Generation::new),
        purpose,
    }
}

fn inject(text: &str) -> Decision {
    Decision::Inject(snapshot(text))
}

#[test]
fn turn_is_admitted_with_its_text_until_it_ends() {
    let mut story = Story::with_thread(true);
    let sent = story.turn(2, "second").unwrap();
    assert!(
        sent.contains(r#""responsesapiClientMetadata":{"codex_relay_generation":"g2"}"#),
        "{sent}"
    );
    assert_eq!(story.decide("u", Some("g2")), inject("second"));
    story.codex(r#"{"id":2,"result":{"turn":{"id":"u"}}}"#);
    assert_eq!(story.decide("u", Some("g2")), inject("second"));
    story.codex(r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u"}}}"#);
    assert_eq!(
        story.decide("u", Some("g2")),
        Decision::Refuse(Reason::GenerationStale)
    );
    story.turn(3, "third").unwrap();
    assert_eq!(story.decide("v", Some("g3")), inject("third"));
    assert_eq!(
        story.decide("v", Some("g2")),
        Decision::Refuse(Reason::GenerationStale)
    );
}

#[test]
fn second_turn_start_steers_the_first_with_its_generation() {
    let mut story = Story::with_thread(true);
    story.turn(2, "second").unwrap();
    story.codex(r#"{"id":2,"result":{"turn":{"id":"u"}}}"#);
    let steer = story.turn(3, "newer").unwrap();
    assert!(
        steer.contains(r#""codex_relay_generation":"g2""#),
        "{steer}"
    );
    story.codex(r#"{"id":3,"error":{"code":1}}"#);
    assert_eq!(story.decide("u", Some("g2")), inject("second"));
    let steer = story.client(
        r#"{"id":4,"method":"turn/steer","params":{"threadId":"t","responsesapiClientMetadata":{"a":"b"}}}"#,
        "",
    );
    assert!(
        steer
            .unwrap()
            .contains(r#"{"a":"b","codex_relay_generation":"g2"}"#)
    );
}

#[test]
fn refused_start_of_a_turn_frees_its_registration() {
    let mut story = Story::with_thread(true);
    story.turn(2, "second").unwrap();
    story.codex(r#"{"id":2,"error":{"code":-32600}}"#);
    assert_eq!(
        story.decide("u", Some("g2")),
        Decision::Refuse(Reason::GenerationStale)
    );
}

#[test]
fn client_without_experimental_api_is_known_by_its_thread() {
    let mut story = Story::with_thread(false);
    let line = r#"{"id":2,"method":"turn/start","params":{"threadId":"t"}}"#;
    assert_eq!(story.turn(2, "second").as_deref(), Ok(line));
    assert_eq!(story.decide("u", None), inject("second"));
}

#[test]
fn turns_that_codex_starts_itself_get_a_text_of_their_own() {
    let mut story = Story::with_thread(true);
    let native = request("t", "n", None, Purpose::Turn);
    assert_eq!(
        story.session.decide(&native),
        Decision::Prepare(native.clone())
    );
    let text = Prepared::of_text("afresh".to_owned());
    assert_eq!(
        story.session.on_native_context(&native, Some(&text)),
        inject("afresh")
    );
    assert_eq!(story.session.decide(&native), inject("afresh"));
    let large = Prepared::of_text("x".repeat(101));
    let other = request("t", "m", None, Purpose::Turn);
    assert_eq!(
        story.session.on_native_context(&other, Some(&large)),
        Decision::Refuse(Reason::ContextTooLarge)
    );
    assert_eq!(
        story.session.on_native_context(&other, None),
        Decision::Refuse(Reason::ContextUnavailable)
    );
}

#[test]
fn threads_that_nobody_told_us_of_stay_untouched_unless_they_claim_a_generation() {
    let story = Story::with_thread(true);
    for purpose in [Purpose::Turn, Purpose::Prewarm] {
        let unknown = request("x", "u", None, purpose);
        assert_eq!(story.session.decide(&unknown), Decision::Untouched);
    }
    let claim = request("x", "u", Some("g1"), Purpose::Turn);
    assert_eq!(
        story.session.decide(&claim),
        Decision::Refuse(Reason::ThreadUnknown)
    );
}

#[test]
fn prewarm_gets_the_text_of_the_thread() {
    let story = Story::with_thread(true);
    let prewarm = request("t", "", None, Purpose::Prewarm);
    assert_eq!(story.session.decide(&prewarm), inject("first"));
}

#[test]
fn context_at_the_bound_goes_and_one_above_is_refused_before_codex() {
    let mut story = Story::with_thread(true);
    assert!(story.turn(2, &"x".repeat(100)).is_ok());
    story.codex(r#"{"id":2,"error":{"code":1}}"#);
    assert_eq!(
        story.turn(3, &"x".repeat(101)),
        Err(Denial::ContextTooLarge {
            bytes: 101,
            limit: 100,
            sections: vec![]
        })
    );
    assert!(story.turn(4, "short").is_ok());
}

#[test]
fn notifications_that_the_relay_needs_are_kept_from_a_client_that_opted_out() {
    let mut story = Story::new(true);
    story.session.client.initialized = false;
    let sent = story.client(
        r#"{"id":5,"method":"initialize","params":{"capabilities":{"optOutNotificationMethods":["a", "turn/completed" ,"b"]}}}"#,
        "",
    );
    assert!(
        sent.unwrap()
            .contains(r#""optOutNotificationMethods":["a","b"]"#)
    );
    let ended = r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u"}}}"#;
    assert_eq!(story.codex(ended), CodexVerdict::Keep);
    assert_eq!(
        story.codex(r#"{"method":"thread/closed","params":{}}"#),
        CodexVerdict::Pass
    );
}

#[test]
fn lines_of_codex_that_we_cannot_read_pass() {
    let mut story = Story::with_thread(true);
    for line in [
        "",
        "log text",
        "[1]",
        "{\"id\":1",
        "{\"method\":\"turn/completed\"}",
    ] {
        assert_eq!(story.codex(line), CodexVerdict::Pass, "{line}");
    }
}

#[test]
fn threads_that_are_being_opened_count() {
    let mut story = Story::with_thread(true);
    for id in 2..=MAX_THREADS {
        let line = format!(r#"{{"id":{id},"method":"thread/start","params":{{}}}}"#);
        assert!(story.client(&line, "").is_ok(), "{id}");
    }
    let over = r#"{"id":"over","method":"thread/start","params":{}}"#;
    let busy = story.client(over, "");
    assert!(matches!(busy, Err(Denial::Busy { .. })), "{busy:?}");
    let known = r#"{"id":"k","method":"thread/resume","params":{"threadId":"t"}}"#;
    assert!(story.client(known, "").is_ok());
    story.codex(r#"{"id":2,"error":{"code":-32600,"message":"no"}}"#);
    story.codex(r#"{"id":"k","result":{"thread":{"id":"t"}}}"#);
    assert!(story.client(over, "").is_ok());
}

#[test]
fn codex_gone_ends_what_is_open() {
    let mut story = Story::with_thread(true);
    story.turn(2, "second").unwrap();
    story.codex(r#"{"id":2,"result":{"turn":{"id":"u"}}}"#);
    story
        .client(r#"{"id":"x","method":"model/list","params":{}}"#, "")
        .unwrap();
    let lines = story.session.on_codex_gone("ended");
    let ids: Vec<String> = lines
        .iter()
        .map(|l| String::from_utf8(l.to_vec()).unwrap())
        .collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    assert!(ids[0].starts_with(r#"{"id":"x","error":{"code":-32603"#));
    assert!(ids[1].contains(r#""status":"failed""#) && ids[1].ends_with('\n'));
    assert!(story.session.on_codex_gone("ended").len() == 1);
}

#[test]
fn endpoint_of_the_users_own_is_not_rerouted() {
    let mut story = Story::new(true);
    story.config = r#"{"openai_base_url":"http://127.0.0.1:9/v1"}"#;
    let line = r#"{"id":1,"method":"thread/start","params":{}}"#;
    let told = r#"{"id":1,"method":"thread/start","params":{"developerInstructions":"<agent_workspace_section>\nfirst\n</agent_workspace_section>"}}"#;
    assert_eq!(story.client(line, "first").as_deref(), Ok(told));
    story.codex(r#"{"id":1,"result":{"thread":{"id":"t"}}}"#);
    let turn = r#"{"id":2,"method":"turn/start","params":{"threadId":"t"}}"#;
    assert_eq!(story.turn(2, "first").as_deref(), Ok(turn));
}

#[test]
fn answers_to_our_own_requests_are_kept_from_the_client() {
    let mut story = Story::new(true);
    let (id, _) = story.session.own.ask("config/read", &serde_json::json!({}));
    let line = Bytes::from_static(br#"{"id":"own-0","result":{}}"#);
    let own = crate::session::own::OwnAnswer {
        id,
        line: line.clone(),
    };
    assert_eq!(story.session.on_codex_line(&line), CodexVerdict::Own(own));
}

#[test]
fn id_bytes_are_kept_as_they_are() {
    let id = RequestId::new(Bytes::from_static(b"12345678901234567890"));
    assert_eq!(id.as_bytes(), b"12345678901234567890");
}

#[test]
fn requests_that_stay_behind_others_are_answered_when_codex_ends() {
    let mut story = Story::new(true);
    let lines = [
        r#"{"id":1,"method":"thread/read","params":{}}"#,
        r#"{"id":"b","method":"relay/status"}"#,
        r#"{"id":2,"result":{}}"#,
        r#"{"method":"initialized"}"#,
    ];
    for line in lines {
        story.session.hold(&Bytes::from(line));
    }
    story.session.release(&Bytes::from(lines[0]));
    let ended = story.session.on_codex_gone("ended");
    let [answer] = &ended[..] else {
        panic!("{ended:?}");
    };
    assert!(answer.starts_with(br#"{"id":"b","error":"#), "{answer:?}");
    assert_eq!(story.session.on_codex_gone("ended"), [""; 0]);
}
