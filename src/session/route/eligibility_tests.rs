use super::*;

fn judged(params: &str, config: &str) -> Option<Ineligible> {
    answered(params, &format!(r#"{{"config":{config}}}"#))
}

fn answered(params: &str, result: &str) -> Option<Ineligible> {
    let (line, answer) = (params.as_bytes(), result.as_bytes());
    let params = 0..line.len();
    of_params(line, &params).or_else(|| of_config((line, &params), (answer, &(0..answer.len()))))
}

#[test]
fn endpoints_and_providers_of_ones_own_keep_their_way() {
    let other = Some(Ineligible::OtherProvider);
    let own = Some(Ineligible::OwnEndpoint);
    for (params, config, expected) in [
        ("{}", "{}", None),
        (
            "{}",
            r#"{"model_provider":"openai","openai_base_url":null}"#,
            None,
        ),
        ("{}", r#"{"model_provider":"mine"}"#, other),
        ("{}", r#"{"openai_base_url":"http://127.0.0.1:9/v1"}"#, own),
        (
            "{}",
            r#"{"openai_base_url":"https://api.openai.com/v1/"}"#,
            None,
        ),
        (r#"{"modelProvider":"mine"}"#, "{}", other),
        (r#"{"modelProvider":null}"#, "{}", None),
        (
            r#"{"modelProvider":"openai"}"#,
            r#"{"model_provider":"mine"}"#,
            None,
        ),
        (r#"{"config":{"model_provider":"mine"}}"#, "{}", other),
        (
            r#"{"config":{"openai_base_url":"https://h.example"}}"#,
            "{}",
            own,
        ),
        (r#"{"config":{"openai_base_url":7}}"#, "{}", own),
        (
            r#"{"config":{"model_providers":{"openai":{"base_url":"https://h.example"}}}}"#,
            "{}",
            own,
        ),
        (
            r#"{"config":{"model_providers.openai.base_url":"https://h.example"}}"#,
            "{}",
            own,
        ),
        (
            r#"{"config":{"model_providers.openai":{"base_url":"https://h.example"}}}"#,
            "{}",
            own,
        ),
        // A provider that nobody chose changes nothing.
        (
            r#"{"config":{"model_providers":{"mine":{"base_url":"https://h.example"}}}}"#,
            "{}",
            None,
        ),
        (
            r#"{"config":{"openai_base_url":""}}"#,
            r#"{"openai_base_url":"http://127.0.0.1:9/v1"}"#,
            None,
        ),
    ] {
        assert_eq!(judged(params, config), expected, "{params} {config}");
    }
}

#[test]
fn system_proxies_are_codex_own_way() {
    let on = r#"{"features":{"respect_system_proxy":true}}"#;
    let system = Some(Ineligible::SystemProxy);
    assert_eq!(judged("{}", on), system);
    assert_eq!(judged(&format!(r#"{{"config":{on}}}"#), "{}"), system);
    let dotted = r#"{"config":{"features.respect_system_proxy":true}}"#;
    assert_eq!(judged(dotted, "{}"), system);
    let off = r#"{"config":{"features.respect_system_proxy":false}}"#;
    assert_eq!(judged(off, on), None);
}

#[test]
fn managed_layers_above_the_client_lock_the_upstream() {
    let of = |kind: &str, config: &str| {
        let origin = format!(r#"{{"openai_base_url":{{"name":{{"type":"{kind}"}}}}}}"#);
        answered(
            "{}",
            &format!(r#"{{"config":{config},"origins":{origin}}}"#),
        )
    };
    let standard = r#"{"openai_base_url":"https://api.openai.com/v1"}"#;
    for kind in ["user", "system", "mdm", "enterpriseManaged", "sessionFlags"] {
        assert_eq!(of(kind, standard), None, "{kind}");
    }
    let locked = Some(Ineligible::UpstreamLocked);
    assert_eq!(of("legacyManagedConfigTomlFromFile", standard), locked);
    assert_eq!(of("legacyManagedConfigTomlFromMdm", "{}"), locked);
}

#[test]
fn requirements_are_read() {
    let of = |required: &str| {
        let answer = format!(r#"{{"requirements":{required}}}"#);
        of_requirements(answer.as_bytes(), &(0..answer.len()))
    };
    for free in [
        "null",
        "{}",
        r#"{"modelProvider":"openai"}"#,
        r#"{"modelProviders":{"x":{}}}"#,
    ] {
        assert_eq!(of(free), None, "{free}");
    }
    assert_eq!(
        of(r#"{"modelProvider":"x"}"#),
        Some(Ineligible::OtherProvider)
    );
    assert_eq!(
        of(r#"{"modelProviders":{"openai":{"base_url":"https://x"}}}"#),
        Some(Ineligible::UpstreamLocked)
    );
    assert_eq!(
        of(r#"{"featureRequirements":{"respect_system_proxy":true}}"#),
        Some(Ineligible::SystemProxy)
    );
}

#[test]
fn every_reason_has_a_word_of_its_own() {
    let codes = Ineligible::ALL.map(Ineligible::code);
    assert!(codes.is_sorted());
    assert!(Ineligible::ALL.iter().all(|why| !why.words().is_empty()));
}
