//! The way to the upstream: proxies and roots, from options and from the variables that other
//! programs read too.

use std::path::PathBuf;

use crate::config::args::Options;
use crate::config::env;
use crate::config::settings::{Given, Reader};
use crate::upstream::destination::Destination;
use crate::upstream::dial::WayOut;
use crate::upstream::proxy::{NoProxy, Proxies, Proxy};
use crate::upstream::roots::{ExtraRoots, read_file};

impl Reader<'_> {
    /// Reads how the relay leaves this machine.
    pub(super) fn way_out(&mut self, options: &Options, destination: &Destination) -> WayOut {
        WayOut {
            proxies: self.proxies(options),
            roots: self.roots(options),
            public_only: *destination == Destination::ByAccount,
        }
    }

    fn proxies(&mut self, options: &Options) -> Proxies {
        let given = self.given(options.proxy.clone(), "--proxy", env::PROXY);
        let given = given.or_else(|| self.first(&PROXY_VARIABLES));
        let except = self.given(options.no_proxy.clone(), "--no-proxy", env::NO_PROXY);
        let except = except.or_else(|| self.first(&["no_proxy", "NO_PROXY"]));
        let proxy = given.and_then(|Given { place, value }| {
            let parsed = Proxy::parse(&value.to_string_lossy());
            // The value isn't shown: it may hold a password.
            parsed
                .map_err(|error| self.fault(place, error.to_string()))
                .ok()
        });
        Proxies {
            proxy,
            except: except
                .map(|given| NoProxy::parse(&given.value.to_string_lossy()))
                .unwrap_or_default(),
        }
    }

    fn roots(&mut self, options: &Options) -> ExtraRoots {
        let typed = self.given(options.ca_file.clone(), "--ca-file", env::CA_FILE);
        let files = CA_VARIABLES.map(|name| self.first(&[name]));
        let mut roots = ExtraRoots {
            hides_system: self.first(&["SSL_CERT_FILE", SSL_CERT_DIR]).is_some(),
            ..ExtraRoots::default()
        };
        for Given { place, value } in std::iter::once(typed).chain(files).flatten() {
            let path = PathBuf::from(value);
            match read_file(&path) {
                Ok(certificates) => roots.certificates.extend(certificates),
                Err(error) => self.fault(place, format!("{} {error}", path.display())),
            }
        }
        let folders = self.first(&[SSL_CERT_DIR]).map(|given| given.value);
        let folders = folders.iter().flat_map(std::env::split_paths);
        roots.folders = folders.filter(|folder| folder.is_dir()).collect();
        roots
    }

    /// The first of these variables that is set.
    fn first(&self, names: &[&str]) -> Option<Given> {
        names.iter().find_map(|name| {
            let value = self.environment.find(name)?;
            let place = (*name).to_owned();
            Some(Given { place, value })
        })
    }
}

/// Upstreams that leave this machine are https: `HTTP_PROXY` says nothing of them, as with curl.
const PROXY_VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// Files of roots that codex, OpenSSL and Node read.
const CA_VARIABLES: [&str; 3] = [
    "CODEX_CA_CERTIFICATE",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
];

const SSL_CERT_DIR: &str = "SSL_CERT_DIR";

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use http::Uri;

    use super::*;
    use crate::config::env::Strings;
    use crate::config::settings::{ConfigErrors, Settings};

    struct Fixed(Vec<(&'static str, String)>);

    impl Strings for Fixed {
        fn find(&self, name: &str) -> Option<OsString> {
            let found = self.0.iter().find(|(known, _)| *known == name);
            found
                .filter(|(_, value)| !value.is_empty())
                .map(|(_, value)| value.into())
        }

        fn all(&self) -> Vec<(OsString, OsString)> {
            Vec::new()
        }
    }

    fn read(options: Options, pairs: &[(&'static str, &str)]) -> Result<WayOut, ConfigErrors> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        Settings::read(options, &Fixed(pairs.collect())).map(|settings| settings.way_out)
    }

    fn proxy_of(pairs: &[(&'static str, &str)]) -> Option<String> {
        let way = read(Options::default(), pairs).unwrap();
        let uri = Uri::from_static("https://api.openai.com/v1");
        way.proxies.choose(&uri).map(Proxy::address)
    }

    #[test]
    fn variables_have_the_precedence_of_curl() {
        let some = |address: &str| Some(address.to_owned());
        let all = [
            ("ALL_PROXY", "d:4"),
            ("all_proxy", "c:3"),
            ("HTTPS_PROXY", "b:2"),
            ("https_proxy", "a:1"),
        ];
        assert_eq!(proxy_of(&all), some("a:1"));
        assert_eq!(proxy_of(&all[..3]), some("b:2"));
        assert_eq!(proxy_of(&all[..2]), some("c:3"));
        assert_eq!(proxy_of(&all[..1]), some("d:4"));
        assert_eq!(
            proxy_of(&[("https_proxy", ""), ("HTTPS_PROXY", "b:2")]),
            some("b:2")
        );
        assert_eq!(
            proxy_of(&[("HTTP_PROXY", "x:1"), ("http_proxy", "x:1")]),
            None
        );
        let small = [
            ("HTTPS_PROXY", "b:2"),
            ("NO_PROXY", "*"),
            ("no_proxy", "x.example"),
        ];
        assert_eq!(proxy_of(&small), some("b:2"));
        assert_eq!(proxy_of(&small[..2]), None);
    }

    #[test]
    fn options_beat_the_variables_of_other_programs() {
        let options = Options {
            proxy: Some("http://mine:1".into()),
            no_proxy: Some("x.example".into()),
            ..Options::default()
        };
        let way = read(options, &[("https_proxy", "a:1"), ("no_proxy", "*")]).unwrap();
        let uri = Uri::from_static("https://api.openai.com/v1");
        assert_eq!(way.proxies.choose(&uri).unwrap().address(), "mine:1");
    }

    #[test]
    fn mistakes_name_the_variable_and_the_file_and_no_password() {
        let folder = tempfile::tempdir().unwrap();
        let bad = folder.path().join("bad.pem");
        std::fs::write(&bad, "nothing").unwrap();
        let bad = bad.display().to_string();
        let errors = read(
            Options::default(),
            &[
                ("ALL_PROXY", "socks4://me:secret@h"),
                ("SSL_CERT_FILE", &bad),
                ("NODE_EXTRA_CA_CERTS", "/nowhere/ca.pem"),
            ],
        )
        .unwrap_err()
        .to_string();
        assert!(
            errors.contains("ALL_PROXY: has the scheme \"socks4\""),
            "{errors}"
        );
        assert!(
            errors.contains(&format!("SSL_CERT_FILE: {bad} has no certificate")),
            "{errors}"
        );
        assert!(
            errors.contains("NODE_EXTRA_CA_CERTS: /nowhere/ca.pem can't be read"),
            "{errors}"
        );
        assert!(!errors.contains("secret"), "{errors}");
    }
}
