use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn patterns(texts: &[&str]) -> Option<Vec<ScopePattern>> {
    Some(texts.iter().map(|text| text.parse().unwrap()).collect())
}

fn tenancy(strict: bool) -> Tenancy {
    let team = Entry {
        names: vec!["team-a".to_owned(), "team-a-ci".to_owned()],
        scopes: patterns(&["acme", "acme/*", "other/app", "enterprise:corp"]),
        hosts: Some(vec!["ghe.example.com".parse().unwrap(), "github.com".parse().unwrap(), "ghe:8443".parse().unwrap()]),
        groups: Some(vec!["big".to_owned()]),
        registries: Some(vec!["registry.example:5000".parse().unwrap(), "ghcr.io/acme".parse().unwrap()]),
        quotas: Quotas { runners: Some(5), ..Quotas::default() },
        ..Entry::default()
    };
    let labelled = Entry { labels: labels(&[("tenant", "b"), ("stage", "ci")]), scopes: patterns(&["b/*"]), ..Entry::default() };
    let silent = Entry { names: vec!["quiet".to_owned()], ..Entry::default() };
    Tenancy { strict, entries: vec![team, silent, labelled] }
}

fn scope(text: &str) -> Scope {
    match (text.strip_prefix("enterprise:"), text.contains('/')) {
        (Some(slug), _) => Scope::resolve(None, None, Some(slug)),
        (None, true) => Scope::resolve(Some(text), None, None),
        (None, false) => Scope::resolve(None, Some(text), None),
    }
    .unwrap()
}

/// The reason of the refusal; empty where there is none.
fn verdict(strict: bool, namespace: &str, known: Option<&[(&str, &str)]>, request: Request<'_>) -> &'static str {
    let labels = known.map(labels);
    let namespace = Namespace { name: namespace, labels: labels.as_ref() };
    match tenancy(strict).judge(namespace, request) {
        Ok(()) => "",
        Err(Refusal::Unlisted { .. }) => "unlisted",
        Err(Refusal::Scope { .. }) => "scope",
        Err(Refusal::Group { .. }) => "group",
        Err(Refusal::Host { .. }) => "host",
        Err(Refusal::Registry { .. }) => "registry",
        Err(Refusal::Labels { .. }) => "labels",
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn scopes_are_those_of_the_first_entry_that_fits() {
    const NONE: Option<&[(&str, &str)]> = Some(&[]);
    let b: Option<&[(&str, &str)]> = Some(&[("tenant", "b"), ("stage", "ci"), ("more", "")]);
    let half: Option<&[(&str, &str)]> = Some(&[("tenant", "b")]);
    // namespace, labels, scope, group -> open file, strict file
    let table = [
        ("team-a", None, "acme/app", None, "", ""),
        ("team-a-ci", NONE, "ACME/App", Some("big"), "", ""),
        ("team-a", NONE, "acme", Some("Big"), "", ""),
        ("team-a", NONE, "acme", None, "group", "group"),
        ("team-a", NONE, "acme", Some(""), "group", "group"),
        ("team-a", NONE, "acme", Some("small"), "group", "group"),
        ("team-a", NONE, "enterprise:corp", Some("big"), "", ""),
        ("team-a", NONE, "enterprise:acme", Some("big"), "scope", "scope"),
        ("team-a", NONE, "other", Some("big"), "scope", "scope"),
        ("team-a", NONE, "other/app", None, "", ""),
        ("team-a", NONE, "other/apps", None, "scope", "scope"),
        ("team-a", NONE, "victim/app", None, "scope", "scope"),
        ("team-a", b, "b/app", None, "scope", "scope"),
        ("team-b", b, "b/app", None, "", ""),
        ("team-b", b, "b", None, "scope", "scope"),
        ("team-b", half, "b/app", None, "", "unlisted"),
        ("team-b", None, "b/app", None, "labels", "labels"),
        ("else", NONE, "victim", None, "", "unlisted"),
        ("quiet", NONE, "victim", Some("any"), "", "scope"),
        ("quiet", None, "victim/app", None, "", "scope"),
    ];
    for (namespace, labels, wanted, group, open, strict) in table {
        let wanted = scope(wanted);
        let request = Request::Register { scope: &wanted, group };
        let found = (verdict(false, namespace, labels, request), verdict(true, namespace, labels, request));
        assert_eq!(found, (open, strict), "{namespace} {wanted} {group:?}");
    }
}

#[test]
fn strict_entry_without_groups_leaves_the_default_one() {
    let entry = Entry { names: vec!["a".to_owned()], scopes: patterns(&["acme"]), ..Entry::default() };
    let tenancy = Tenancy { strict: true, entries: vec![entry] };
    let (namespace, acme) = (Namespace { name: "a", labels: None }, scope("acme"));
    for (group, expected) in [(None, true), (Some("Default"), true), (Some("default"), true), (Some("big"), false)] {
        let judged = tenancy.judge(namespace, Request::Register { scope: &acme, group });
        assert_eq!(judged.is_ok(), expected, "{group:?}");
    }
}

#[test]
fn hosts_of_own_credentials_are_listed_with_their_ports() {
    let table = [
        ("team-a", "ghe.example.com", "", ""),
        ("team-a", "GHE.example.com", "", ""),
        ("team-a", "api.github.com", "", ""),
        ("team-a", "ghe.example.com:8443", "host", "host"),
        ("team-a", "ghe:8443", "", ""),
        ("team-a", "ghe", "host", "host"),
        ("team-a", "evil.example.com", "host", "host"),
        ("team-a", "ghe.example.com.evil", "host", "host"),
        ("quiet", "evil.example.com", "", "host"),
        ("else", "evil.example.com", "", "unlisted"),
    ];
    for (namespace, host, open, strict) in table {
        let request = Request::Host(host);
        let found = (verdict(false, namespace, Some(&[]), request), verdict(true, namespace, Some(&[]), request));
        assert_eq!(found, (open, strict), "{namespace} {host}");
    }
}

#[test]
fn refusal_says_who_can_cure_it_and_where() {
    let namespace = Namespace { name: "team-a", labels: None };
    let wanted = scope("victim/app");
    let refused = tenancy(false).judge(namespace, Request::Register { scope: &wanted, group: None }).unwrap_err();
    assert_eq!(refused.reason(), "NotAllowed");
    let text = refused.to_string();
    assert!(text.contains("repository victim/app") && text.contains("add victim/app to namespaces[0].scopes"), "{text}");
    let quota = Refusal::Quota { namespace: "team-a".to_owned(), quota: Quota::PolicySets, most: 2 };
    assert_eq!(quota.reason(), "QuotaExceeded");
    assert!(quota.to_string().contains("may have 2 policy sets") && quota.to_string().contains("quotas.policySets"), "{quota}");
    let calls = Refusal::Calls { namespace: "team-a".to_owned(), most: 30 };
    assert_eq!(calls.reason(), "QuotaExceeded");
    assert!(calls.to_string().contains("its 30 a minute") && calls.to_string().contains("quotas.callsPerMinute"), "{calls}");
}

#[test]
fn patterns_are_read_as_they_are_written() {
    for text in ["acme", "acme/app", "acme/*", "enterprise:corp", "a-b_c.d/e.f"] {
        assert_eq!(text.parse::<ScopePattern>().unwrap().to_string(), text);
    }
    for text in ["", "*", "*/*", "acme/", "/app", "acme/a*", "acme/app/x", "enterprise:", "enterprise:a/b", "a b", "https://x"] {
        assert!(text.parse::<ScopePattern>().is_err(), "{text:?}");
    }
    for text in ["", "https://ghe", "ghe/api", "ghe:", "ghe:0", "ghe:99999", "ghe:a", "user@ghe", "g he"] {
        assert!(text.parse::<Host>().is_err(), "{text:?}");
    }
}

#[test]
fn quotas_count_what_there_is() {
    let quotas = Quotas { runners: Some(5), fleets: Some(2), policy_sets: None, calls_per_minute: None };
    let more = [0, 4, 5, 9].map(|present| quotas.more_runners(present));
    assert_eq!(more, [Some(5), Some(1), Some(0), Some(0)]);
    assert_eq!([0, 1, 2].map(|place| quotas.exceeds_fleets(place)), [false, false, true]);
    assert_eq!(Quotas::default().more_runners(u32::MAX), None);
    assert!(!Quotas::default().exceeds_fleets(usize::MAX));
    let of = |name: &str| tenancy(true).quotas(Namespace { name, labels: Some(&labels(&[])) }).unwrap().runners;
    assert_eq!((of("team-a"), of("quiet"), of("else")), (Some(5), None, None));
}

#[test]
fn policies_come_from_listed_registries_and_repositories() {
    let table = [
        ("team-a", "registry.example:5000/any/thing", "", ""),
        ("team-a", "registry.example/any", "registry", "registry"),
        ("team-a", "registry.example:5001/any", "registry", "registry"),
        ("team-a", "ghcr.io/acme", "", ""),
        ("team-a", "ghcr.io/acme/policies/own", "", ""),
        ("team-a", "ghcr.io/acme-evil/policies", "registry", "registry"),
        ("team-a", "ghcr.io/evil/acme", "registry", "registry"),
        ("team-a", "ghcr.io.evil/acme", "registry", "registry"),
        ("quiet", "ghcr.io/any", "", "registry"),
        ("else", "ghcr.io/any", "", "unlisted"),
    ];
    for (namespace, name, open, strict) in table {
        let reference = Reference::parse(&format!("oci://{name}@sha256:{}", "a".repeat(64))).unwrap().unwrap();
        let verdict = |strict| verdict(strict, namespace, Some(&[]), Request::Pull(&reference));
        assert_eq!((verdict(false), verdict(true)), (open, strict), "{namespace} {name}");
    }
    for wrong in ["", "ghcr.io/", "https://ghcr.io", "ghcr.io/acme/*", "ghcr.io/Acme", "*", "ghcr.io:0", "ghcr.io/acme@sha256:0"]
    {
        assert!(wrong.parse::<RegistryPattern>().is_err(), "{wrong}");
    }
}
