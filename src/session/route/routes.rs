//! What is known of the routes: the account behind them, what bars them, and which of them are used.

use crate::base::bounded::BoundedMap;
use crate::base::ids::{ThreadId, TurnId};
use crate::base::limits::MAX_THREADS;
use crate::session::route::eligibility::{AccountKind, Ineligible};

/// Everything about routes that outlives a message.
#[derive(Debug)]
pub struct Routes {
    /// Holds for every thread, whatever it says.
    pub bar: Option<Ineligible>,
    /// Whether the administrator's requirements were asked for.
    pub has_requirements: bool,
    /// The account, where codex told it since it last changed.
    pub account: Option<Account>,
    /// The kind of the last account that was logged in.
    last_kind: Option<AccountKind>,
    /// How often the kind of account has changed: each change closes what runs.
    closings: u64,
    /// Requests don't go out under codex's account: it neither speaks against a route nor closes one.
    ignores_account: bool,
    threads: BoundedMap<ThreadId, Usage>,
}

/// The account that codex is logged in with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Its kind; none where nobody is logged in.
    pub kind: Option<AccountKind>,
    /// Where its workspace has to be served, if it matters.
    pub routing: Option<WorkspaceRouting>,
}

/// Where requests of a ChatGPT workspace must go.
///
/// Codex itself asks for it, but leaves it to whoever stands behind an address of one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceRouting {
    /// The account that it holds for.
    pub account: String,
    /// The origin of the upstream.
    pub origin: String,
    /// What the header that says so must hold; none where the workspace may be served anywhere.
    pub policy: Option<String>,
}

/// What a thread's route has been used for.
#[derive(Debug, Default)]
struct Usage {
    /// Why it has no route.
    reason: Option<Ineligible>,
    /// The turn of its last request here; an empty one stands for a request that named none.
    seen: Option<TurnId>,
    has_nameless: bool,
    /// The turn whose answer codex has shown.
    answered: Option<TurnId>,
    /// Turns that went another way.
    bypasses: u64,
}

impl Routes {
    /// Starts with what is known before the first line.
    pub fn new(bar: Option<Ineligible>, ignores_account: bool) -> Self {
        Self {
            bar,
            has_requirements: false,
            account: None,
            last_kind: None,
            closings: 0,
            ignores_account,
            threads: BoundedMap::new(MAX_THREADS),
        }
    }

    /// Notes codex's answer to `account/read`; an account that it can't tell speaks for the route.
    pub fn account_told(&mut self, account: Account) {
        self.see(account.kind);
        self.account = Some(account);
    }

    /// Notes that the account has changed to one of this kind, or to none. A new token for the same
    /// kind closes nothing.
    pub fn account_changed(&mut self, kind: Option<AccountKind>) {
        // Nothing more is to be known of a key; of a ChatGPT account, where it is served.
        let routing = None;
        self.account = (kind == Some(AccountKind::ApiKey)).then_some(Account { kind, routing });
        self.see(kind);
    }

    fn see(&mut self, kind: Option<AccountKind>) {
        let Some(kind) = kind else {
            return;
        };
        if !self.ignores_account && self.last_kind.is_some_and(|last| last != kind) {
            self.closings += 1;
            tracing::warn!("the account is of another kind now; running model requests are ended");
        }
        self.last_kind = Some(kind);
    }

    /// Whether a turn may need to know the account.
    pub fn is_account_open(&self) -> bool {
        self.account.is_none() && !self.ignores_account
    }

    /// How often running requests had to end.
    pub fn closings(&self) -> u64 {
        self.closings
    }

    /// Where requests of the ChatGPT account called `account` must go, if codex knows.
    pub fn workspace(&self, account: &str) -> Option<&WorkspaceRouting> {
        let routing = self.account.as_ref()?.routing.as_ref()?;
        (routing.account == account).then_some(routing)
    }

    /// What the account itself says against a route.
    pub fn of_account(&self) -> Option<Ineligible> {
        let account = self.account.as_ref().filter(|_| !self.ignores_account);
        let kind = account.and_then(|account| account.kind);
        (kind == Some(AccountKind::Other)).then_some(Ineligible::AccountUnknown)
    }

    /// Notes a thread, and why it has no route.
    pub fn opened(&mut self, thread: &ThreadId, reason: Option<Ineligible>) {
        let usage = Usage {
            reason,
            ..Usage::default()
        };
        if let Some(known) = self.threads.find_mut(thread) {
            known.reason = reason;
        } else {
            // As many places as the registry has: where it is full, the thread isn't ours.
            let _ = self.threads.try_insert(thread.clone(), usage);
        }
    }

    /// Forgets a thread.
    pub fn gone(&mut self, thread: &str) {
        self.threads.remove(thread);
    }

    /// Why a thread has no route.
    pub fn reason(&self, thread: &str) -> Option<Ineligible> {
        self.threads.find(thread)?.reason
    }

    /// How many turns of a thread went another way than its route.
    pub fn bypasses(&self, thread: &str) -> u64 {
        self.threads.find(thread).map_or(0, |usage| usage.bypasses)
    }

    /// Notes a model request of a thread.
    pub fn requested(&mut self, thread: &str, turn: Option<&TurnId>) {
        if let Some(usage) = self.threads.find_mut(thread) {
            usage.seen = turn.cloned();
            usage.has_nameless = turn.is_none();
        }
    }

    /// Notes that codex has shown a message of the model.
    pub fn answered(&mut self, thread: &str, turn: String) {
        if let Some(usage) = self.threads.find_mut(thread) {
            usage.answered = TurnId::new(turn);
        }
    }

    /// Judges the end of a turn that the client started on a routed thread: true where the model
    /// has spoken without having been asked here.
    pub fn is_bypass(&mut self, thread: &str, turn: &str) -> bool {
        let Some(usage) = self.threads.find_mut(thread) else {
            return false;
        };
        let is = |it: &Option<TurnId>| it.as_ref().is_some_and(|it| it.as_str() == turn);
        let bypassed = is(&usage.answered) && !is(&usage.seen) && !usage.has_nameless;
        usage.bypasses += u64::from(bypassed);
        bypassed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(id: &str) -> TurnId {
        TurnId::new(id.to_owned()).unwrap()
    }

    #[test]
    fn only_another_kind_of_account_closes_routes() {
        let mut routes = Routes::new(None, false);
        let mut change = |kind| {
            routes.account_changed(kind);
            routes.closings()
        };
        assert_eq!(change(Some(AccountKind::ApiKey)), 0);
        assert_eq!(change(Some(AccountKind::ApiKey)), 0);
        assert_eq!(change(None), 0);
        assert_eq!(change(Some(AccountKind::ApiKey)), 0);
        assert_eq!(change(Some(AccountKind::ChatGpt)), 1);
        assert_eq!(change(Some(AccountKind::Other)), 2);
    }

    #[test]
    fn account_matters_nothing_where_the_relay_brings_the_credential() {
        let mut routes = Routes::new(None, true);
        for kind in [
            AccountKind::ApiKey,
            AccountKind::Other,
            AccountKind::ChatGpt,
        ] {
            routes.account_changed(Some(kind));
            assert_eq!((routes.closings(), routes.of_account()), (0, None));
            assert!(!routes.is_account_open());
        }
    }

    #[test]
    fn model_that_spoke_without_being_asked_here_was_asked_elsewhere() {
        let mut routes = Routes::new(None, false);
        let thread = ThreadId::new("t".to_owned()).unwrap();
        routes.opened(&thread, None);
        assert!(!routes.is_bypass("t", "silent"));
        routes.requested("t", Some(&turn("1")));
        routes.answered("t", "1".to_owned());
        assert!(!routes.is_bypass("t", "1"));
        routes.answered("t", "2".to_owned());
        assert!(routes.is_bypass("t", "2"));
        assert_eq!(routes.bypasses("t"), 1);
        routes.requested("t", None);
        routes.answered("t", "3".to_owned());
        assert!(!routes.is_bypass("t", "3"));
    }
}
