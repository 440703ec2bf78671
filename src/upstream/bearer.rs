//! The credential of inference that a Gateway owns: the relay adds it on the way out, and codex never
//! sees it.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, read};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use crate::base::limits::{BEARER_DEADLINE, MAX_BEARER_BYTES};
use crate::base::secret::Secret;
use crate::wire::headers::{ACCOUNT_ROUTING, CHATGPT_ACCOUNT};

/// Where the credential comes from.
#[derive(Clone)]
pub enum Source {
    /// It was in the environment when the relay was started; it never changes.
    Value(Secret),
    /// A file of one line, read for each request: a new credential counts at once.
    File(PathBuf),
    /// What a shell command prints; run once, and again when the upstream says 401.
    Command {
        /// The command line.
        line: OsString,
        /// Its environment.
        environment: Vec<(OsString, OsString)>,
    },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither the credential nor the way to it belongs in a log.
        f.write_str(self.option())
    }
}

impl Source {
    /// The option that names it.
    pub fn option(&self) -> &'static str {
        match self {
            Self::Value(_) => "--upstream-bearer-env",
            Self::File(_) => "--upstream-bearer-file",
            Self::Command { .. } => "--upstream-bearer-command",
        }
    }
}

/// A credential, ready for the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(HeaderValue);

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential(<redacted>)")
    }
}

/// Why there is no credential. Says nothing of what was read.
#[derive(Debug, thiserror::Error)]
pub enum BearerError {
    /// A command or file has nothing in it.
    #[error("gives nothing")]
    Empty,
    /// The command failed.
    #[error("ended with {0}")]
    Failed(String),
    /// It is a folder, a pipe or a device: reading it may never end, and tells nothing a second time.
    #[error("is no regular file")]
    NotAFile,
    /// It isn't one word that a header can carry.
    #[error("gives more than one word, or what no header can carry")]
    NotAWord,
    /// It can't be read or started.
    #[error("can't be read or started: {0}")]
    Read(#[from] io::Error),
    /// It takes too long.
    #[error("gives nothing within {} s", BEARER_DEADLINE.as_secs())]
    Slow,
    /// It is far longer than any credential.
    #[error("gives more than {MAX_BEARER_BYTES} bytes")]
    TooLong,
}

/// The keeper of the credential.
#[derive(Debug)]
pub struct Bearer {
    source: Source,
    /// The last one that was good.
    last: Arc<Mutex<Option<Credential>>>,
    /// One runs the command, the others wait for what it gives.
    turn: Arc<Semaphore>,
    /// Owns the command that runs.
    runs: Mutex<JoinSet<()>>,
    health: Mutex<Health>,
}

/// Whether the source gives credentials, and what nobody was told of that.
#[derive(Debug, Default)]
struct Health {
    /// What is wrong with it.
    trouble: Option<String>,
    news: Option<String>,
}

impl Bearer {
    /// Keeps what `source` gives.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            last: Arc::default(),
            turn: Arc::new(Semaphore::new(1)),
            runs: Mutex::default(),
            health: Mutex::default(),
        }
    }

    /// What a person may want to know of the source: told once, and again when it changes.
    pub fn take_news(&self) -> Option<String> {
        self.health().news.take()
    }

    /// Notes how the source was found; `then` says what becomes of requests where it is bad.
    fn note(&self, found: Result<(), &BearerError>, then: &str) {
        let mut health = self.health();
        let option = self.option();
        let trouble = found.err().map(|error| format!("{option} {error}; {then}"));
        if health.trouble == trouble {
            return;
        }
        let again = || format!("{option} gives a credential again");
        let news = trouble.clone().unwrap_or_else(again);
        tracing::warn!("{news}");
        health.news = Some(news);
        health.trouble = trouble;
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The option that it came by.
    pub fn option(&self) -> &'static str {
        self.source.option()
    }

    /// The credential for a request.
    pub async fn current(&self) -> Result<Credential, BearerError> {
        match &self.source {
            Source::Value(value) => credential(value.expose()),
            Source::File(path) => self.of_file(path).await,
            Source::Command { .. } => match self.last() {
                Some(known) => Ok(known),
                None => self.of_command(None).await,
            },
        }
    }

    /// Another credential than `used`, which the upstream didn't take; none where there is no other.
    pub async fn fresh(&self, used: &Credential) -> Option<Credential> {
        let fresh = match &self.source {
            Source::Value(_) => return None,
            Source::File(path) => self.of_file(path).await,
            Source::Command { .. } => self.of_command(Some(used)).await,
        };
        fresh.ok().filter(|fresh| fresh != used)
    }

    /// Reads the file; one that is just being written leaves the credential before in force.
    async fn of_file(&self, path: &Path) -> Result<Credential, BearerError> {
        let path = path.to_path_buf();
        let reading = timeout(BEARER_DEADLINE, spawn_blocking(move || read_file(&path)));
        let read = match reading.await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) | Err(_) => Err(BearerError::Slow),
        };
        let last = self.last();
        let then = if last.is_some() { KEPT } else { REFUSED };
        self.note(read.as_ref().map(|_| ()), then);
        match (read, last) {
            (Ok(credential), _) => {
                keep(&self.last, &credential);
                Ok(credential)
            }
            (Err(_), Some(last)) => Ok(last),
            (Err(error), None) => Err(error),
        }
    }

    /// Runs the command, unless somebody else has while we waited: then `used` is known no more.
    async fn of_command(&self, used: Option<&Credential>) -> Result<Credential, BearerError> {
        let Source::Command { line, environment } = &self.source else {
            return Err(BearerError::Empty);
        };
        // It can't fail: nobody closes the semaphore.
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        if let Some(known) = self.last().filter(|known| Some(known) != used) {
            return Ok(known);
        }
        let (line, environment) = (line.clone(), environment.clone());
        let last = Arc::clone(&self.last);
        // It goes on when codex gives its request up, within its deadline: the next one would start
        // it all over.
        let (done, result) = oneshot::channel();
        let running = async move {
            let credential = run(&line, &environment).await;
            if let Ok(credential) = &credential {
                keep(&last, credential);
            }
            drop(turn);
            let _ = done.send(credential);
        };
        self.runs(running);
        let result = result.await.unwrap_or(Err(BearerError::Empty));
        let then = if used.is_some() { KEPT } else { REFUSED };
        self.note(result.as_ref().map(|_| ()), then);
        result
    }

    fn runs(&self, running: impl Future<Output = ()> + Send + 'static) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        // One at a time: those before are over.
        while runs.try_join_next().is_some() {}
        runs.spawn(running);
    }

    fn last(&self) -> Option<Credential> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }
}

/// What becomes of requests while a source is bad.
const KEPT: &str = "the credential before is used";
const REFUSED: &str = "requests to the upstream are refused";

fn keep(last: &Mutex<Option<Credential>>, credential: &Credential) {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    *last = Some(credential.clone());
}

impl Credential {
    /// Puts it in the place of what codex says of its own account.
    pub fn replace_in(&self, headers: &mut HeaderMap) {
        for name in OF_ACCOUNT {
            headers.remove(name);
        }
        headers.insert(AUTHORIZATION, self.0.clone());
    }
}

/// Reads the credential in a file of one line.
pub fn read_file(path: &Path) -> Result<Credential, BearerError> {
    let mut text = Vec::new();
    let most = u64::try_from(MAX_BEARER_BYTES).unwrap_or(u64::MAX);
    // Of a pipe even the opening may never end.
    let flags = OFlag::O_NONBLOCK.bits();
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(BearerError::NotAFile);
    }
    file.take(most.saturating_add(1)).read_to_end(&mut text)?;
    of_bytes(&text)
}

async fn run(
    line: &OsString,
    environment: &[(OsString, OsString)],
) -> Result<Credential, BearerError> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).env_clear();
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    // What it says on stderr may hold what it prints on stdout.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    let _group = Group(child.id());
    let Some(stdout) = child.stdout.take() else {
        return Err(BearerError::Empty);
    };
    let ended = timeout(BEARER_DEADLINE, printed(&mut child, stdout));
    ended.await.unwrap_or(Err(BearerError::Slow))
}

/// What a command has printed when it ends. What it leaves behind may hold its stdout open: nobody waits
/// for that.
async fn printed(child: &mut Child, mut stdout: ChildStdout) -> Result<Credential, BearerError> {
    let mut text = Vec::new();
    let mut is_over = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            read = stdout.read_buf(&mut text), if !is_over => is_over = read? == 0,
        }
        if text.len() > MAX_BEARER_BYTES {
            return Err(BearerError::TooLong);
        }
    };
    // The rest of it is in the pipe already.
    let mut part = [0; MAX_BEARER_BYTES];
    while !is_over && text.len() <= MAX_BEARER_BYTES {
        match read(&stdout, &mut part) {
            Ok(count) => {
                text.extend_from_slice(part.get(..count).unwrap_or_default());
                is_over = count == 0;
            }
            Err(Errno::EAGAIN) => is_over = true,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
    if status.success() {
        return of_bytes(&text);
    }
    Err(BearerError::Failed(status.to_string()))
}

/// The group of a command; what is left of it ends with this.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id {
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
}

fn of_bytes(bytes: &[u8]) -> Result<Credential, BearerError> {
    if bytes.len() > MAX_BEARER_BYTES {
        return Err(BearerError::TooLong);
    }
    credential(std::str::from_utf8(bytes).map_err(|_| BearerError::NotAWord)?)
}

/// Makes a credential of one word.
pub fn credential(text: &str) -> Result<Credential, BearerError> {
    let word = text.trim();
    if word.is_empty() {
        return Err(BearerError::Empty);
    }
    if !word.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BearerError::NotAWord);
    }
    let value = HeaderValue::try_from(format!("Bearer {word}"));
    let mut value = value.map_err(|_| BearerError::NotAWord)?;
    value.set_sensitive(true);
    Ok(Credential(value))
}

/// What codex says of the account that it is logged in with.
const OF_ACCOUNT: [HeaderName; 6] = [
    AUTHORIZATION,
    HeaderName::from_static(CHATGPT_ACCOUNT),
    HeaderName::from_static(ACCOUNT_ROUTING),
    HeaderName::from_static("openai-organization"),
    HeaderName::from_static("openai-project"),
    HeaderName::from_static("x-codex-routing-hint"),
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn shown(credential: &Credential) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("chatgpt-account-id", HeaderValue::from_static("a"));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer of-codex"));
        headers.insert("x-kept", HeaderValue::from_static("1"));
        credential.replace_in(&mut headers);
        assert_eq!(headers.len(), 2);
        headers[AUTHORIZATION].to_str().unwrap().to_owned()
    }

    fn command(line: &str) -> Bearer {
        Bearer::new(Source::Command {
            line: line.into(),
            environment: vec![("PATH".into(), env!("PATH").into())],
        })
    }

    #[test]
    fn credential_is_one_word_and_never_shown() {
        assert_eq!(shown(&credential(" word\n").unwrap()), "Bearer word");
        for odd in ["", " \n", "two words", "a\nb", "caf\u{e9}"] {
            let error = credential(odd).unwrap_err().to_string();
            assert!(
                odd.trim().is_empty() || !error.contains(odd.trim()),
                "{error}"
            );
        }
        let source = Source::Value(Secret::new("hidden-word".to_owned()));
        let bearer = Bearer::new(source);
        assert!(!format!("{bearer:?} {:?}", credential("hidden-word")).contains("hidden"));
    }

    #[tokio::test]
    async fn file_is_read_again_and_one_that_is_just_written_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let bearer = Bearer::new(Source::File(path.clone()));
        assert!(matches!(bearer.current().await, Err(BearerError::Read(_))));
        fs::write(&path, "first\n").unwrap();
        let first = bearer.current().await.unwrap();
        assert_eq!(shown(&first), "Bearer first");
        assert_eq!(bearer.fresh(&first).await, None, "it is the same");
        fs::write(&path, "").unwrap();
        assert_eq!(bearer.current().await.unwrap(), first);
        fs::write(&path, "second").unwrap();
        assert_eq!(shown(&bearer.current().await.unwrap()), "Bearer second");
        assert_eq!(shown(&bearer.fresh(&first).await.unwrap()), "Bearer second");
        fs::write(&path, "x".repeat(MAX_BEARER_BYTES + 1)).unwrap();
        assert!(matches!(read_file(&path), Err(BearerError::TooLong)));
    }

    #[tokio::test]
    async fn source_that_goes_bad_and_good_again_is_told_of_each_time_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let bearer = Bearer::new(Source::File(path.clone()));
        let news = async || {
            let found = bearer.current().await.is_ok();
            (found, bearer.take_news())
        };
        let told = |words: &str| Some(format!("--upstream-bearer-file {words}"));
        let (found, first) = news().await;
        assert!(
            !found
                && first
                    .unwrap()
                    .ends_with("requests to the upstream are refused")
        );
        assert_eq!(news().await, (false, None), "told already");
        fs::write(&path, "hidden").unwrap();
        assert_eq!(news().await, (true, told("gives a credential again")));
        assert_eq!(news().await, (true, None));
        fs::write(&path, " ").unwrap();
        let kept = "gives nothing; the credential before is used";
        assert_eq!(news().await, (true, told(kept)));
        assert_eq!(news().await, (true, None));
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let kept = "is no regular file; the credential before is used";
        assert_eq!(news().await, (true, told(kept)), "at once");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "hidden too").unwrap();
        let (_, odd) = news().await;
        assert!(!odd.unwrap().contains("hidden"));
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for path in [folder.path(), &link] {
            assert!(matches!(read_file(path), Err(BearerError::NotAFile)));
        }
        fs::write(folder.path().join("key"), "word").unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("key", &link).unwrap();
        assert_eq!(shown(&read_file(&link).unwrap()), "Bearer word");
    }

    #[tokio::test]
    async fn what_a_command_leaves_behind_holds_nothing_up() {
        let bearer = command("sleep 86400 & echo word");
        assert_eq!(shown(&bearer.current().await.unwrap()), "Bearer word");
        let failing = command("sleep 86400 & exit 3");
        let error = failing.current().await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
    }

    #[tokio::test]
    async fn command_is_run_once_and_again_when_its_credential_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count").display().to_string();
        let bearer = command(&format!(
            "echo x >>'{count}'; echo word-$(wc -l <'{count}')"
        ));
        let first = bearer.current().await.unwrap();
        assert_eq!(shown(&first), "Bearer word-1");
        assert_eq!(bearer.current().await.unwrap(), first);
        let (one, two) = tokio::join!(bearer.fresh(&first), bearer.fresh(&first));
        assert_eq!(shown(&one.unwrap()), "Bearer word-2");
        assert_eq!(
            shown(&two.unwrap()),
            "Bearer word-2",
            "asked for once for both"
        );
        assert_eq!(shown(&bearer.current().await.unwrap()), "Bearer word-2");
    }

    #[expect(clippy::disallowed_methods, reason = "the test's own files")]
    #[tokio::test]
    async fn command_goes_on_when_the_request_that_started_it_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let (count, go) = (folder.path().join("count"), folder.path().join("go"));
        let bearer = command(&format!(
            "echo x >>'{}'; until [ -e '{}' ]; do sleep 0.01; done; echo word",
            count.display(),
            go.display()
        ));
        let started = async {
            while fs::read(&count).unwrap_or_default().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = bearer.current() => panic!("it can't have ended"),
            () = started => {}
        }
        fs::write(&go, "").unwrap();
        assert_eq!(shown(&bearer.current().await.unwrap()), "Bearer word");
        assert_eq!(fs::read_to_string(&count).unwrap(), "x\n");
    }

    #[tokio::test]
    async fn command_that_fails_says_so_and_nothing_of_what_it_printed() {
        for (line, words) in [
            ("echo hidden; exit 3", "exit status: 3"),
            ("true", "gives nothing"),
            ("echo hidden word", "more than one word"),
            ("yes hidden", "more than 16384 bytes"),
        ] {
            let error = command(line).current().await.unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
