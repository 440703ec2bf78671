use serde_json::Value;

use super::*;
use crate::context::supplier::Supplier;
use crate::session::machine::Config;
use crate::wire::edit::apply;

struct Story {
    session: Session,
    next: u32,
    /// Requests of our own that codex got.
    asked: Vec<Bytes>,
    /// What codex answers to an injection; nothing for no answer.
    answer: Option<&'static str>,
    /// What codex says before that answer.
    before: Vec<&'static str>,
}

const OK: Option<&str> = Some(r#""result":{}"#);

impl Story {
    /// Begins with a thread; the user's configuration is `config`.
    fn new(config: &str) -> Self {
        let mut story = Self {
            session: Session::new(Config::of_tests(Supplier::Workspace)),
            next: 0,
            asked: Vec::new(),
            answer: OK,
            before: Vec::new(),
        };
        let line = Bytes::from(r#"{"id":1,"method":"thread/start","params":{}}"#);
        let ClientVerdict::Prepare(prepare) = story.session.on_client_line(&line) else {
            panic!("a thread is prepared")
        };
        let mut verdict = story
            .session
            .on_context(&line, prepare, Some(prepared()), fresh());
        loop {
            verdict = match verdict {
                ClientVerdict::Wait(waiting) => story.session.on_opened(&line, waiting),
                ClientVerdict::Ask(ask) => {
                    let answer = format!(r#""result":{{"config":{config}}}"#);
                    let answer = answer_to(&ask.question, &answer);
                    story.session.on_codex_line(&answer);
                    story.session.on_own_answer(&line, ask, Some(&answer))
                }
                ClientVerdict::Prepare(prepare) => {
                    story
                        .session
                        .on_context(&line, prepare, Some(prepared()), fresh())
                }
                ClientVerdict::Answer(_)
                | ClientVerdict::Bare { .. }
                | ClientVerdict::Drop
                | ClientVerdict::Interrupt { .. }
                | ClientVerdict::Pass
                | ClientVerdict::Refuse { .. }
                | ClientVerdict::Rewrite(_) => break,
            };
        }
        story.codex(r#"{"id":1,"result":{"thread":{"id":"t"}}}"#);
        story
    }

    fn codex(&mut self, line: &'static str) {
        self.session.on_codex_line(&Bytes::from(line));
    }

    /// Starts a turn and ends it; gives what codex got for it, and how often it was asked before.
    fn turn(&mut self) -> (String, usize) {
        let asked = self.asked.len();
        self.next += 1;
        let id = 10 + self.next;
        let mut line = Bytes::from(format!(
            r#"{{"id":{id},"method":"turn/start","params":{{"threadId":"t","relay":{{}}}}}}"#
        ));
        let mut verdict = self.session.on_client_line(&line);
        let edits = loop {
            verdict = match verdict {
                ClientVerdict::Wait(waiting) => self.session.on_opened(&line, waiting),
                ClientVerdict::Bare { line: bare, member } => {
                    line = bare;
                    self.session.on_bare_line(&line, member)
                }
                ClientVerdict::Prepare(prepare) => {
                    self.session
                        .on_context(&line, prepare, Some(prepared()), fresh())
                }
                ClientVerdict::Ask(ask) => {
                    self.asked.push(ask.question.clone());
                    for before in std::mem::take(&mut self.before) {
                        self.codex(before);
                    }
                    let answer = self.answer.map(|answer| answer_to(&ask.question, answer));
                    if let Some(answer) = &answer {
                        self.session.on_codex_line(answer);
                    }
                    self.session.on_own_answer(&line, ask, answer.as_ref())
                }
                ClientVerdict::Rewrite(edits) => break edits,
                ClientVerdict::Pass => break Vec::new(),
                ClientVerdict::Answer(_)
                | ClientVerdict::Drop
                | ClientVerdict::Interrupt { .. } => {
                    panic!("a turn is started")
                }
                ClientVerdict::Refuse { denial, .. } => panic!("{denial:?}"),
            }
        };
        let turn = format!("u{id}");
        let answer = format!(r#"{{"id":{id},"result":{{"turn":{{"id":"{turn}"}}}}}}"#);
        self.session.on_codex_line(&answer.into());
        let end = format!(
            r#"{{"method":"turn/completed","params":{{"threadId":"t","turn":{{"id":"{turn}"}}}}}}"#
        );
        self.session.on_codex_line(&end.into());
        let sent = apply(&line, edits);
        let sent = String::from_utf8(sent.to_vec()).unwrap();
        (sent, self.asked.len() - asked)
    }

    fn asks(&mut self) -> usize {
        self.turn().1
    }
}

/// The line that answers a question of our own.
fn answer_to(question: &Bytes, answer: &str) -> Bytes {
    let question: Value = serde_json::from_slice(question).unwrap();
    Bytes::from(format!(r#"{{"id":{},{answer}}}"#, question["id"]))
}

fn fresh() -> Generation {
    Generation::new("g").unwrap()
}

fn prepared() -> Arc<Prepared> {
    let mut prepared = Prepared::of_text("persona".to_owned());
    prepared.references = vec![Reference::new("/w", "BOOTSTRAP.md".to_owned(), "greet")];
    Arc::new(prepared)
}

#[test]
fn block_is_asked_for_before_the_turn_and_not_again() {
    let mut story = Story::new("{}");
    let (sent, asked) = story.turn();
    assert_eq!(asked, 1);
    assert!(!sent.contains("relay"), "{sent}");
    let question = String::from_utf8(story.asked[0].to_vec()).unwrap();
    assert!(
        question.contains(r#""method":"thread/inject_items""#),
        "{question}"
    );
    assert!(question.contains(r#""threadId":"t""#) && question.contains("greet"));
    assert_eq!(story.asks(), 0);
    assert_eq!(story.session.take_remarks(), []);
}

#[test]
fn turn_goes_on_when_codex_refuses_the_block_or_stays_silent() {
    for (answer, why) in [
        (
            Some(r#""error":{"code":-1}"#),
            "codex answered with an error",
        ),
        (None, "codex didn't answer in time"),
    ] {
        let mut story = Story::new("{}");
        story.answer = answer;
        assert_eq!(story.asks(), 1);
        let remark = Remark::NotDelivered {
            thread: ThreadId::new("t").unwrap(),
            files: vec!["BOOTSTRAP.md".to_owned()],
            why,
        };
        assert_eq!(story.session.take_remarks(), [remark]);
        story.answer = OK;
        assert_eq!(story.asks(), 1, "still due");
        assert_eq!(story.asks(), 0);
    }
}

#[test]
fn answer_that_comes_late_counts() {
    let mut story = Story::new("{}");
    story.answer = None;
    assert_eq!(story.asks(), 1);
    let late = answer_to(&story.asked[0], r#""result":{}"#);
    story.session.on_codex_line(&late);
    assert_eq!(story.asks(), 0);
}

#[test]
fn history_that_shrinks_makes_it_due_again() {
    for line in [
        r#"{"method":"item/completed","params":{"threadId":"t","item":{"type":"contextCompaction"}}}"#,
        r#"{"method":"thread/compacted","params":{"threadId":"t"}}"#,
        r#"{"method":"thread/reverted","params":{"threadId":"t"}}"#,
        r#"{"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"notLoaded"}}}"#,
    ] {
        let mut story = Story::new("{}");
        assert_eq!(story.asks(), 1);
        story.codex(line);
        assert_eq!(story.asks(), 1, "{line}");
        assert_eq!(story.asks(), 0);
        story.codex(line);
        story.before = vec![line];
        assert_eq!(story.asks(), 1, "{line}");
        assert_eq!(story.asks(), 1, "it came before the answer: {line}");
    }
    for line in [
        r#"{"method":"item/completed","params":{"threadId":"t","item":{"type":"agentMessage"}}}"#,
        r#"{"method":"item/started","params":{"threadId":"t","item":{"type":"contextCompaction"}}}"#,
        r#"{"method":"thread/compacted","params":{"threadId":"u"}}"#,
        r#"{"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}"#,
    ] {
        let mut story = Story::new("{}");
        assert_eq!(story.asks(), 1);
        story.codex(line);
        assert_eq!(story.asks(), 0, "{line}");
    }
}

#[test]
fn methods_that_shrink_it_count_when_codex_has_done_them() {
    for method in ["thread/revert", "thread/rollback", "thread/unsubscribe"] {
        let request = format!(r#"{{"id":5,"method":"{method}","params":{{"threadId":"t"}}}}"#);
        let request = Bytes::from(request);
        let mut story = Story::new("{}");
        assert_eq!(story.asks(), 1);
        assert_eq!(story.session.on_client_line(&request), ClientVerdict::Pass);
        story.codex(r#"{"id":5,"error":{"code":-1}}"#);
        assert_eq!(story.asks(), 0, "{method}");
        assert_eq!(story.session.on_client_line(&request), ClientVerdict::Pass);
        story.codex(r#"{"id":5,"result":{}}"#);
        assert_eq!(story.asks(), 1, "{method}");
    }
}

#[test]
fn nothing_is_asked_while_a_turn_runs() {
    let mut story = Story::new("{}");
    story.codex(r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"own"}}}"#);
    assert_eq!(story.asks(), 0, "codex runs a turn of its own");
    story.codex(r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"own"}}}"#);
    assert_eq!(story.asks(), 1);
    story.codex(r#"{"method":"thread/compacted","params":{"threadId":"t"}}"#);
    story.codex(r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"lost"}}}"#);
    story.codex(
        r#"{"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}"#,
    );
    assert_eq!(story.asks(), 1, "a thread at rest runs no turn");
}

#[test]
fn request_that_waits_is_answered_when_codex_ends() {
    let mut story = Story::new("{}");
    let line = Bytes::from(r#"{"id":5,"method":"turn/start","params":{"threadId":"t"}}"#);
    let ClientVerdict::Prepare(prepare) = story.session.on_client_line(&line) else {
        panic!("a turn is prepared")
    };
    let verdict = story
        .session
        .on_context(&line, prepare, Some(prepared()), fresh());
    assert!(matches!(verdict, ClientVerdict::Ask(_)), "{verdict:?}");
    let lines = story.session.on_codex_gone("ended");
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with(br#"{"id":5,"error":"#));
}

#[test]
fn turn_without_a_subscription_ends_with_the_rest_of_its_thread() {
    let mut story = Story::new("{}");
    story.turn();
    let line = Bytes::from(r#"{"id":5,"method":"thread/unsubscribe","params":{"threadId":"t"}}"#);
    story.session.on_client_line(&line);
    story.codex(r#"{"id":5,"result":{"status":"unsubscribed"}}"#);
    let start = r#"{"id":6,"method":"turn/start","params":{"threadId":"t"}}"#;
    let start = |story: &mut Story| {
        let line = Bytes::from(start);
        let is_new = !story.session.registry.find("t").unwrap().is_running();
        let verdict = story.session.on_client_line(&line);
        if let ClientVerdict::Prepare(prepare) = verdict {
            let context = Some(prepared());
            let verdict = story.session.on_context(&line, prepare, context, fresh());
            if let ClientVerdict::Ask(ask) = verdict {
                story.session.on_own_answer(&line, ask, None);
            }
        }
        story.codex(r#"{"id":6,"result":{"turn":{"id":"silent"}}}"#);
        is_new
    };
    assert!(start(&mut story));
    assert!(!start(&mut story), "it runs: this steers it");
    story.codex(
        r#"{"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}"#,
    );
    assert!(start(&mut story), "it is over, though nobody said so");
}

#[test]
fn thread_that_keeps_its_own_way_to_the_model_is_told_as_well() {
    let mut story = Story::new(r#"{"openai_base_url":"https://example.com/v1"}"#);
    let (sent, asked) = story.turn();
    assert_eq!((sent.contains("codex_relay_generation"), asked), (false, 1));
    assert_eq!(story.asks(), 0);
}
