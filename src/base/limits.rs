//! Every bound that faces outside, with its unit and its reason.

use std::time::Duration;

// ── context ─────────────────────────────────────────────────────────────────────────────────────

/// The prepared context of one turn. / Larger ones are refused, never cut: cutting would hide
/// instructions that the user relies on.
pub const MAX_CONTEXT_BYTES: usize = 262_144;

/// The texts of a client's references, all together. / They are ordinary user messages: what codex
/// takes of a person in one turn.
pub const MAX_REFERENCES_BYTES: usize = 1_048_576;

/// Sections of a context, and references, that a client may name.
pub const MAX_GIVEN_PARTS: usize = 256;

/// The name of a section or reference of a client. / It stands in errors and accounts.
pub const MAX_PART_NAME_BYTES: usize = 256;

/// What a client says to the relay in one line, as it stands there. / Twice what its texts may be, and
/// what their escapes add in any language.
pub const MAX_RELAY_MEMBER_BYTES: usize = 8 * 1024 * 1024;

/// One workspace file, read. / A log that was renamed to SOUL.md must not fill the memory.
pub const MAX_FILE_BYTES: usize = 2 * 1024 * 1024;

/// One workspace file, in Unicode scalar values after the cut.
pub const FILE_BUDGET_CHARS: usize = 20_000;

/// USER.md, in Unicode scalar values after the cut.
pub const USER_BUDGET_CHARS: usize = 4_000;

/// All workspace files together, in Unicode scalar values.
pub const TOTAL_BUDGET_CHARS: usize = 150_000;

/// Skills that are listed.
pub const MAX_SKILLS: usize = 150;

/// The list of skills, in Unicode scalar values.
pub const SKILLS_BUDGET_CHARS: usize = 18_000;

/// Folders below `skills/` that are looked at. / A folder that was unpacked in the wrong place must
/// not stop every turn.
pub const MAX_SKILL_FOLDERS: usize = 4096;

/// What is read of a SKILL.md: its front matter. / The body is read by the model when it needs it.
pub const MAX_FRONT_MATTER_BYTES: usize = 64 * 1024;

/// Files of the workspace that are remembered as they were read last.
pub const MAX_CACHED_FILES: usize = 8192;

/// Contexts that are kept to be shared. / Threads whose context is the same hold one copy of it.
pub const MAX_SHARED_CONTEXTS: usize = 16;

/// Warnings about a workspace that are remembered, so that each is logged once.
pub const MAX_TOLD_WARNINGS: usize = 1024;

/// Warnings that wait to be sent to the client. / Each is in the log as well.
pub const MAX_QUEUED_WARNINGS: usize = 64;

/// How old a file's last change must be before its size and times prove that it is unchanged. /
/// Clocks of file systems tick in steps of up to two seconds (FAT).
pub const FILE_CLOCK_STEP: Duration = Duration::from_secs(3);

/// What is read of a thread's history to see whether a section of ours holds there.
pub const MAX_HISTORY_BYTES: u64 = 512 * 1024 * 1024;

/// One read of it.
pub const HISTORY_CHUNK_BYTES: usize = 256 * 1024;

/// The id of a profile.
pub const MAX_PROFILE_CHARS: usize = 128;

/// Reading the workspace for one turn. / A dead network mount must end in words, not in silence.
pub const CONTEXT_DEADLINE: Duration = Duration::from_secs(10);

// ── model requests ──────────────────────────────────────────────────────────────────────────────

/// A request body: on the wire, inflated, and after injection. / Twice what image-heavy threads
/// are known to reach.
pub const MAX_BODY_BYTES: usize = 33_554_432;

/// Plain bodies from here on are edited while they pass. / A smaller one arrives in a read or two.
pub const PASSING_FROM_BYTES: u64 = 131_072;

/// The beginning of such a body, held until its `instructions` have come. / Codex writes them
/// second; a body that has none here is read whole.
pub const HELD_BODY_BYTES: usize = 65_536;

/// What such a body says of its turn, kept until its end. / Where the headers say more than a quarter
/// of it, the body is read whole.
pub const CONFIRMED_METADATA_BYTES: usize = 262_144;

/// The window of a compressed body that is opened while it comes, as a power of two. / Twice codex's; one
/// with a larger window is opened as a whole.
pub const MAX_WINDOW_LOG: u32 = 22;

/// What opening and closing such a body takes beside its bytes: the window, and the compressor's
/// tables.
pub const REPACK_BYTES: usize = 9 * 1024 * 1024;

/// Of a larger compressed body so much is here before it is opened. / A place for that is taken once the
/// rest is on its way, never while codex may still think.
pub const OVERLAP_FROM_BYTES: usize = 131_072;

/// A compressed body that is kept as it came while it is edited, in case it must be judged as a whole. /
/// The largest that is usual; a larger one that isn't as codex makes them is asked for again.
pub const KEPT_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Of such a body so much is gathered, opened and edited, before it is compressed again. / Of a small one
/// the size is known then, and the compressor needs smaller tables.
pub const GATHERED_PLAIN_BYTES: usize = 1024 * 1024;

/// How long the compressor's tables are kept for the next body. / A turn makes its requests in quick
/// succession.
pub const TOOLS_KEPT: Duration = Duration::from_secs(10);

/// A WebSocket message, summed over its fragments, in either direction.
pub const MAX_MESSAGE_BYTES: usize = 33_554_432;

/// The metadata string of a request. / It names a turn; a megabyte is already absurd.
pub const MAX_METADATA_BYTES: usize = 1_048_576;

/// The head of an HTTP request from codex. / Room for a metadata header of its full size; as much
/// may wait for a codex that doesn't read.
pub const MAX_HEAD_BYTES: usize = 1_048_576 + 131_072;

/// One read from a connection. / Enough that the calls and the peer's wake-ups don't count, and still in
/// the cache when it is written. A little below 256 KiB: a read that fills its buffer makes the library
/// double it.
pub const CONNECTION_READ_BYTES: u64 = 258_048;

/// Of an answer so much is gathered before its head goes to codex, where it is here already. / A short
/// answer then takes one write.
pub const GATHERED_BYTES: u64 = 65_536;

/// Header lines of one message.
pub const MAX_HEADERS: usize = 256;

/// Nesting of JSON containers. / Deeper bodies are not known; a scanner must not take a stack's
/// worth of memory for a line of brackets.
pub const MAX_JSON_DEPTH: usize = 1024;

/// Connections of codex at once. / One per thread and some for HTTP.
pub const MAX_CONNECTIONS: usize = 1024;

/// Threads that serve connections. / Codex sends a few requests at once, seldom more than it has
/// threads at work; each has some 200 KiB of its own.
pub const MAX_LANES: usize = 4;

/// Connections that haven't shown the secret yet. / Over it the oldest is cut, not the newest
/// refused: codex shows it within a millisecond, a flood never does.
pub const MAX_STRANGERS: usize = 256;

/// The kernel's table of sockets, read. / A line has 150 bytes: more than all ports of loopback.
pub const MAX_SOCKET_TABLE_BYTES: u64 = 16 * 1024 * 1024;

/// From a connection that couldn't be accepted to the next try. / Descriptors are given back in
/// their own time; asking for them must not keep a core busy.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Sending the head of a request, the wait for it on an open connection included. / Longer than
/// codex keeps an idle connection (90 s), so that it is codex who closes: a request that meets our
/// close would be lost.
pub const HEAD_DEADLINE: Duration = Duration::from_mins(2);

/// Each step to the upstream: name and TCP, the tunnel through a proxy, TLS.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Throwing away the rest of a refused body. / Codex needs milliseconds on loopback.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(30);

/// Idle pooled connections to one upstream host. / One for each of many sessions: a connection that is
/// made anew costs more than a request.
pub const MAX_IDLE_UPSTREAM: usize = 256;

/// How long a pooled connection is kept. / Below the idle time-outs of common front ends.
pub const IDLE_UPSTREAM: Duration = Duration::from_secs(50);

/// Silence of an upstream after which its machine is asked for a sign of life. / Below the time-outs
/// of common routers, which forget a silent connection without a word.
pub const KEEPALIVE: Duration = Duration::from_secs(30);

/// A credential of the upstream, in a file or printed by a command. / The longest tokens have some KiB.
pub const MAX_BEARER_BYTES: usize = 16 * 1024;

/// Reading such a file, or running such a command. / Helpers may ask a service of their own.
pub const BEARER_DEADLINE: Duration = Duration::from_secs(30);

/// A proxy's answer to CONNECT.
pub const MAX_TUNNEL_HEAD_BYTES: usize = 16 * 1024;

/// A file of root certificates. / A whole system's roots are some 200 KiB.
pub const MAX_CA_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Fragments of a message on their way to the upstream. / A pong must not wait behind 32 MiB: on
/// a link of 1 Mbit/s this is two seconds.
pub const FRAGMENT_BYTES: usize = 256 * 1024;

/// A WebSocket message that upstreams take. / Theirs close the connection above it, and the turn
/// is lost.
pub const MAX_UPSTREAM_MESSAGE_BYTES: usize = 16_777_216;

/// What stands around an inserted text: the member's name, quotes, a comma, a blank line.
pub const INSERTION_OVERHEAD_BYTES: usize = 64;

/// The body of a refused handshake that is read to see what it says. / An error object, not a page.
pub const MAX_REFUSAL_BODY_BYTES: usize = 65_536;

/// Messages in flight that are read whole: bodies and WebSocket messages as they come, and long
/// lines of JSON-RPC. / Over it their senders wait.
pub const MESSAGES_BUDGET_BYTES: usize = 80 * 1024 * 1024;

/// The same for those of at most [`LIGHT_LINE_BYTES`] that find no place there: they must not wait
/// behind large ones that do.
pub const LIGHT_BUDGET_BYTES: usize = 8 * 1024 * 1024;

/// Compressed bodies in flight, inflated. / A second pool behind the first: whoever has a place
/// here waits for nobody, so nobody waits for ever.
pub const INFLATED_BUDGET_BYTES: usize = 40 * 1024 * 1024;

/// From the end of a large message to the moment when its memory is given back to the system. / A next one
/// would need it again.
pub const MEMORY_KEPT: Duration = Duration::from_secs(1);

/// Waiting for a place in a budget. / Codex itself waits longer for an answer.
pub const BUDGET_DEADLINE: Duration = Duration::from_secs(30);

/// The same for a line of JSON-RPC while another one has a place. / The two may wait for each other:
/// a codex that answers a line while it reads it.
pub const LINE_BUDGET_DEADLINE: Duration = Duration::from_millis(500);

/// Refusals that wait for the end of a message to codex.
pub const MAX_QUEUED_REFUSALS: usize = 16;

/// Pings that are answered in codex's place and wait for a gap; one more goes to codex itself.
pub const MAX_QUEUED_PINGS: usize = 8;

/// From the end of one leg of a WebSocket to the end of the other.
pub const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// Reads on either leg of a WebSocket.
pub const FRAME_READ_BYTES: usize = 64 * 1024;

// ── JSON-RPC over stdio ─────────────────────────────────────────────────────────────────────────

/// A line that is read, its newline not counted; longer ones pass unread. / Codex itself accepts
/// 70 MiB.
pub const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// A name, an id or a path in a line, as it stands there. / No system has longer ones; a line of
/// nothing else must not be copied for each time that it is asked for.
pub const MAX_NAME_BYTES: usize = 64 * 1024;

/// The beginning of a longer line, in which its method is looked for. / Clients write it first.
pub const LEAD_BYTES: usize = 4096;

/// What fits into a pipe before its writer waits. / Systems grant a MiB; a long line needs several
/// rounds all the same.
pub const PIPE_BYTES: usize = 256 * 1024;

/// One read from a pipe.
pub const PIPE_READ_BYTES: usize = 64 * 1024;

/// A line that is no burden to the memory: longer ones count for the budget of messages in flight.
pub const LIGHT_LINE_BYTES: usize = 1024 * 1024;

/// What one line counts for at the most. / Beside it the largest model request still has its place:
/// a client that doesn't read a long line must not stop the model.
pub const MAX_LINE_SHARE_BYTES: usize = 48 * 1024 * 1024;

/// Lines that wait for the client to read them. / Behind it the sender waits.
pub const MAX_QUEUED_LINES: usize = 8;

/// Lines of our own that wait for the client to read them. / So many requests it may have refused
/// without reading, and still be heard.
pub const MAX_QUEUED_OWN_LINES: usize = 64;

/// Codex's answer to a request of our own. / It needs milliseconds; behind it the client's line
/// goes on without.
pub const OWN_ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// The same where the line loses little without it. / It holds up the client's other lines.
pub const OPTIONAL_ANSWER_DEADLINE: Duration = Duration::from_secs(1);

/// Questions about a thread's tools that came too early, in all. / Each holds up a turn for a moment.
pub const MAX_EARLY_QUESTIONS: u32 = 256;

/// The first pause before an overloaded codex is asked again; each later one is twice as long.
pub const OVERLOAD_PAUSE: Duration = Duration::from_millis(50);

/// Answers to requests of our own that wait to be taken.
pub const MAX_OWN_ANSWERS: usize = 64;

/// Lines of the client that wait for codex at once. / Over it no more are read; some answers that
/// nobody waits for any more must fit beside theirs.
pub const MAX_WAITING_LINES: usize = 32;

/// Lines that stay behind those. / Over it no more are read.
pub const MAX_HELD_LINES: usize = 256;

/// The same in bytes, waiting lines included; one line may go over it.
pub const MAX_HELD_BYTES: usize = 1024 * 1024;

/// Requests of our own that nobody waits for, on their way to codex. / Over it they fail, and are
/// due again at the thread's next turn.
pub const MAX_ERRANDS: usize = 16;

/// Threads that the client drives at once.
pub const MAX_THREADS: usize = 1024;

/// Threads whose developer instructions are remembered, also once they are closed. / A thread that
/// comes back to the same text needs no second message.
pub const MAX_TOLD_THREADS: usize = 2048;

/// A developer policy, and a client's own developer instructions that it goes behind.
pub const MAX_POLICY_BYTES: usize = 262_144;

/// A client's `config` that is kept, to be given again when the thread is renewed; and what codex
/// says of a thread's settings.
pub const MAX_KEPT_CONFIG_BYTES: usize = 65_536;

/// Characters of an error of codex's that stand in one of ours.
pub const MAX_SAID_CHARS: usize = 300;

/// Turns of a thread that a revert may go back to without its being told of its developer instructions
/// again: the newest.
pub const MAX_TURNS_SINCE: usize = 32;

/// MCP servers whose start is followed, for each thread and side; further ones are shown as codex tells
/// them.
pub const MAX_STARTING_SERVERS: usize = 32;

/// Bytes of the name of such a server.
pub const MAX_SERVER_NAME_BYTES: usize = 256;

/// Profiles of permissions whose documents are remembered, for each thread.
pub const MAX_KEPT_LISTINGS: usize = 4;

/// Documents of a thread that are remembered. / Codex reads one for each folder on the way.
pub const MAX_LISTED_DOCUMENTS: usize = 64;

/// Codex's answer when it loads a thread anew. / It reads the whole history.
pub const RENEWAL_DEADLINE: Duration = Duration::from_mins(1);

/// Requests of the client whose answers teach us something.
pub const MAX_OPEN_REQUESTS: usize = 4096;

/// Turns of one thread that are admitted at once. / One runs, others steer it.
pub const MAX_TURNS: usize = 64;

/// Each question of the doctor to codex or to the upstream. / Long enough for a slow network, short
/// enough for a person who waits.
pub const DOCTOR_DEADLINE: Duration = Duration::from_secs(15);

// ── supervision ─────────────────────────────────────────────────────────────────────────────────

/// Starting codex, to the moment when it runs. / Milliseconds, but for a machine out of breath.
pub const START_DEADLINE: Duration = Duration::from_secs(30);

/// From the end of stdin to SIGTERM. / Codex needs some 50 ms.
pub const CHILD_EOF_GRACE: Duration = Duration::from_secs(5);

/// Delivering codex's last words after it was killed, and its stderr in any case. / Nobody may be
/// reading.
pub const KILLED_GRACE: Duration = Duration::from_secs(1);

/// For how long, once the client sends no more, it may take nothing of what is there for it, or codex
/// nothing of what the client has sent, before codex is ended. / A reader that pauses keeps its words;
/// one that never reads would keep us and codex for ever.
pub const UNREAD_GRACE: Duration = Duration::from_secs(30);

/// From SIGTERM to SIGKILL.
pub const CHILD_TERM_GRACE: Duration = Duration::from_secs(5);

/// From one look at what is detached from codex to the next. / A tool that detaches itself later
/// than that before codex dies is taken for one that codex still owned.
pub const CENSUS_INTERVAL: Duration = Duration::from_secs(1);

/// Ending what codex owned when it died. / A process in the kernel's hands can't be killed; nobody
/// waits for it.
pub const SWEEP_DEADLINE: Duration = Duration::from_secs(2);

/// Silence on a pipe of a codex that has ended, after which nothing more is expected. / A tool
/// that inherited the pipe may hold it open for ever.
pub const PIPE_SILENCE: Duration = Duration::from_millis(200);
