//! What the client gives by `relay/context/set`, and by the `relay` member of its requests: one text
//! for the next turn of a thread, one for the thread, one for all others.

use std::sync::Arc;

use crate::base::bounded::{BoundedMap, Full};
use crate::base::ids::{Generation, ThreadId};
use crate::base::limits::MAX_THREADS;
use crate::context::given::Given;
use crate::context::reference::Reference;
use crate::context::snapshot::Snapshot;

/// What is in force for turns that don't say.
#[derive(Debug)]
pub struct Registrations {
    default: Option<Registered>,
    /// Invariant: no entry is empty.
    threads: BoundedMap<ThreadId, Slots>,
    /// Something was given once: from then on requests must be understood.
    has_any: bool,
}

/// How long a registration lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until its turn has ended.
    Turn,
    /// Until it is replaced or cleared.
    Thread,
}

/// One registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its id.
    pub generation: Generation,
    /// The text.
    pub given: Arc<Given>,
    /// The references; none leaves them to whoever comes behind.
    pub references: Option<Arc<[Reference]>>,
    /// Whether the thread has tools for the memory; none leaves it to whoever comes behind.
    pub memory_tools: Option<bool>,
    /// The text as it stands in a turn like most.
    pub snapshot: Arc<Snapshot>,
}

#[derive(Debug, Default)]
struct Slots {
    turn: Option<Registered>,
    thread: Option<Registered>,
}

/// What a turn gets where it says nothing itself: of each the first that there is.
#[derive(Debug, Default)]
pub struct InForce {
    /// The text.
    pub given: Option<Arc<Given>>,
    /// The references.
    pub references: Option<Arc<[Reference]>>,
    /// Whether there are tools for the memory.
    pub memory_tools: Option<bool>,
}

impl Registrations {
    /// Starts with nothing.
    pub fn new() -> Self {
        Self {
            default: None,
            threads: BoundedMap::new(MAX_THREADS),
            has_any: false,
        }
    }

    /// Whether anything was ever given.
    pub fn has_any(&self) -> bool {
        self.has_any
    }

    /// Notes that a turn came with a text of its own.
    pub fn note_any(&mut self) {
        self.has_any = true;
    }

    /// Whether one for `thread` would be one too many, beside those that are `on_their_way`.
    pub fn is_full_for(&self, thread: Option<&str>, on_their_way: usize) -> bool {
        let is_known = thread.is_some_and(|thread| self.threads.find(thread).is_some());
        !is_known && self.threads.len() + on_their_way >= MAX_THREADS
    }

    /// Puts a registration in the place of the one before.
    pub fn set(
        &mut self,
        thread: &ThreadId,
        lifetime: Lifetime,
        registered: Registered,
    ) -> Result<(), Full> {
        self.has_any = true;
        if self.threads.find(thread).is_none() {
            self.threads.try_insert(thread.clone(), Slots::default())?;
        }
        if let Some(slots) = self.threads.find_mut(thread) {
            let slot = match lifetime {
                Lifetime::Turn => &mut slots.turn,
                Lifetime::Thread => &mut slots.thread,
            };
            *slot = Some(registered);
        }
        Ok(())
    }

    /// Puts a registration in the place of the default before, for threads that have none.
    pub fn set_default(&mut self, registered: Registered) {
        self.has_any = true;
        self.default = Some(registered);
    }

    /// Forgets what a thread has, or the default.
    pub fn clear(&mut self, thread: Option<&str>) {
        match thread {
            Some(thread) => drop(self.threads.remove(thread)),
            None => self.default = None,
        }
    }

    /// Forgets what a thread had for one turn; with `only`, if it is this one.
    pub fn end_turn(&mut self, thread: &str, only: Option<&Generation>) {
        let Some(slots) = self.threads.find_mut(thread) else {
            return;
        };
        slots
            .turn
            .take_if(|turn| only.is_none_or(|only| turn.generation == *only));
        if slots.turn.is_none() && slots.thread.is_none() {
            self.threads.remove(thread);
        }
    }

    /// What the next turn of the client on `thread` gets; `is_taken` says of a registration for one
    /// turn whether another has it.
    pub fn for_turn(
        &self,
        thread: Option<&str>,
        is_taken: impl Fn(&Generation) -> bool,
    ) -> InForce {
        let slots = thread.and_then(|thread| self.threads.find(thread));
        let turn = slots.and_then(|slots| slots.turn.as_ref());
        InForce::of([
            turn.filter(|turn| !is_taken(&turn.generation)),
            slots.and_then(|slots| slots.thread.as_ref()),
            self.default(),
        ])
    }

    /// What any other turn on `thread` gets.
    pub fn usual(&self, thread: Option<&str>) -> InForce {
        let of_thread = thread.and_then(|thread| self.thread(thread));
        InForce::of([of_thread, self.default()])
    }

    /// The registration for the next turn of a thread.
    pub fn turn(&self, thread: &str) -> Option<&Registered> {
        self.threads.find(thread)?.turn.as_ref()
    }

    /// The registration of a thread.
    pub fn thread(&self, thread: &str) -> Option<&Registered> {
        self.threads.find(thread)?.thread.as_ref()
    }

    /// The registration for threads that have none.
    pub fn default(&self) -> Option<&Registered> {
        self.default.as_ref()
    }

    /// The text that is registered for `thread` under this generation.
    pub fn text_of(&self, thread: &str, generation: &Generation) -> Option<&Arc<Snapshot>> {
        let slots = self.threads.find(thread)?;
        let both = [slots.turn.as_ref(), slots.thread.as_ref()];
        let mut found = both.into_iter().flatten();
        let found = found.find(|registered| registered.generation == *generation)?;
        Some(&found.snapshot)
    }

    /// The threads that have a registration.
    pub fn threads(&self) -> impl Iterator<Item = &ThreadId> {
        self.threads.iter().map(|(thread, _)| thread)
    }
}

impl Default for Registrations {
    fn default() -> Self {
        Self::new()
    }
}

impl InForce {
    fn of<'a>(all: impl IntoIterator<Item = Option<&'a Registered>>) -> Self {
        let mut found = Self::default();
        for registered in all.into_iter().flatten() {
            let given = || Arc::clone(&registered.given);
            found.given.get_or_insert_with(given);
            found.references = found.references.or_else(|| registered.references.clone());
            found.memory_tools = found.memory_tools.or(registered.memory_tools);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(thread: &str) -> ThreadId {
        ThreadId::new(thread).unwrap()
    }

    fn registered(text: &str) -> Registered {
        Registered {
            generation: Generation::new(format!("g-{text}")).unwrap(),
            given: Arc::new(Given::of_text(text.to_owned())),
            references: None,
            memory_tools: None,
            snapshot: Arc::new(Snapshot::new(text.to_owned(), Vec::new())),
        }
    }

    fn is(in_force: &InForce, text: &str) -> bool {
        in_force.given.as_deref() == Some(&Given::of_text(text.to_owned()))
    }

    #[test]
    fn turn_comes_before_thread_before_default() {
        let mut all = Registrations::new();
        assert!(!all.has_any());
        all.set_default(registered("default"));
        assert!(is(&all.for_turn(Some("t"), |_| false), "default"));
        all.set(&id("t"), Lifetime::Thread, registered("thread"))
            .unwrap();
        all.set(&id("t"), Lifetime::Turn, registered("turn"))
            .unwrap();
        assert!(is(&all.for_turn(Some("t"), |_| false), "turn"));
        assert!(is(&all.usual(Some("t")), "thread"));
        assert!(is(&all.for_turn(Some("other"), |_| false), "default"));
        assert!(is(&all.for_turn(None, |_| false), "default"));
        let of = |generation: &str| {
            let generation = Generation::new(generation).unwrap();
            all.text_of("t", &generation).map(|it| it.text().to_owned())
        };
        assert_eq!(of("g-turn").as_deref(), Some("turn"));
        assert_eq!(of("g-thread").as_deref(), Some("thread"));
        assert_eq!(of("g-default"), None);
        all.end_turn("t", Generation::new("g-older").as_ref());
        assert!(
            is(&all.for_turn(Some("t"), |_| false), "turn"),
            "another turn ended"
        );
        all.end_turn("t", Generation::new("g-turn").as_ref());
        assert!(is(&all.for_turn(Some("t"), |_| false), "thread"));
        all.clear(Some("t"));
        assert!(is(&all.for_turn(Some("t"), |_| false), "default"));
        all.clear(None);
        assert!(all.for_turn(Some("t"), |_| false).given.is_none());
        assert!(all.has_any());
    }

    #[test]
    fn references_are_those_of_the_first_that_names_some() {
        let mut all = Registrations::new();
        let one = || Some(Arc::from([Reference::named("n".to_owned(), "text")]));
        all.set_default(Registered {
            references: one(),
            memory_tools: Some(true),
            ..registered("default")
        });
        all.set(&id("t"), Lifetime::Turn, registered("turn"))
            .unwrap();
        let found = all.for_turn(Some("t"), |_| false);
        assert_eq!(found.references.unwrap().len(), 1);
        assert_eq!(found.memory_tools, Some(true));
        let none = Registered {
            references: Some(Arc::from([])),
            ..registered("turn")
        };
        all.set(&id("t"), Lifetime::Turn, none).unwrap();
        assert!(
            all.for_turn(Some("t"), |_| false)
                .references
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn one_more_thread_than_there_is_room_for_is_refused_and_the_others_stay() {
        let mut all = Registrations::new();
        for number in 0..MAX_THREADS {
            let thread = id(&number.to_string());
            all.set(&thread, Lifetime::Thread, registered("x")).unwrap();
        }
        assert!(all.is_full_for(Some("new"), 0) && !all.is_full_for(Some("0"), 1));
        assert!(
            all.set(&id("new"), Lifetime::Turn, registered("y"))
                .is_err()
        );
        all.set(&id("0"), Lifetime::Thread, registered("z"))
            .unwrap();
        assert!(is(&all.usual(Some("0")), "z"));
        all.set(&id("1"), Lifetime::Turn, registered("z")).unwrap();
        all.end_turn("1", None);
        assert!(is(&all.usual(Some("1")), "x"));
        all.clear(Some("1"));
        all.set(&id("new"), Lifetime::Turn, registered("y"))
            .unwrap();
        all.end_turn("new", None);
        assert!(
            !all.is_full_for(Some("newer"), 0) && all.is_full_for(Some("newer"), 1),
            "an empty place is given back"
        );
    }
}
