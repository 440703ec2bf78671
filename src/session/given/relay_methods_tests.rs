use std::collections::BTreeMap;

use super::*;
use crate::base::ids::TurnId;
use crate::base::limits::MAX_THREADS;
use crate::base::reason::Reason;
use crate::context::compose::Prepared;
use crate::context::given::{compose_given, replace_references};
use crate::control::account::Purposes;
use crate::control::answers::{Info, RouteStatus, Status, ThreadStatus, Turn, Warning};
use crate::session::given::relay_member::{OF_BOTH, OF_THREAD, OF_TURN};
use crate::session::machine::Config;
use crate::session::parent::decide::{Decision, ParentRequest, Purpose};
use crate::session::parent::tally::{About, Counted, Outcome};
use crate::wire::edit::apply;

/// A client that gives its contexts, in front of a codex that agrees with everything.
struct Story {
    session: Session,
    next: u64,
    /// The generation that each thread's last turn carries.
    generations: BTreeMap<String, String>,
}

impl Story {
    fn of(supplier: Supplier) -> Self {
        let mut story = Self {
            session: Session::new(Config::of_tests(supplier)),
            next: 0,
            generations: BTreeMap::new(),
        };
        let params = json!({"capabilities": {"experimentalApi": true}});
        story.call("initialize", &params).unwrap();
        story.codex(&json!({"id": 1, "result": {}}));
        story
    }

    fn with_thread() -> Self {
        let mut story = Self::of(Supplier::Client);
        story.open("t", &json!({}));
        story
    }

    fn open(&mut self, thread: &str, params: &Value) {
        self.call("thread/start", params).unwrap();
        self.answer(&json!({"thread": {"id": thread}}));
    }

    /// Sends a request; gives what codex gets of it, or the relay's own answer.
    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Denial> {
        self.next += 1;
        let line = json!({"id": self.next, "method": method, "params": params});
        self.line(&format!("{line}\n"))
            .map(|line| serde_json::from_str(&line.expect("not dropped")).expect("a line of JSON"))
    }

    fn line(&mut self, line: &str) -> Result<Option<String>, Denial> {
        let mut line = Bytes::from(line.to_owned());
        let text = |line: &Bytes| Ok(Some(String::from_utf8(line.to_vec()).unwrap()));
        let mut verdict = self.session.on_client_line(&line);
        loop {
            verdict = match verdict {
                ClientVerdict::Wait(waiting) => self.session.on_opened(&line, waiting),
                ClientVerdict::Bare { line: bare, member } => {
                    line = bare;
                    self.session.on_bare_line(&line, member)
                }
                ClientVerdict::Prepare(prepare) => {
                    let prepared = prepared(&prepare.wish);
                    self.next += 1;
                    let fresh = Generation::new(format!("g{}", self.next)).unwrap();
                    self.session
                        .on_context(&line, prepare, Some(Arc::new(prepared)), fresh)
                }
                ClientVerdict::Ask(ask) => self.session.on_own_answer(&line, ask, None),
                ClientVerdict::Answer(line) => return text(&line),
                ClientVerdict::Drop => return Ok(None),
                ClientVerdict::Interrupt { .. } | ClientVerdict::Pass => return text(&line),
                ClientVerdict::Rewrite(edits) => return text(&apply(&line, edits)),
                ClientVerdict::Refuse { denial, .. } => return Err(denial),
            }
        }
    }

    fn codex(&mut self, line: &Value) {
        self.session
            .on_codex_line(&Bytes::from(format!("{line}\n")));
    }

    /// Answers the client's last request.
    fn answer(&mut self, result: &Value) {
        for id in 1..=self.next {
            self.codex(&json!({"id": id, "result": result}));
        }
    }

    fn set(&mut self, params: &Value) -> Result<Value, Denial> {
        Ok(self.call("relay/context/set", params)?["result"].clone())
    }

    /// Starts a turn that runs from then on.
    fn start(&mut self, thread: &str, turn: &str, relay: &Value) -> Result<(), Denial> {
        let params = json!({"threadId": thread, "input": [], "relay": relay});
        let sent = self.call("turn/start", &params)?;
        let generation = &sent["params"]["responsesapiClientMetadata"]["codex_relay_generation"];
        let generation = generation.as_str().expect("a generation").to_owned();
        self.generations.insert(thread.to_owned(), generation);
        self.answer(&json!({"turn": {"id": turn}}));
        Ok(())
    }

    fn end(&mut self, thread: &str, turn: &str) {
        let params = json!({"threadId": thread, "turn": {"id": turn, "status": "interrupted"}});
        self.codex(&json!({"method": "turn/completed", "params": params}));
    }

    /// The text that a request of a thread's last turn gets.
    fn text(&self, thread: &str) -> String {
        let generation = self.generations.get(thread).map(String::as_str);
        told(&self.decide(thread, generation, Purpose::Turn))
    }

    fn decide(&self, thread: &str, generation: Option<&str>, purpose: Purpose) -> Decision {
        self.session.decide(&ParentRequest {
            thread: ThreadId::new(thread).unwrap(),
            turn: TurnId::new("any"),
            generation: generation.and_then(Generation::new),
            purpose,
        })
    }

    /// Runs a turn, and gives its text.
    fn turn(&mut self, thread: &str, relay: &Value) -> String {
        self.start(thread, "u", relay).unwrap();
        let text = self.text(thread);
        self.end(thread, "u");
        text
    }
}

fn prepared(wish: &Wish) -> Prepared {
    let Some(given) = &wish.given else {
        return Prepared::of_text("workspace".to_owned());
    };
    let mut prepared = compose_given(given, "", wish);
    let references = wish.references.as_deref().unwrap_or_default();
    replace_references(&mut prepared, references, wish);
    prepared
}

fn told(decision: &Decision) -> String {
    match decision {
        Decision::Inject(snapshot) => snapshot.text().to_owned(),
        Decision::Prepare(_)
        | Decision::Refuse(_)
        | Decision::RefuseOwnTurn
        | Decision::Untouched => format!("{decision:?}"),
    }
}

fn fault(result: Result<Value, Denial>) -> String {
    match result {
        Err(Denial::RelayParams { fault, .. } | Denial::RelayMember { fault }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn registration_for_a_turn_ends_with_it_and_that_for_a_thread_stays() {
    let mut story = Story::with_thread();
    let set = json!({"threadId": "t", "scope": "thread", "text": "thread"});
    let told = story.set(&set).unwrap();
    assert_eq!(told["bytes"], 6);
    assert!(told["generation"].is_string());
    let set = json!({"threadId": "t", "scope": "turn", "text": "turn"});
    let first = story.set(&set).unwrap();
    assert_eq!(story.turn("t", &Value::Null), "turn");
    assert_eq!(first["generation"], story.generations["t"].as_str());
    assert_eq!(story.turn("t", &Value::Null), "thread");
    assert_eq!(
        story.turn("t", &json!({"context": {"text": "member"}})),
        "member"
    );
    assert_eq!(story.turn("t", &Value::Null), "thread");
    assert_eq!(
        story
            .call("relay/context/clear", &json!({"threadId": "t"}))
            .unwrap()["result"],
        json!({})
    );
    assert_eq!(story.turn("t", &Value::Null), "workspace");
}

#[test]
fn running_turn_keeps_its_text_whatever_is_set_meanwhile() {
    let mut story = Story::with_thread();
    let set = |text: &str| json!({"threadId": "t", "scope": "turn", "text": text});
    story.set(&set("first")).unwrap();
    story.start("t", "u1", &Value::Null).unwrap();
    let first = story.generations["t"].clone();
    story.set(&set("second")).unwrap();
    story.set(&set("third")).unwrap();
    assert_eq!(story.text("t"), "first");
    assert_eq!(
        told(&story.session.decide(&ParentRequest {
            thread: ThreadId::new("t").unwrap(),
            turn: TurnId::new("u1"),
            generation: None,
            purpose: Purpose::Turn,
        })),
        "first",
        "of a client without experimentalApi"
    );
    // A second turn/start is a steer: it keeps the turn's text, whatever it brings.
    let steer = json!({"context": {"text": "steer"}, "references": []});
    story.start("t", "u1", &steer).unwrap();
    assert_eq!(
        (story.text("t"), &story.generations["t"]),
        ("first".to_owned(), &first)
    );
    story.end("t", "u1");
    assert_eq!(
        story.decide("t", Some(&first), Purpose::Turn),
        Decision::Refuse(Reason::GenerationStale)
    );
    assert_eq!(story.turn("t", &Value::Null), "third");
    assert_eq!(story.turn("t", &Value::Null), "workspace");
}

#[test]
fn generation_of_what_is_registered_is_live_and_that_of_what_was_replaced_is_not() {
    let mut story = Story::with_thread();
    let set = |text: &str| json!({"threadId": "t", "scope": "thread", "text": text});
    let old = story.set(&set("old")).unwrap();
    let old = old["generation"].as_str().unwrap();
    assert_eq!(told(&story.decide("t", Some(old), Purpose::Turn)), "old");
    let new = story.set(&set("new")).unwrap();
    let new = new["generation"].as_str().unwrap();
    assert_eq!(told(&story.decide("t", Some(new), Purpose::Turn)), "new");
    let stale = Decision::Refuse(Reason::GenerationStale);
    assert_eq!(story.decide("t", Some(old), Purpose::Turn), stale);
    story.open("other", &json!({}));
    assert_eq!(story.decide("other", Some(new), Purpose::Turn), stale);
}

#[test]
fn turn_that_failed_to_start_leaves_what_was_given_for_the_next() {
    let mut story = Story::with_thread();
    let set = json!({"threadId": "t", "scope": "turn", "text": "turn"});
    story.set(&set).unwrap();
    story
        .call("turn/start", &json!({"threadId": "t", "input": []}))
        .unwrap();
    for id in 1..=story.next {
        story.codex(&json!({"id": id, "error": {"code": -32600, "message": "no"}}));
    }
    assert_eq!(story.turn("t", &Value::Null), "turn");
    story.set(&set).unwrap();
    let closed = json!({"method": "thread/closed", "params": {"threadId": "t"}});
    story.codex(&closed);
    story.open("t", &json!({}));
    assert_eq!(
        story.turn("t", &Value::Null),
        "workspace",
        "gone with its thread"
    );
}

#[test]
fn turn_that_is_refused_leaves_what_was_given_for_the_next() {
    let mut story = Story::with_thread();
    let set = json!({"threadId": "t", "scope": "turn", "text": "turn"});
    story.set(&set).unwrap();
    let large = json!({"context": {"text": "x".repeat(101)}});
    let large = json!({"threadId": "t", "input": [], "relay": large});
    let refused = story.call("turn/start", &large);
    assert!(matches!(refused, Err(Denial::ContextTooLarge { .. })));
    assert_eq!(story.turn("t", &Value::Null), "turn");
    story.set(&set).unwrap();
    let own = json!({"context": {"text": "own"}});
    assert_eq!(story.turn("t", &own), "own");
    assert_eq!(
        story.turn("t", &Value::Null),
        "workspace",
        "it took its place"
    );
}

#[test]
fn turn_of_codex_itself_gets_no_text_that_was_for_one_turn() {
    let mut story = Story::with_thread();
    let own = |story: &Story| story.decide("t", None, Purpose::Turn);
    story.turn("t", &json!({"context": {"text": "one"}}));
    assert_eq!(own(&story), Decision::RefuseOwnTurn);
    story
        .set(&json!({"scope": "thread", "text": "default"}))
        .unwrap();
    assert_eq!(
        own(&story),
        Decision::RefuseOwnTurn,
        "the thread had one of its own"
    );
    story
        .set(&json!({"threadId": "t", "scope": "thread", "text": "thread"}))
        .unwrap();
    assert!(matches!(own(&story), Decision::Prepare(_)));
    story.turn("t", &json!({"context": {"text": "one"}}));
    assert!(matches!(own(&story), Decision::Prepare(_)));
    let wish = story.session.usual_wish("t");
    assert_eq!(
        wish.given.as_deref(),
        Some(&Given::of_text("thread".to_owned()))
    );
    story
        .call("relay/context/clear", &json!({"threadId": "t"}))
        .unwrap();
    assert!(matches!(own(&story), Decision::Prepare(_)));
    let wish = story.session.usual_wish("t");
    assert_eq!(
        wish.given.as_deref(),
        Some(&Given::of_text("default".to_owned()))
    );
    story
        .set(&json!({"threadId": "t", "scope": "turn", "text": "next"}))
        .unwrap();
    assert_eq!(own(&story), Decision::RefuseOwnTurn);
}

#[test]
fn prewarm_gets_what_the_thread_has_between_its_turns() {
    let mut story = Story::of(Supplier::Client);
    story
        .set(&json!({"scope": "thread", "text": "default"}))
        .unwrap();
    story.open("t", &json!({"relay": {"context": {"text": "thread"}}}));
    story.open("other", &json!({}));
    let prewarm = |story: &Story, thread| told(&story.decide(thread, None, Purpose::Prewarm));
    assert_eq!(prewarm(&story, "t"), "thread");
    assert_eq!(prewarm(&story, "other"), "default");
    story
        .set(&json!({"scope": "thread", "text": "newer"}))
        .unwrap();
    assert_eq!(prewarm(&story, "t"), "thread");
    assert_eq!(prewarm(&story, "other"), "newer");
    assert_eq!(story.turn("t", &json!({"context": {"text": "one"}})), "one");
    assert_eq!(prewarm(&story, "t"), "thread");
    story
        .call("relay/context/clear", &json!({"threadId": "t"}))
        .unwrap();
    assert_eq!(prewarm(&story, "t"), "newer");
    story.call("relay/context/clear", &json!({})).unwrap();
    assert_eq!(
        story.decide("other", None, Purpose::Prewarm),
        Decision::Untouched
    );
}

#[test]
fn text_over_the_bound_is_refused_with_its_sections_wherever_it_is_given() {
    let mut story = Story::with_thread();
    let sections = json!([
        {"name": "notes", "text": "\u{20ac}".repeat(20)},
        {"name": "persona", "text": "p".repeat(41)},
    ]);
    let context = json!({"sections": sections});
    let start = json!({"relay": {"context": context}});
    let turn = json!({"threadId": "t", "input": [], "relay": {"context": context}});
    let set = json!({"threadId": "t", "scope": "thread", "sections": sections});
    for (method, params) in [
        ("relay/context/set", set),
        ("thread/start", start),
        ("turn/start", turn),
    ] {
        let Err(Denial::ContextTooLarge {
            bytes, sections, ..
        }) = story.call(method, &params)
        else {
            panic!("{method} is refused");
        };
        assert_eq!(bytes, 103);
        let told: Vec<_> = sections.iter().map(|it| (&*it.name, it.bytes)).collect();
        assert_eq!(told, [("persona", 41), ("notes", 62)]);
    }
    assert_eq!(
        story.turn("t", &Value::Null),
        "workspace",
        "nothing was kept"
    );
    let fits = json!({"threadId": "t", "scope": "thread", "text": "x".repeat(100)});
    assert_eq!(story.set(&fits).unwrap()["bytes"], 100);
}

#[test]
fn everything_that_is_wrong_with_params_is_named() {
    let mut story = Story::with_thread();
    for (params, named) in [
        (json!([]), vec!["expected an object as params"]),
        (
            json!({}),
            vec!["scope is missing", "expected text or sections"],
        ),
        (
            json!({"scope": "turn", "text": "x"}),
            vec!["scope turn needs a threadId"],
        ),
        (
            json!({"scope": "ever", "text": 7, "mood": 1, "tone": 2, "memoryTools": "yes"}),
            vec![
                "unknown params: mood, tone",
                "scope: expected turn or thread",
                "text to be a text",
                "memoryTools: expected",
            ],
        ),
        (
            json!({"threadId": 7, "scope": "thread", "text": "x", "sections": []}),
            vec!["threadId: expected the id of a thread", "not both"],
        ),
        (
            json!({"threadId": "", "scope": "thread", "text": "x"}),
            vec!["threadId is empty"],
        ),
        (
            json!({"scope": "thread", "text": "x", "references": {}}),
            vec!["references: expected a list"],
        ),
    ] {
        let fault = fault(story.call("relay/context/set", &params));
        for named in named {
            assert!(fault.contains(named), "{params}: {fault}");
        }
    }
}

#[test]
fn params_that_a_method_does_not_take_are_named() {
    let mut story = Story::with_thread();
    let fault = |story: &mut Story, method: &str, params: &Value| fault(story.call(method, params));
    let words = fault(&mut story, "relay/info", &json!({"x": 1}));
    assert!(
        words.contains("unknown params: x; it takes none"),
        "{words}"
    );
    for method in ["relay/context/clear", "relay/status"] {
        let words = fault(&mut story, method, &json!({"scope": "turn", "threadId": 7}));
        for named in [
            "unknown params: scope; it takes threadId",
            "threadId: expected",
        ] {
            assert!(words.contains(named), "{words}");
        }
        let words = fault(&mut story, method, &json!({"scope": "turn"}));
        assert!(words.contains("it takes threadId"), "{words}");
        let words = fault(&mut story, method, &json!({"threadId": ""}));
        assert!(words.contains("threadId is empty"), "{words}");
    }
    let unknown = story.call("relay/context/get", &json!({}));
    assert!(
        matches!(unknown, Err(Denial::RelayMethodUnknown { .. })),
        "{unknown:?}"
    );
}

#[test]
fn notifications_are_dropped_and_requests_without_params_answered() {
    let mut story = Story::of(Supplier::Client);
    let dropped = story.line("{\"method\":\"relay/context/clear\",\"params\":{}}\n");
    assert_eq!(dropped, Ok(None));
    for params in ["", ",\"params\":null", ",\"params\":{}"] {
        let line = format!("{{\"id\":\"a\\u0062\",\"method\":\"relay/\\u0069nfo\"{params}}}\n");
        let answer = story.line(&line).unwrap().unwrap();
        assert!(
            answer.starts_with("{\"id\":\"a\\u0062\",\"result\":{"),
            "{answer}"
        );
    }
    assert!(story.session.must_read("relay/anything"));
}

#[test]
fn line_of_the_relays_own_never_reaches_codex_however_it_is_made() {
    let mut story = Story::of(Supplier::Client);
    let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    for params in [&*deep, "{\"a\":}", "nonsense", "{}} {"] {
        for id in ["\"id\":\"a\",", "\"id\":7,"] {
            let line = format!("{{{id}\"method\":\"relay/context/set\",\"params\":{params}}}\n");
            assert_eq!(
                story.line(&line),
                Err(Denial::RelayLine),
                "{id} {params:.20}"
            );
        }
        let line = format!("{{\"method\":\"relay/context/set\",\"params\":{params}}}\n");
        assert_eq!(story.line(&line), Ok(None), "{params:.20}");
        let line = format!("{{\"method\":\"thread/list\",\"params\":{params}}}\n");
        assert_eq!(story.line(&line), Ok(Some(line.clone())), "{params:.20}");
    }
    let unclosed = "{\"id\":1,\"method\":\"relay/info\"\n";
    assert_eq!(story.line(unclosed), Err(Denial::RelayLine));
    let odd = "{\"id\":1,\"method\":\"relay/\\ud800\"}\n";
    assert_eq!(story.line(odd), Err(Denial::RelayLine));
}

#[test]
fn sections_may_share_a_name_and_references_may_not() {
    let mut story = Story::with_thread();
    let twice = json!([{"name": "persona", "text": "p"}, {"name": "n", "text": "n"}, {"name": "persona", "text": "q"}]);
    let set = json!({"threadId": "t", "scope": "thread", "sections": twice});
    story.set(&set).unwrap();
    assert_eq!(
        story.turn("t", &Value::Null),
        "p\n\nq\n\nn",
        "in the order given"
    );
    let set = json!({"threadId": "t", "scope": "thread", "text": "x", "references": twice});
    assert!(fault(story.set(&set)).contains("persona is there twice"));
}

#[test]
fn context_for_a_thread_that_is_not_open_waits_for_it_but_a_turn_there_is_refused() {
    let mut story = Story::with_thread();
    story
        .set(&json!({"threadId": "later", "scope": "thread", "text": "x"}))
        .unwrap();
    let turn = json!({"threadId": "never", "input": [], "relay": {"context": {"text": "x"}}});
    assert_eq!(story.call("turn/start", &turn), Err(Denial::ThreadUnknown));
    story
        .set(&json!({"threadId": "never", "scope": "turn", "text": "x"}))
        .unwrap();
    let turn = json!({"threadId": "never", "input": []});
    assert_eq!(story.call("turn/start", &turn), Err(Denial::ThreadUnknown));
    story
        .call("thread/resume", &json!({"threadId": "later"}))
        .unwrap();
    story.answer(&json!({"thread": {"id": "later"}}));
    assert_eq!(story.turn("later", &Value::Null), "x");
}

#[test]
fn full_house_takes_texts_that_need_no_place() {
    let mut story = Story::with_thread();
    for number in 0..MAX_THREADS {
        let set = json!({"threadId": number.to_string(), "scope": "thread", "text": "x"});
        story.set(&set).unwrap();
    }
    let busy = |result: Result<Value, Denial>| matches!(result, Err(Denial::Busy { .. }));
    let set = json!({"threadId": "t", "scope": "turn", "text": "x"});
    assert!(busy(story.set(&set)));
    let start = json!({"relay": {"context": {"text": "x"}}});
    assert!(busy(story.call("thread/start", &start)));
    // One that is closed or archived may come back to its text; one that is deleted never does.
    for (method, is_freed) in [
        ("thread/closed", false),
        ("thread/archived", false),
        ("thread/deleted", true),
    ] {
        let gone = json!({"method": method, "params": {"threadId": "7"}});
        story.codex(&gone);
        let set = story.set(&set);
        assert_eq!(set.is_ok(), is_freed, "{method}: {set:?}");
    }
    let clear = json!({"threadId": "t"});
    story.call("relay/context/clear", &clear).unwrap();
    // A thread on its way takes a place: what is given for it must not be lost.
    story.call("thread/start", &start).unwrap();
    assert!(busy(story.set(&set)));
    assert!(busy(story.call("thread/start", &start)));
    let member = json!({"context": {"text": "own"}});
    assert_eq!(story.turn("t", &member), "own");
    story
        .set(&json!({"scope": "thread", "text": "default"}))
        .unwrap();
    assert_eq!(story.turn("t", &Value::Null), "default");
}

#[test]
fn nothing_is_taken_where_contexts_are_switched_off() {
    let mut story = Story::of(Supplier::Nobody);
    story.open("t", &json!({}));
    let set = json!({"scope": "thread", "text": "x"});
    assert_eq!(story.set(&set), Err(Denial::NoContext));
    let turn = json!({"threadId": "t", "input": [], "relay": {"context": {"text": "x"}}});
    assert_eq!(story.call("turn/start", &turn), Err(Denial::NoContext));
    let start = json!({"relay": {"context": {"text": "x"}}});
    assert_eq!(story.call("thread/start", &start), Err(Denial::NoContext));
    assert!(!story.session.has_given());
}

/// What is counted of a request of the thread `t`.
fn about(turn: &str, purpose: Counted, is_of_client: bool) -> About {
    About {
        thread: Some("t".to_owned()),
        root: None,
        turn: Some(turn.to_owned()),
        is_of_client,
        purpose,
    }
}

fn account(story: &mut Story, thread: &str) -> ThreadStatus {
    let told = story.call("relay/status", &json!({"threadId": thread}));
    let told: Status = serde_json::from_value(told.unwrap()["result"].clone()).unwrap();
    told.threads.into_iter().next().unwrap()
}

/// A turn's id, and how many of its requests were injected, untouched, refused.
fn counted(turn: Option<Turn>) -> Option<(String, [u64; 3])> {
    let turn = turn?;
    let sum = |it: Purposes| it.turn + it.prewarm + it.compaction + it.memory + it.child + it.other;
    let requests = turn.requests;
    let counts = [
        sum(requests.injected),
        sum(requests.untouched),
        requests.refused,
    ];
    Some((turn.turn_id, counts))
}

#[test]
fn turns_of_client_and_codex_have_accounts_of_their_own() {
    let mut story = Story::with_thread();
    let own = json!({"context": {"text": "one"}});
    story.start("t", "u", &own).unwrap();
    let injected = |bytes| Outcome::Injected(bytes);
    let note = |story: &mut Story, about: &About, outcome| {
        story.session.note_outcome(about, outcome);
    };
    note(&mut story, &about("u", Counted::Turn, true), injected(3));
    story.end("t", "u");
    let set = json!({"threadId": "t", "scope": "thread", "text": "thread"});
    story.set(&set).unwrap();
    // Codex goes on by itself, and what it spawned for the turn before isn't done.
    let goal = ParentRequest {
        thread: ThreadId::new("t").unwrap(),
        turn: TurnId::new("goal"),
        generation: None,
        purpose: Purpose::Turn,
    };
    let text = Prepared::of_text("thread".to_owned());
    story.session.on_native_context(&goal, Some(&text));
    note(
        &mut story,
        &about("goal", Counted::Turn, false),
        injected(6),
    );
    note(
        &mut story,
        &about("goal", Counted::Child, false),
        Outcome::Untouched,
    );
    note(
        &mut story,
        &about("u", Counted::Child, true),
        Outcome::Untouched,
    );
    // A request of a turn of the client's that is long over, and a compaction by itself.
    let stale = Outcome::Refused {
        reason: "generation_stale",
        line: "stale".to_owned(),
    };
    note(&mut story, &about("old", Counted::Turn, true), stale);
    note(
        &mut story,
        &about("compact", Counted::Compaction, false),
        Outcome::Untouched,
    );
    let told = account(&mut story, "t");
    assert_eq!(counted(told.turn), Some(("u".to_owned(), [1, 1, 0])));
    assert_eq!(told.codex_turn.as_ref().unwrap().context, 6);
    assert_eq!(
        counted(told.codex_turn),
        Some(("goal".to_owned(), [1, 1, 0]))
    );
    assert_eq!((&*told.context.from, told.context.bytes), ("thread", 6));
    assert_eq!(told.requests.untouched.compaction, 1);
    assert_eq!(told.requests.refused, 1);
}

#[test]
fn requests_before_the_answer_belong_to_the_turn_that_it_names() {
    let mut story = Story::with_thread();
    let own = json!({"context": {"text": "one"}});
    story.start("t", "u", &own).unwrap();
    story.end("t", "u");
    let params = json!({"threadId": "t", "input": [], "relay": own});
    story.call("turn/start", &params).unwrap();
    let compaction = about("v", Counted::Compaction, false);
    story.session.note_outcome(&compaction, Outcome::Untouched);
    let turn = about("v", Counted::Turn, false);
    story.session.note_outcome(&turn, Outcome::Injected(3));
    let told = account(&mut story, "t");
    assert_eq!(counted(told.turn), Some(("u".to_owned(), [0, 0, 0])));
    assert_eq!(counted(told.codex_turn), None);
    story.answer(&json!({"turn": {"id": "v"}}));
    let told = account(&mut story, "t");
    assert_eq!(counted(told.turn), Some(("v".to_owned(), [1, 1, 0])));
    assert_eq!(counted(told.codex_turn), None);
}

#[test]
fn request_of_codex_itself_while_a_turn_is_unanswered_is_its_own() {
    let mut story = Story::with_thread();
    let params = json!({"threadId": "t", "input": []});
    story.call("turn/start", &params).unwrap();
    let goal = about("goal", Counted::Turn, false);
    story.session.note_outcome(&goal, Outcome::Injected(3));
    assert_eq!(counted(account(&mut story, "t").codex_turn), None);
    story.answer(&json!({"turn": {"id": "u"}}));
    let told = account(&mut story, "t");
    assert_eq!(counted(told.turn), Some(("u".to_owned(), [0, 0, 0])));
    assert_eq!(
        counted(told.codex_turn),
        Some(("goal".to_owned(), [1, 0, 0]))
    );
}

#[test]
fn steer_changes_nothing_of_what_is_told_of_its_turn() {
    let mut story = Story::with_thread();
    let set = json!({"threadId": "t", "scope": "thread", "text": "thread"});
    story.set(&set).unwrap();
    story.start("t", "u", &Value::Null).unwrap();
    let steer = json!({"context": {"text": "of the steer"}});
    story.start("t", "u", &steer).unwrap();
    let told = account(&mut story, "t");
    assert_eq!((&*told.context.from, told.context.bytes), ("thread", 6));
    let turn = told.turn.unwrap();
    assert_eq!((turn.context, turn.is_running), (6, true));
    story.end("t", "u");
    story
        .call("relay/context/clear", &json!({"threadId": "t"}))
        .unwrap();
    let own = story.decide("t", None, Purpose::Turn);
    assert!(
        matches!(own, Decision::Prepare(_)),
        "no text was for one turn: {own:?}"
    );
}

#[test]
fn turn_of_codex_itself_keeps_text_and_account_where_the_client_steers_it() {
    let mut story = Story::with_thread();
    let set = json!({"threadId": "t", "scope": "thread", "text": "thread"});
    story.set(&set).unwrap();
    let mut goal = ParentRequest {
        thread: ThreadId::new("t").unwrap(),
        turn: TurnId::new("goal"),
        generation: None,
        purpose: Purpose::Turn,
    };
    let text = Prepared::of_text("thread".to_owned());
    story.session.on_native_context(&goal, Some(&text));
    let asked = about("goal", Counted::Turn, false);
    story.session.note_outcome(&asked, Outcome::Injected(6));
    let own = json!({"context": {"text": "of the steer"}});
    story.start("t", "goal", &own).unwrap();
    goal.generation = Generation::new(&*story.generations["t"]);
    assert_eq!(told(&story.session.decide(&goal)), "thread");
    let asked = about("goal", Counted::Turn, true);
    story.session.note_outcome(&asked, Outcome::Injected(6));
    let told = account(&mut story, "t");
    assert_eq!(counted(told.turn), None);
    assert_eq!(
        counted(told.codex_turn),
        Some(("goal".to_owned(), [2, 0, 0]))
    );
    assert_eq!((&*told.context.from, told.context.bytes), ("thread", 6));
    story.end("t", "goal");
    assert_eq!(story.turn("t", &Value::Null), "thread");
}

#[test]
fn turn_without_a_route_has_its_account() {
    let mut story = Story::of(Supplier::Client);
    story.open("t", &json!({"modelProvider": "mine"}));
    let params = json!({"threadId": "t", "input": []});
    story.call("turn/start", &params).unwrap();
    story.answer(&json!({"turn": {"id": "u"}}));
    let started = json!({"threadId": "t", "turn": {"id": "u"}});
    story.codex(&json!({"method": "turn/started", "params": started}));
    let turn = account(&mut story, "t").turn.unwrap();
    assert_eq!((&*turn.turn_id, turn.is_running), ("u", true));
    story.end("t", "u");
    assert!(!account(&mut story, "t").turn.unwrap().is_running);
}

#[test]
fn what_children_of_children_ask_counts_for_the_thread_that_the_client_drives() {
    let mut story = Story::with_thread();
    story.start("t", "u", &Value::Null).unwrap();
    let of_grandchild = About {
        thread: Some("child".to_owned()),
        root: Some("t".to_owned()),
        ..about("u", Counted::Child, true)
    };
    story
        .session
        .note_outcome(&of_grandchild, Outcome::Untouched);
    let told = account(&mut story, "t");
    assert_eq!(told.requests.untouched.child, 1);
    assert_eq!(counted(told.turn), Some(("u".to_owned(), [0, 1, 0])));
    // Where the client drives the child as well, it is the child's.
    story.open("child", &json!({}));
    story
        .session
        .note_outcome(&of_grandchild, Outcome::Untouched);
    assert_eq!(account(&mut story, "child").requests.untouched.child, 1);
    assert_eq!(account(&mut story, "t").requests.untouched.child, 1);
}

#[test]
fn turn_that_begins_behind_another_one_never_gets_its_text() {
    let mut story = Story::with_thread();
    let own = json!({"context": {"text": "for one turn"}});
    story.start("t", "u", &own).unwrap();
    // Codex goes on by itself before it has told of the end.
    let of = |turn: &str| ParentRequest {
        thread: ThreadId::new("t").unwrap(),
        turn: TurnId::new(turn),
        generation: None,
        purpose: Purpose::Turn,
    };
    assert_eq!(told(&story.session.decide(&of("u"))), "for one turn");
    assert_eq!(story.session.decide(&of("goal")), Decision::RefuseOwnTurn);
    // A turn/start that codex has yet to answer for says nothing of a turn without a generation, once
    // codex has shown that it passes them on.
    let first = ParentRequest {
        generation: Generation::new(&*story.generations["t"]),
        ..of("u")
    };
    story.session.note_request(&first);
    let params = json!({"threadId": "t", "input": [], "relay": own});
    story.call("turn/start", &params).unwrap();
    assert_eq!(story.session.decide(&of("goal")), Decision::RefuseOwnTurn);
}

fn note_some_outcomes(story: &mut Story) {
    let about = |turn: Option<&str>, purpose| About {
        thread: Some("t".to_owned()),
        turn: turn.map(str::to_owned),
        purpose,
        ..About::default()
    };
    for (about, outcome) in [
        (about(None, Counted::Prewarm), Outcome::Injected(4)),
        (about(Some("u"), Counted::Turn), Outcome::Injected(5)),
        (about(Some("u"), Counted::Turn), Outcome::Injected(5)),
        (about(None, Counted::Child), Outcome::Untouched),
        (
            about(Some("u"), Counted::Turn),
            Outcome::Refused {
                reason: "request_too_large",
                line: "too large".to_owned(),
            },
        ),
        (About::default(), Outcome::Untouched),
    ] {
        story.session.note_outcome(&about, outcome);
    }
}

#[test]
fn status_tells_of_threads_that_are_not_open_what_is_kept_for_them() {
    let mut story = Story::with_thread();
    let later = json!({"threadId": "later", "scope": "thread", "text": "x"});
    story.set(&later).unwrap();
    let told = account(&mut story, "later");
    assert_eq!((told.is_open, &*told.context.from), (false, "none"));
    assert_eq!(told.registrations[0].bytes, 1);
}

#[test]
fn status_tells_what_a_thread_was_given_and_what_became_of_its_requests() {
    let mut story = Story::with_thread();
    let status = |story: &mut Story, params: &Value| {
        let told = story.call("relay/status", params)?["result"].clone();
        Ok::<Status, Denial>(serde_json::from_value(told).unwrap())
    };
    let one = |story: &mut Story| {
        let told = status(story, &json!({"threadId": "t"})).unwrap();
        told.threads.into_iter().next().unwrap()
    };
    assert_eq!(one(&mut story).context.from, "none");
    let set = json!({"threadId": "t", "scope": "thread", "text": "thread"});
    story.set(&set).unwrap();
    let sections = json!([{"name": "persona", "text": "p"}, {"name": "notes", "text": "n"}]);
    let references = json!([{"name": "R", "text": "r"}]);
    let relay = json!({"context": {"sections": sections}, "references": references});
    story.start("t", "u", &relay).unwrap();
    note_some_outcomes(&mut story);
    let told = one(&mut story);
    assert_eq!((&*told.context.from, told.context.bytes), ("turn", 4));
    let names: Vec<_> = told
        .context
        .sources
        .iter()
        .map(|it| (&*it.name, it.bytes))
        .collect();
    assert_eq!(names[..2], [("persona", 1), ("notes", 3)]);
    assert_eq!(
        (names[2].0, &*told.context.sources[2].carrier),
        ("R", "reference")
    );
    let turn = told.turn.unwrap();
    assert_eq!(
        (&*turn.turn_id, turn.is_running, turn.context),
        ("u", true, 5)
    );
    assert_eq!((turn.requests.injected.turn, turn.requests.refused), (2, 1));
    assert_eq!(told.requests.untouched.child, 1);
    let injection = told.last_injection.unwrap();
    assert_eq!(
        (
            injection.turn_id.as_deref(),
            injection.requests,
            injection.bytes
        ),
        (Some("u"), 2, 5)
    );
    assert_eq!(told.last_refusal.unwrap().reason, "request_too_large");
    assert_eq!(told.references[0].state, "sent", "codex never answered");
    assert_eq!(told.registrations[0].scope, "thread");
    story.end("t", "u");
    assert!(!one(&mut story).turn.unwrap().is_running);
    let all = status(&mut story, &json!({})).unwrap();
    assert_eq!((all.threads.len(), all.totals.untouched.other), (1, 1));
    let unknown = status(&mut story, &json!({"threadId": "never"}));
    assert_eq!(unknown.unwrap_err(), Denial::ThreadUnknown);
}

#[test]
fn warnings_go_to_clients_that_asked_for_them_and_are_bounded() {
    let refused = || Outcome::Refused {
        reason: "busy",
        line: "no room".to_owned(),
    };
    let mut story = Story::with_thread();
    story.session.note_outcome(&About::default(), refused());
    assert!(!story.session.has_warnings(), "nobody asked");
    for (relay, is_wanted) in [
        ("true", true),
        ("{}", true),
        ("false", false),
        ("null", false),
    ] {
        let mut story = Story::of(Supplier::Client);
        story.session.client.initialized = false;
        let params = format!("{{\"capabilities\":{{\"relay\":{relay}}}}}");
        let params: Value = serde_json::from_str(&params).unwrap();
        story.call("initialize", &params).unwrap();
        for _ in 0..100 {
            story.session.note_outcome(&About::default(), refused());
        }
        let lines = story.session.take_warnings();
        assert_eq!(lines.len(), if is_wanted { 64 } else { 0 }, "{relay}");
        for line in lines {
            let line: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(line["method"], "relay/warning");
            let told: Warning = serde_json::from_value(line["params"].clone()).unwrap();
            assert_eq!((told.thread_id, &*told.reason), (None, "busy"));
        }
    }
}

#[test]
fn info_tells_the_route_as_far_as_it_is_decided() {
    let mut story = Story::of(Supplier::Client);
    let info = |story: &mut Story| -> Info {
        let told = story.call("relay/info", &json!({})).unwrap();
        serde_json::from_value(told["result"].clone()).unwrap()
    };
    let first = info(&mut story);
    assert_eq!(
        (first.route.status, first.codex_version),
        (RouteStatus::Pending, None)
    );
    assert_eq!(
        (&*first.context, first.limits.context_bytes),
        ("client", 100)
    );
    story.open("own", &json!({"modelProvider": "mine"}));
    let fallback = info(&mut story).route;
    assert_eq!(fallback.status, RouteStatus::Fallback);
    assert_eq!(fallback.reason.as_deref(), Some("other_provider"));
    story.open("t", &json!({}));
    assert_eq!(info(&mut story).route.status, RouteStatus::Active);
}

#[test]
fn schema_names_what_is_read_and_nothing_else() {
    let schema = crate::control::schema::schema();
    let names = |definition: &str| -> Vec<String> {
        let properties = &schema["$defs"][definition]["properties"];
        properties.as_object().unwrap().keys().cloned().collect()
    };
    let sorted = |mut names: Vec<&str>| -> Vec<String> {
        names.sort_unstable();
        names.into_iter().map(str::to_owned).collect()
    };
    assert_eq!(
        names("ThreadMember"),
        sorted([&OF_BOTH[..], &OF_THREAD[..]].concat())
    );
    assert_eq!(
        names("TurnMember"),
        sorted([&OF_BOTH[..], &OF_TURN[..]].concat())
    );
    assert_eq!(names("ContextSet"), sorted(OF_CONTEXT_SET.to_vec()));
    let methods = schema["methods"].as_object().unwrap().keys();
    let known = RelayMethod::ALL.map(|(name, _)| name).to_vec();
    assert!(methods.eq(&sorted(known)));
    let kinds = schema["$defs"]["Kind"].to_string();
    for (word, _) in TurnKind::ALL {
        assert!(kinds.contains(&format!("\"{word}\"")), "{word}");
    }
}
