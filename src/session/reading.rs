//! Lines, read for the session: whatever takes as long as they are is done here, before the one lock is
//! taken. Afterwards each question about a line is answered from what was found.

use std::ops::Range;

use bytes::Bytes;

use crate::base::ids::RequestId;
use crate::session::given::given_params::Excess;
use crate::session::given::relay_member::{self, RelayMember, Scope};
use crate::session::given::relay_methods::RelayCall;
use crate::session::instructions::documents::ROOM_MEMBER;
use crate::session::instructions::opening::Base;
use crate::session::instructions::places::Places;
use crate::session::instructions::strays::Strays;
use crate::session::methods::{self, ClientMethod, ThreadWay};
use crate::session::parent::threads::has_memory_tools;
use crate::wire::edit::cut;
use crate::wire::envelope::{Envelope, member};
use crate::wire::known::{Known, Sought};
use crate::wire::lead::Lead;

/// What a line of the client is.
#[derive(Debug)]
pub struct ClientLine(pub(super) Content);

/// What a line of the client asks for.
#[derive(Debug)]
pub(super) enum Content {
    /// A request of codex's that the relay changes, with a member for the relay that was taken out.
    Addressed {
        id: RequestId,
        member: Result<RelayMember, String>,
        excess: Option<Excess>,
    },
    /// Nothing that we know of, nor anything that is answered.
    Opaque,
    /// A request that codex alone has to do with.
    Other(RequestId),
    /// A notification in the relay's own name space.
    RelayNotification,
    /// A request to the relay.
    RelayRequest(RelayCall),
    /// A request to the relay that can't be read.
    RelayUnreadable(RequestId),
    /// A request of codex's that the relay has a part in.
    Shared(ClientMethod, Request),
}

/// A request of the client's that the relay has a part in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) params: Known,
    pub(super) said: Said,
}

/// What params say at length.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The developer instructions that the client itself gives.
    pub(super) own: Option<Base>,
    /// Where commands run.
    pub(super) places: Option<Places>,
    /// Whether both tools for the memory are among its tools.
    pub(super) has_memory_tools: bool,
}

impl ClientLine {
    /// Reads `line`, and takes the relay's own member out of it: in place, where nobody else holds
    /// the line.
    pub fn read(line: Bytes) -> (Bytes, Self) {
        let Some(envelope) = Envelope::read(&line) else {
            let content = Content::of_unreadable(&line);
            return (line, Self(content));
        };
        let method = envelope.method.as_deref().and_then(methods::of_client);
        let scope = match method {
            Some(ClientMethod::Thread(_)) => Scope::Thread,
            Some(ClientMethod::TurnStart) => Scope::Turn,
            Some(
                ClientMethod::Compact
                | ClientMethod::Initialize
                | ClientMethod::Inject
                | ClientMethod::Interrupt
                | ClientMethod::Revert
                | ClientMethod::Settings
                | ClientMethod::Shell
                | ClientMethod::TurnSteer
                | ClientMethod::Unsubscribe
                | ClientMethod::Work
                | ClientMethod::WorkOfModel,
            )
            | None => return Self::of(line, envelope),
        };
        let (Some(id), Some(params)) = (&envelope.id, &envelope.params) else {
            return Self::of(line, envelope);
        };
        let Some(taken) = relay_member::find(&line, params, scope) else {
            return Self::of(line, envelope);
        };
        let content = Content::Addressed {
            id: id.clone(),
            member: taken.member,
            excess: taken.excess,
        };
        (cut(line, &taken.cuts), Self(content))
    }

    /// Reads a line that the relay's own member was taken out of.
    pub fn read_bare(line: &Bytes) -> Self {
        let content = Envelope::read(line).map(|envelope| Content::of(line, envelope));
        Self(content.unwrap_or(Content::Opaque))
    }

    fn of(line: Bytes, envelope: Envelope) -> (Bytes, Self) {
        let content = Content::of(&line, envelope);
        (line, Self(content))
    }
}

impl Content {
    /// A line that can't be read is codex's, unless it names a method of the relay's own.
    fn of_unreadable(line: &[u8]) -> Self {
        let mut lead = Lead::default();
        lead.push(line);
        lead.finish();
        if !lead.method_begins_with(methods::OWN_NAMES) {
            return Self::Opaque;
        }
        lead.id()
            .map_or(Self::RelayNotification, Self::RelayUnreadable)
    }

    fn of(line: &Bytes, envelope: Envelope) -> Self {
        let Some(name) = envelope.method else {
            return Self::Opaque;
        };
        if methods::is_ours(&name) {
            let call = envelope
                .id
                .map(|id| RelayCall::read(line, name, id, envelope.params));
            return call.map_or(Self::RelayNotification, Self::RelayRequest);
        }
        match (envelope.id, methods::of_client(&name), envelope.params) {
            (None, _, _) => Self::Opaque,
            (Some(id), Some(method), Some(params)) => {
                Self::Shared(method, Request::read(line, id, method, params))
            }
            (Some(id), None, _) | (Some(id), _, None) => Self::Other(id),
        }
    }
}

impl Request {
    /// The environments that a thread is opened in: codex takes some at a start alone.
    pub(super) fn places_of_thread(&self, way: ThreadWay) -> Option<&Places> {
        let places = self.said.places.as_ref();
        places.filter(|_| way == ThreadWay::Start)
    }

    fn read(line: &Bytes, id: RequestId, method: ClientMethod, params: Range<usize>) -> Self {
        let params = Known::read(line, params, &OF_CLIENT);
        let is_start = method == ClientMethod::Thread(ThreadWay::Start);
        let tools = member(line, &params, &["dynamicTools"]).filter(|_| is_start);
        let places = || Places::find(line, &params, &["environments"]);
        let said = match method {
            ClientMethod::Thread(_) | ClientMethod::TurnStart => Said {
                own: Base::of_params(line, &params),
                places: places(),
                has_memory_tools: tools.is_some_and(|at| has_memory_tools(line, &at)),
            },
            ClientMethod::Settings => Said {
                places: places(),
                ..Said::default()
            },
            ClientMethod::Compact
            | ClientMethod::Initialize
            | ClientMethod::Inject
            | ClientMethod::Interrupt
            | ClientMethod::Revert
            | ClientMethod::Shell
            | ClientMethod::TurnSteer
            | ClientMethod::Unsubscribe
            | ClientMethod::Work
            | ClientMethod::WorkOfModel => Said::default(),
        };
        Self { id, params, said }
    }
}

/// A line of codex, as far as the session asks for it.
#[derive(Debug)]
pub struct CodexLine {
    pub(super) envelope: Envelope,
    /// The result of an answer that is no error.
    pub(super) result: Option<Known>,
    /// The params of a notification that teaches something.
    pub(super) params: Option<Known>,
}

impl CodexLine {
    /// Reads `line`; none where it isn't one JSON object.
    pub fn read(line: &Bytes) -> Option<Self> {
        let envelope = Envelope::read(line)?;
        let known = |range: &Range<usize>| Known::read(line, range.clone(), &OF_CODEX);
        let result = envelope.result.as_ref().filter(|_| !envelope.is_error);
        // Of most notifications nothing more is asked.
        let is_asked = |name: &str| methods::of_codex(name).is_some() || Strays::may_be(name);
        let params = envelope.params.as_ref();
        let params = params.filter(|_| envelope.method.as_deref().is_some_and(is_asked));
        Some(Self {
            result: result.map(known),
            params: params.map(known),
            envelope,
        })
    }
}

/// What is asked of the params of a client.
static OF_CLIENT: [Sought; 24] = [
    Sought::leaf("approvalPolicy"),
    Sought::leaf("approvalsReviewer"),
    Sought::leaf("beforeTurnId"),
    Sought::new(
        "capabilities",
        &[
            Sought::leaf("experimentalApi"),
            Sought::leaf("optOutNotificationMethods"),
            Sought::leaf("relay"),
        ],
    ),
    Sought::leaf("collaborationMode"),
    Sought::new(
        "config",
        &[
            Sought::leaf("developer_instructions"),
            Sought::new("features", &[Sought::leaf("respect_system_proxy")]),
            Sought::leaf("features.respect_system_proxy"),
            Sought::leaf("model_provider"),
            Sought::new(
                "model_providers",
                &[Sought::new("openai", &[Sought::leaf("base_url")])],
            ),
            Sought::new("model_providers.openai", &[Sought::leaf("base_url")]),
            Sought::leaf("model_providers.openai.base_url"),
            Sought::leaf("openai_base_url"),
            Sought::leaf(ROOM_MEMBER),
        ],
    ),
    Sought::leaf("cwd"),
    Sought::leaf("developerInstructions"),
    Sought::leaf("dynamicTools"),
    Sought::leaf("effort"),
    Sought::leaf("environments"),
    Sought::leaf("input"),
    Sought::leaf("lastTurnId"),
    Sought::leaf("model"),
    Sought::leaf("modelProvider"),
    Sought::leaf("permissions"),
    Sought::leaf("personality"),
    Sought::leaf("responsesapiClientMetadata"),
    Sought::leaf("sandboxPolicy"),
    Sought::leaf("serviceTier"),
    Sought::leaf("status"),
    Sought::leaf("summary"),
    Sought::leaf("threadId"),
    Sought::leaf("turnId"),
];

/// What is asked of the result of an answer of codex, or of the params of a notification.
static OF_CODEX: [Sought; 17] = [
    Sought::new("activePermissionProfile", &[Sought::leaf("id")]),
    Sought::leaf("authMode"),
    Sought::leaf("collaborationMode"),
    Sought::leaf("cwd"),
    Sought::new("goal", &[Sought::leaf("status")]),
    Sought::leaf("instructionSources"),
    Sought::new("item", &[Sought::leaf("type")]),
    Sought::leaf("model"),
    Sought::leaf("name"),
    Sought::leaf("reasoningEffort"),
    Sought::new("status", &[Sought::leaf("type")]),
    Sought::new(
        "thread",
        &[
            Sought::leaf("environments"),
            Sought::leaf("ephemeral"),
            Sought::leaf("id"),
            Sought::leaf("path"),
            Sought::new("status", &[Sought::leaf("type")]),
        ],
    ),
    Sought::leaf("threadId"),
    Sought::new(
        "threadSettings",
        &[Sought::leaf("cwd"), Sought::leaf("environments")],
    ),
    Sought::new("turn", &[Sought::leaf("id")]),
    Sought::leaf("turnId"),
    Sought::leaf("userAgent"),
];
