use super::*;

#[test]
fn accounts_are_read_with_their_workspace() {
    let read = |answer: &str| {
        let whole = 0..answer.len();
        (
            kind(answer.as_bytes(), &whole),
            routing(answer.as_bytes(), &whole),
        )
    };
    assert_eq!(
        read(r#"{"account":null,"workspaceRouting":null}"#),
        (None, None)
    );
    assert_eq!(read("{}"), (None, None));
    let key = read(r#"{"account":{"type":"apiKey"}}"#);
    assert_eq!(key, (Some(AccountKind::ApiKey), None));
    let other = read(r#"{"account":{"type":"amazonBedrock"}}"#);
    assert_eq!(other, (Some(AccountKind::Other), None));
    let of = |policy: &str| {
        read(&format!(
            r#"{{"account":{{"type":"chatgpt"}},"workspaceRouting":{{"accountRoutingOverride":"{policy}",
               "backendOrigin":"https://us.example","chatgptAccountId":"a"}}}}"#
        ))
    };
    let bound = |policy: Option<&str>| WorkspaceRouting {
        account: "a".to_owned(),
        origin: "https://us.example".to_owned(),
        policy: policy.map(str::to_owned),
    };
    let chatgpt = Some(AccountKind::ChatGpt);
    assert_eq!(of("us_cr"), (chatgpt, Some(bound(Some("us_cr")))));
    assert_eq!(of("NO_CONSTRAINT"), (chatgpt, Some(bound(None))));
}

/// A session of a client, and what codex answers to the relay's questions.
struct Talk {
    session: Session,
    account: &'static str,
    requirements: &'static str,
    asked: Vec<String>,
}

impl Talk {
    fn new() -> Self {
        Self {
            session: Session::new(Config::of_tests(Supplier::Workspace)),
            account: r#"{"account":{"type":"apiKey"}}"#,
            requirements: r#"{"requirements":null}"#,
            asked: Vec::new(),
        }
    }

    /// What becomes of a line once every question is answered.
    fn client(&mut self, line: &str) -> ClientVerdict {
        let line = Bytes::from(line.to_owned());
        let prepared = Arc::new(Prepared::nothing());
        let mut verdict = self.session.on_client_line(&line);
        loop {
            verdict = match verdict {
                ClientVerdict::Wait(waiting) => self.session.on_opened(&line, waiting),
                ClientVerdict::Prepare(prepare) => {
                    let fresh = Generation::new("g").unwrap();
                    let prepared = Some(Arc::clone(&prepared));
                    self.session.on_context(&line, prepare, prepared, fresh)
                }
                ClientVerdict::Ask(ask) => {
                    let question: Value = serde_json::from_slice(&ask.question).unwrap();
                    let method = question["method"].as_str().unwrap().to_owned();
                    let result = match method.as_str() {
                        "config/read" => r#"{"config":{}}"#,
                        "configRequirements/read" => self.requirements,
                        _ => self.account,
                    };
                    self.asked.push(method);
                    let answer = Bytes::from(format!(r#"{{"id":"own-0","result":{result}}}"#));
                    self.session.on_own_answer(&line, ask, Some(&answer))
                }
                ClientVerdict::Answer(_)
                | ClientVerdict::Bare { .. }
                | ClientVerdict::Drop
                | ClientVerdict::Interrupt { .. }
                | ClientVerdict::Pass
                | ClientVerdict::Refuse { .. }
                | ClientVerdict::Rewrite(_) => {
                    return verdict;
                }
            };
        }
    }

    fn start(&mut self, id: u32) -> ClientVerdict {
        let line = format!(r#"{{"id":{id},"method":"thread/start","params":{{}}}}"#);
        let verdict = self.client(&line);
        let answer = format!(r#"{{"id":{id},"result":{{"thread":{{"id":"t"}}}}}}"#);
        self.codex(&answer);
        verdict
    }

    fn turn(&mut self, id: u32) -> ClientVerdict {
        let line = format!(r#"{{"id":{id},"method":"turn/start","params":{{"threadId":"t"}}}}"#);
        self.client(&line)
    }

    fn codex(&mut self, line: &str) {
        self.session.on_codex_line(&Bytes::from(line.to_owned()));
    }
}

#[test]
fn what_holds_for_all_threads_is_asked_once() {
    let mut talk = Talk::new();
    assert!(matches!(talk.start(1), ClientVerdict::Rewrite(_)));
    let all = ["config/read", "configRequirements/read", "account/read"];
    assert_eq!(talk.asked, all);
    assert!(matches!(talk.start(2), ClientVerdict::Rewrite(_)));
    assert_eq!(talk.asked[3..], ["config/read"]);
}

#[test]
fn account_that_changed_is_asked_for_before_the_next_turn() {
    let mut talk = Talk::new();
    let _ = talk.start(1);
    talk.codex(r#"{"method":"account/updated","params":{"authMode":"apikey"}}"#);
    assert_eq!(talk.session.routes().closings(), 0);
    let _ = talk.turn(2);
    assert_eq!(talk.asked[3..], [""; 0]);
    talk.codex(r#"{"method":"account/login/completed","params":{"success":true}}"#);
    let turn = talk.turn(2);
    assert!(!matches!(turn, ClientVerdict::Refuse { .. }), "{turn:?}");
    assert_eq!(talk.asked[3..], ["account/read"]);
    talk.account = r#"{"account":{"type":"amazonBedrock"}}"#;
    talk.codex(r#"{"method":"account/updated","params":{"authMode":"bedrockApiKey"}}"#);
    assert_eq!(talk.session.routes().closings(), 1);
    let closed = Denial::RouteClosed(Ineligible::AccountUnknown);
    let ClientVerdict::Refuse { denial, .. } = talk.turn(3) else {
        panic!("the route is closed");
    };
    assert_eq!(denial, closed);
    assert_eq!(talk.start(4), ClientVerdict::Pass);
    talk.codex(r#"{"method":"account/updated","params":{"authMode":"apikey"}}"#);
    assert_eq!(talk.session.routes().closings(), 2);
    assert!(matches!(talk.start(5), ClientVerdict::Rewrite(_)));
}

#[test]
fn requirement_of_an_administrator_bars_every_thread() {
    let mut talk = Talk::new();
    talk.requirements = r#"{"requirements":{"modelProvider":"azure"}}"#;
    assert_eq!(talk.start(1), ClientVerdict::Pass);
    let reason = talk.session.routes().reason("t");
    assert_eq!(reason, Some(Ineligible::OtherProvider));
    talk.asked.clear();
    assert_eq!(talk.start(2), ClientVerdict::Pass);
    assert_eq!(talk.asked, [""; 0]);
}
use crate::context::supplier::Supplier;
use crate::session::machine::Config;
