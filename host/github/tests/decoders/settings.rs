//! Credentials and addresses, which tenants keep in Secrets of their own.

use pacer_github::{AgentVersion, CredentialParts, Credentials, Endpoints, KeyFiles, Secret};

/// An App's id, its installation, its key.
fn apps() -> [String; 3] {
    let [pkcs1, pkcs8] = [include_str!("../keys/app-pkcs1.pem"), include_str!("../keys/app-pkcs8.pem")];
    [format!("1\n2\n{pkcs1}"), format!("Iv23liAbC\n\n{pkcs8}"), format!("1\n2\n{}", pkcs1.replace('\n', "\\n"))]
}

#[test]
fn credentials_are_read_or_refused_and_never_shown() {
    pacer_fuzz::text!(apps(), |text| {
        let mut lines = text.splitn(3, '\n');
        let mut next = || lines.next().map(str::to_owned);
        let (app_id, app_installation_id, app_private_key) = (next(), next(), next().map(Secret::from));
        let key = app_private_key.clone();
        let parts = CredentialParts { app_id, app_installation_id, app_private_key, ..CredentialParts::default() };
        let read = Credentials::from_parts(parts, KeyFiles::Refused);
        if let (Err(error), Some(key)) = (&read, key) {
            let said = format!("{error} {error:?}");
            let line = key.expose().lines().nth(2).filter(|line| line.len() > 20);
            assert!(line.is_none_or(|line| !said.contains(line)), "{said}");
        }
        read.is_ok()
    });
}

#[test]
fn address_is_read_or_refused_whatever_it_says() {
    let addresses = ["https://ghe.example:8443/api/v3/", "https://api.github.com", "http://[::1]:5000", "https://x.ghe.com/"];
    pacer_fuzz::text!(addresses, |text| {
        let own = Endpoints::resolve(Some(text), None, Some(text), Some(text));
        let Ok(enterprise) = Endpoints::resolve(None, Some(text), None, None) else { return false };
        assert!(enterprise.runners().ends_with('/') && enterprise.api().ends_with('/'), "{text:?} is {enterprise:?}");
        assert!(enterprise.hosts().iter().all(|host| !host.contains('/')), "{text:?} is {enterprise:?}");
        own.is_ok()
    });
}

#[test]
fn version_of_an_agent_is_found_or_not_whatever_the_name_of_its_file_is() {
    pacer_fuzz::text!(["actions-runner-linux-x64-2.330.0.tar.gz"], |text| AgentVersion::find(text).is_some());
}
