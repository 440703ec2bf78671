use super::*;
use crate::context::orders::Parts;
use crate::session::instructions::need::{Asked, Need};
use crate::session::own::OwnRequests;
use crate::session::parent::turn::Starter;

struct Story {
    ledger: Ledger,
    own: OwnRequests,
}

fn text(policy: Option<&str>) -> Text {
    Text::new(Parts {
        policy,
        ..Parts::default()
    })
}

fn opening(way: ThreadWay, source: Option<&str>) -> Opening {
    Opening {
        way,
        source: source.and_then(ThreadId::new),
        is_partial: false,
        base: None,
        own: None,
        config: KeptConfig::Absent,
        kept: Vec::new(),
        policy: None,
        places: None,
        is_routed: true,
        has_document: false,
    }
}

fn id(thread: &str) -> ThreadId {
    ThreadId::new(thread).unwrap()
}

const WHOLE: [Step; 4] = [Step::Look, Step::Leave, Step::Return, Step::Tell];

impl Story {
    /// A thread that was started with this policy and has had a turn.
    fn started(policy: Option<&str>) -> Self {
        let mut story = Self::new(policy, Opened::default());
        story.ledger.started("t", None);
        story
    }

    fn new(policy: Option<&str>, said: Opened) -> Self {
        let mut story = Self {
            ledger: Ledger::new(),
            own: OwnRequests::new("own-".to_owned()),
        };
        let start = opening(ThreadWay::Start, None);
        story.ledger.opened(&id("t"), start, &text(policy), said);
        story
    }

    fn need(&self, policy: Option<&str>) -> Need {
        self.ledger.need("t", &text(policy), usual())
    }

    fn ask(&mut self, step: Step, policy: Option<&str>) -> OwnId {
        let (own, _) = self.own.ask_raw(step.method(), b"{}");
        let text = text(policy);
        self.ledger.asked("t", own, step, (&text, true));
        own
    }

    /// Takes a step that codex answers; a return unloads the thread first.
    fn take(&mut self, step: Step, policy: Option<&str>) -> Result<(), Trouble> {
        let own = self.ask(step, policy);
        if step == Step::Return {
            self.ledger.unloaded("t");
        }
        self.ledger.answered(own, true);
        self.ledger.outcome("t", own)
    }

    fn renew(&mut self, policy: Option<&str>) {
        let Need::Steps(steps) = self.need(policy) else {
            panic!("nothing is due")
        };
        for step in steps {
            assert_eq!(self.take(step, policy), Ok(()));
        }
        assert_eq!(self.need(policy), Need::Nothing);
    }
}

/// A turn of the client on a routed thread.
fn usual() -> Asked {
    Asked {
        is_routed: true,
        is_subscribed: true,
        must_ask: false,
        starter: Starter::Client,
    }
}

fn elsewhere() -> Asked {
    Asked {
        is_routed: false,
        ..usual()
    }
}

fn unsubscribed() -> Asked {
    Asked {
        is_subscribed: false,
        ..usual()
    }
}

fn steps(steps: &[Step]) -> Need {
    Need::Steps(steps.to_vec())
}

#[test]
fn unchanged_text_needs_nothing_and_a_changed_one_everything() {
    let mut story = Story::started(Some("a"));
    assert_eq!(story.need(Some("a")), Need::Nothing);
    assert_eq!(story.need(Some("b")), steps(&WHOLE));
    story.renew(Some("b"));
    assert_eq!(story.need(Some("a")), steps(&WHOLE));
    assert_eq!(story.need(Some("")), steps(&WHOLE), "a withdrawal");
    assert_eq!(story.need(None), steps(&WHOLE), "a removal");
}

#[test]
fn thread_that_never_had_ours_is_none_of_our_business() {
    let story = Story::started(None);
    assert_eq!(story.need(None), Need::Nothing);
    let mut story = Story::started(None);
    let resume = opening(ThreadWay::Resume, Some("c"));
    let said = Opened::default;
    story.ledger.opened(&id("c"), resume, &text(None), said());
    let need = story.ledger.need("c", &text(None), usual());
    assert_eq!(need, Need::Nothing);
}

#[test]
fn thread_that_was_never_written_down_is_told_first() {
    let story = Story::new(Some("a"), Opened::default());
    let need = steps(&[Step::Tell, Step::Look, Step::Leave, Step::Return]);
    assert_eq!(story.need(Some("b")), need);
}

#[test]
fn cold_resume_is_told_unless_its_text_is_proven() {
    let mut story = Story::started(Some("a"));
    let said = Opened::default;
    let resume = |thread| opening(ThreadWay::Resume, Some(thread));
    story
        .ledger
        .opened(&id("c"), resume("c"), &text(Some("a")), said());
    let need = story.ledger.need("c", &text(Some("a")), usual());
    assert_eq!(need, steps(&[Step::Tell]));
    story.ledger.unloaded("t");
    story
        .ledger
        .opened(&id("t"), resume("t"), &text(Some("a")), said());
    assert_eq!(story.need(Some("a")), Need::Nothing, "this process knows");
    story.ledger.unloaded("t");
    story
        .ledger
        .opened(&id("t"), resume("t"), &text(Some("b")), said());
    assert_eq!(
        story.need(Some("b")),
        steps(&[Step::Tell]),
        "the resume has it"
    );
}

#[test]
fn resume_of_a_loaded_thread_changes_nothing_that_is_loaded() {
    let mut story = Story::started(Some("a"));
    let resume = opening(ThreadWay::Resume, Some("t"));
    let said = Opened::default;
    story
        .ledger
        .opened(&id("t"), resume, &text(Some("b")), said());
    assert_eq!(story.need(Some("b")), steps(&WHOLE));
}

#[test]
fn fork_has_the_past_of_its_source() {
    let mut story = Story::started(Some("a"));
    let said = Opened::default;
    let fork = opening(ThreadWay::Fork, Some("t"));
    let part = Opening {
        is_partial: true,
        ..fork.clone()
    };
    story
        .ledger
        .opened(&id("f"), fork.clone(), &text(Some("a")), said());
    story
        .ledger
        .opened(&id("p"), part, &text(Some("a")), said());
    story.ledger.opened(&id("n"), fork, &text(None), said());
    let need = |thread, policy| story.ledger.need(thread, &text(policy), usual());
    assert_eq!(need("f", Some("a")), Need::Nothing);
    assert_eq!(need("p", Some("a")), steps(&[Step::Tell]));
    assert_eq!(
        need("n", None),
        steps(&[Step::Tell]),
        "the old text is withdrawn"
    );
}

#[test]
fn thread_that_is_kept_loaded_is_not_renewed() {
    let mut story = Story::started(Some("a"));
    assert_eq!(story.take(Step::Look, Some("b")), Ok(()));
    assert_eq!(story.take(Step::Leave, Some("b")), Ok(()));
    let own = story.ask(Step::Return, Some("b"));
    story.ledger.answered(own, true);
    assert_eq!(story.ledger.outcome("t", own), Err(Trouble::NotUnloaded));
    // An unload that comes late proves nothing.
    story.ledger.unloaded("t");
    assert_eq!(story.ledger.outcome("t", own), Err(Trouble::NotUnloaded));
    let again = steps(&[Step::Return, Step::Tell]);
    assert_eq!(
        story.need(Some("b")),
        again,
        "it must not be loaded without the text"
    );
}

#[test]
fn unload_between_leaving_and_returning_counts() {
    let mut story = Story::started(Some("a"));
    assert_eq!(story.take(Step::Leave, Some("b")), Ok(()));
    story.ledger.unloaded("t");
    let own = story.ask(Step::Return, Some("b"));
    story.ledger.answered(own, true);
    assert_eq!(story.ledger.outcome("t", own), Ok(()));
}

#[test]
fn write_without_an_answer_refuses_until_it_is_answered() {
    let mut story = Story::started(Some("a"));
    for step in [Step::Look, Step::Leave, Step::Return] {
        assert_eq!(story.take(step, Some("b")), Ok(()));
    }
    let own = story.ask(Step::Tell, Some("b"));
    assert_eq!(story.ledger.outcome("t", own), Err(Trouble::Unknown));
    assert_eq!(story.need(Some("b")), Need::Refuse(Trouble::Unknown));
    story.ledger.answered(own, true);
    assert_eq!(
        story.need(Some("b")),
        Need::Nothing,
        "nothing is sent twice"
    );
    let own = story.ask(Step::Tell, Some("b"));
    story.ledger.answered(own, false);
    assert_eq!(story.ledger.outcome("t", own), Err(Trouble::Refused));
}

#[test]
fn write_that_nobody_waits_for_holds_no_turn_up() {
    let said = Opened {
        is_ephemeral: true,
        ..Opened::default()
    };
    let mut story = Story::new(Some("a"), said);
    story.ledger.compacted("t", false);
    let own = story.ask(Step::Tell, Some("a"));
    story.ledger.sent_off("t");
    assert_eq!(story.need(Some("a")), Need::Nothing);
    story.ledger.answered(own, false);
    assert_eq!(
        story.need(Some("a")),
        Need::Nothing,
        "what is loaded is seen"
    );
}

#[test]
fn compaction_shows_what_is_loaded_and_a_revert_may_show_anything() {
    let mut story = Story::started(Some("a"));
    story.renew(Some("b"));
    story.ledger.compacted("t", false);
    assert_eq!(story.need(Some("b")), Need::Nothing);
    story.ledger.reverted("t");
    assert_eq!(
        story.need(Some("b")),
        steps(&[Step::Tell]),
        "the compaction may be gone with it"
    );
    story.renew(Some("c"));
    story.ledger.unloaded("t");
    story.ledger.reverted("t");
    assert_eq!(story.need(Some("c")), steps(&[Step::Tell]));
    let own = story.ask(Step::Tell, Some("c"));
    story.ledger.reverted("t");
    story.ledger.answered(own, true);
    assert_eq!(
        story.need(Some("c")),
        steps(&[Step::Tell]),
        "it may be gone again"
    );
}

#[test]
fn ephemeral_thread_takes_another_section_and_no_other_policy() {
    let said = Opened {
        is_ephemeral: true,
        ..Opened::default()
    };
    let mut story = Story::new(Some("a"), said);
    for other in [Some("b"), Some(""), None] {
        assert_eq!(story.need(other), Need::Refuse(Trouble::Ephemeral));
    }
    assert_eq!(story.need(Some("a")), Need::Nothing);
    let with = |section| {
        Text::new(Parts {
            policy: Some("a"),
            section,
            ..Parts::default()
        })
    };
    let need = |story: &Story, section| story.ledger.need("t", &with(section), usual());
    let tell = |story: &mut Story, section| {
        let (own, _) = story.own.ask_raw("thread/inject_items", b"{}");
        let text = with(section);
        story.ledger.asked("t", own, Step::Tell, (&text, true));
        story.ledger.answered(own, true);
    };
    assert_eq!(need(&story, Some("s")), steps(&[Step::Tell]));
    tell(&mut story, Some("s"));
    assert_eq!(need(&story, Some("s")), Need::Nothing);
    assert_eq!(need(&story, None), steps(&[Step::Tell]), "a withdrawal");
    story.ledger.compacted("t", false);
    assert_eq!(need(&story, Some("s")), steps(&[Step::Tell]));
    assert_eq!(need(&story, None), Need::Nothing, "it began like this");
}

#[test]
fn thread_moves_to_another_way_when_it_is_loaded_anew() {
    let mut story = Story::started(None);
    let need = story.ledger.need("t", &text(None), elsewhere());
    assert_eq!(need, steps(&[Step::Look, Step::Leave, Step::Return]));
    let unsubscribed = story.ledger.need("t", &text(Some("a")), unsubscribed());
    let parting = [
        Step::Look,
        Step::Leave,
        Step::Return,
        Step::Tell,
        Step::Part,
    ];
    assert_eq!(unsubscribed, steps(&parting));
    story.renew(Some("a"));
}

#[test]
fn what_a_resume_of_ours_brings_is_kept_back_and_nothing_else() {
    let mut story = Story::started(Some("a"));
    let stray = |story: &mut Story, method| story.ledger.is_stray("t", method, None);
    assert!(!stray(&mut story, "thread/status/changed"));
    story.renew(Some("b"));
    assert!(stray(&mut story, "thread/status/changed"));
    assert!(!stray(&mut story, "thread/name/updated"));
    let usages = [(); 3].map(|()| stray(&mut story, "thread/tokenUsage/updated"));
    assert_eq!(usages, [true, true, false], "one for each resume");
    story.ledger.started("t", None);
    assert!(!stray(&mut story, "thread/status/changed"));
    assert!(!stray(&mut story, "thread/goal/updated"));
}

#[test]
fn thread_on_which_a_turn_may_start_by_itself_is_told_alone() {
    let mut story = Story::started(Some("a"));
    story.ledger.work("t", Work::ask);
    assert_eq!(story.need(Some("b")), Need::Steps(vec![Step::Tell]));
    let away = story.ledger.need("t", &text(Some("b")), elsewhere());
    assert_eq!(away, Need::Refuse(Trouble::AtWork));
    assert!(story.ledger.must_stay("t", false));
    story.ledger.work("t", Work::refuse);
    assert_eq!(story.need(Some("b")), Need::Steps(WHOLE.to_vec()));
    story.ledger.work("t", |work| work.set_goal(true));
    story.ledger.started("t", None);
    assert_eq!(story.need(Some("b")), Need::Steps(vec![Step::Tell]));
    story.ledger.put_off("t", Some((false, None)));
    assert_eq!(story.ledger.take_put_off("t"), None);
    story.ledger.work("t", |work| work.set_goal(false));
    assert_eq!(story.ledger.take_put_off("t"), Some((false, None)));
}

#[test]
fn history_without_any_text_shows_the_one_that_is_loaded() {
    let untold = || {
        let mut story = Story::started(Some("a"));
        story.ledger.compaction_asked("t");
        story.ledger.compacted("t", true);
        story
    };
    let [without, with] = [3, 4].map(|steps| Need::Steps(WHOLE[..steps].to_vec()));
    let mut story = untold();
    assert_eq!(story.need(Some("a")), Need::Nothing);
    assert_eq!(story.need(Some("b")), without);
    story.ledger.injected("t");
    assert_eq!(story.need(Some("b")), with);
    let mut story = untold();
    story.ledger.started("t", None);
    assert_eq!(story.need(Some("b")), with);
    let mut story = untold();
    story.renew(Some("b"));
    assert_eq!(story.need(Some("b")), Need::Nothing);
    let mut story = untold();
    story.ledger.unloaded("t");
    let resume = opening(ThreadWay::Resume, Some("t"));
    let (new, said) = (text(Some("b")), Opened::default());
    story.ledger.opened(&id("t"), resume, &new, said);
    assert_eq!(story.need(Some("b")), Need::Nothing);
}

#[test]
fn thread_is_told_alone_of_a_text_before_codex_starts_a_turn_on_it() {
    let of_codex = Asked {
        starter: Starter::Codex,
        ..usual()
    };
    let mut story = Story::started(Some("a"));
    let need = |story: &Story, policy| story.ledger.need("t", &text(Some(policy)), of_codex);
    assert_eq!(need(&story, "a"), Need::Nothing);
    assert_eq!(need(&story, "b"), steps(&[Step::Tell]));
    assert_eq!(story.take(Step::Tell, Some("b")), Ok(()));
    assert_eq!(need(&story, "b"), Need::Nothing);
    let again = story.ledger.compacted("t", false);
    assert_eq!(again.map(|it| it.digest), Some(text(Some("b")).digest));
    // The model sees what is loaded now.
    assert_eq!(need(&story, "b"), steps(&[Step::Tell]));
    assert_eq!(need(&story, "a"), Need::Nothing);
    assert_eq!(story.take(Step::Tell, Some("b")), Ok(()));
    assert_eq!(story.take(Step::Tell, Some("a")), Ok(()));
    assert_eq!(story.ledger.compacted("t", false), None);
    assert_eq!(
        story.need(Some("b")),
        steps(&WHOLE),
        "at the next turn of the client"
    );
}

#[test]
fn revert_to_a_turn_behind_the_text_leaves_it_standing() {
    let mut story = Story::started(Some("a"));
    let began = |story: &mut Story, turn: &str| story.ledger.started("t", TurnId::new(turn));
    let revert = |story: &mut Story, turn: &str| {
        story.ledger.revert_asked("t", Some(turn));
        story.ledger.reverted("t");
    };
    began(&mut story, "1");
    story.renew(Some("b"));
    for turn in ["2", "3"] {
        began(&mut story, turn);
    }
    for turn in ["3", "2"] {
        revert(&mut story, turn);
        assert_eq!(story.need(Some("b")), Need::Nothing, "{turn}");
    }
    began(&mut story, "4");
    for is_known in [true, true, false] {
        assert_eq!(story.ledger.is_known_revert("t"), is_known);
    }
    revert(&mut story, "1");
    assert_eq!(story.need(Some("b")), steps(&[Step::Tell]));
    story.renew(Some("b"));
    began(&mut story, "5");
    story.ledger.compacted("t", false);
    revert(&mut story, "5");
    assert_eq!(
        story.need(Some("b")),
        steps(&[Step::Tell]),
        "it was compacted"
    );
}

#[test]
fn turn_that_was_accepted_brings_the_text_behind_a_compaction() {
    let mut story = Story::started(Some("a"));
    story.ledger.compaction_asked("t");
    story.ledger.compacted("t", true);
    let without = [Step::Look, Step::Leave, Step::Return];
    assert_eq!(story.need(Some("b")), steps(&without));
    // Its start isn't told to a client that has left the thread.
    story.ledger.turn_answered("t", false);
    assert_eq!(story.need(Some("b")), steps(&without));
    story.ledger.turn_answered("t", true);
    assert_eq!(story.need(Some("b")), steps(&WHOLE));
}

#[test]
fn thread_that_codex_loads_anew_for_a_revert_is_there_again() {
    let mut story = Story::started(Some("a"));
    story.ledger.revert_asked("t", None);
    story.ledger.unloaded("t");
    story.ledger.is_there("t");
    assert!(
        story.ledger.is_reloaded("t"),
        "codex has refused it behind that"
    );
    assert!(!story.ledger.is_reloaded("t"));
    assert!(story.ledger.is_known_revert("t"));
    story.ledger.unloaded("t");
    story.ledger.is_there("t");
    assert!(!story.ledger.is_reloaded("t"), "it was for no revert");
    assert_eq!(story.need(Some("b")), steps(&WHOLE));
    // One that isn't loaded is there before codex has answered.
    story.ledger.unloaded("t");
    let own = story.ask(Step::Return, Some("b"));
    story.ledger.is_there("t");
    story.ledger.answered(own, true);
    assert_eq!(story.ledger.outcome("t", own), Ok(()));
}

#[test]
fn turn_is_on_its_way_until_it_starts_ends_or_is_refused() {
    let mut story = Story::started(Some("a"));
    let ends: [fn(&mut Ledger); 3] = [
        |ledger| ledger.started("t", TurnId::new("1")),
        |ledger| ledger.turn_answered("t", false),
        |ledger| ledger.turn_is_sent("t", false),
    ];
    for end in ends {
        story.ledger.turn_is_sent("t", true);
        story.ledger.turn_answered("t", true);
        assert!(story.ledger.is_about_to_run("t"));
        end(&mut story.ledger);
        assert!(!story.ledger.is_about_to_run("t"));
    }
}
