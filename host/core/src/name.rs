//! Names of objects: those the operator makes, which are made here, never by the API server, and never used twice; and whether a name that
//! somebody gives can be one.

/// Letters that `kubectl` users can tell apart and that form no words; Kubernetes' own choice for generated names.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Longest name that is still a host name, which a pod's name becomes.
const MAX: usize = 63;

/// Longest name of an object that is no host.
const MAX_OBJECT: usize = 253;

/// Random letters in a runner's name; 27^6 makes a clash among a thousand names of one set a matter of one in 800 per fleet, and a clash is
/// only a refused creation.
const SUFFIX: usize = 6;

/// `<set>-<six letters>`, cut at the front part where it would be too long for a host name. `random` is fresh for each call.
#[must_use]
pub fn runner(set: &str, random: u64) -> String {
    with_suffix(set, &letters(random, SUFFIX), MAX)
}

/// `<runner set>-<six letters>-<ordinal>`, as a StatefulSet of one pod names it, cut as [`runner`] is.
#[must_use]
pub fn stateful_runner(runner_set: &str, random: u64, ordinal: u32) -> String {
    with_suffix(runner_set, &format!("{}-{ordinal}", letters(random, SUFFIX)), MAX)
}

/// `<deployment>-<revision>`: the same template gives the same name, so a creation that is tried twice makes one set.
#[must_use]
pub fn replica_set(deployment: &str, revision: &str) -> String {
    // Room is left for the suffix of its runners, so that their names still tell where they belong.
    with_suffix(deployment, revision, MAX - SUFFIX - 1)
}

/// `<deployment>-registration-<six letters>`: a runner that is only registered.
#[must_use]
pub fn registration(deployment: &str, random: u64) -> String {
    runner(&with_suffix(deployment, "registration", MAX - SUFFIX - 1), random)
}

/// `<owner>-job-pods`: what the runners of that owner are at the API server.
#[must_use]
pub fn job_pods_account(owner: &str) -> String {
    with_suffix(owner, "job-pods", MAX_OBJECT)
}

/// Whether an object can have this name: a DNS-1123 subdomain. Any other text would change the path that it becomes a part of.
#[must_use]
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= MAX_OBJECT && name.split('.').all(is_part)
}

/// Whether a namespace can have this name: a DNS-1123 label.
#[must_use]
pub fn is_label(name: &str) -> bool {
    name.len() <= MAX && is_part(name)
}

fn is_part(part: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.bytes().all(is_inner)
}

fn with_suffix(front: &str, suffix: &str, max: usize) -> String {
    let room = max.saturating_sub(suffix.len() + 1).max(1);
    let mut cut = front.len().min(room);
    while !front.is_char_boundary(cut) {
        cut -= 1;
    }
    let front = front.get(..cut).unwrap_or(front).trim_end_matches(['-', '.']);
    format!("{front}-{suffix}")
}

fn letters(mut random: u64, count: usize) -> String {
    (0..count)
        .map(|_| {
            let letter = usize::try_from(random % 27).unwrap_or(0);
            random /= 27;
            char::from(*ALPHABET.get(letter).unwrap_or(&b'x'))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_is_named_after_its_set() {
        assert_eq!(runner("web-abc", 0), "web-abc-bbbbbb");
        assert_ne!(runner("web-abc", 1), runner("web-abc", 2));
    }

    #[test]
    fn a_runner_of_a_runner_set_is_named_like_the_pod_of_a_stateful_set() {
        assert_eq!(stateful_runner("cached", 0, 0), "cached-bbbbbb-0");
        assert_eq!(stateful_runner("cached", 0, 17), "cached-bbbbbb-17");
        let long = stateful_runner(&"x".repeat(80), u64::MAX, u32::MAX);
        assert!(long.len() <= MAX && long.ends_with("-4294967295"), "{long}");
    }

    #[test]
    fn name_of_an_object_is_a_dns_subdomain() {
        for name in ["a", "web-1", "team.credentials", "0-9", &"x".repeat(253)] {
            assert!(is_subdomain(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "../secrets/x",
            "a/b",
            "Web",
            "a_b",
            "-a",
            "a-",
            "a..b",
            "a.-b",
            "a b",
            "a%2fb",
            "ä",
            &"x".repeat(254),
        ] {
            assert!(!is_subdomain(name), "{name}");
        }
    }

    #[test]
    fn names_fit_into_a_host_name() {
        let long = "a-very-long-name-that-somebody-thought-would-be-a-good-idea-for-a-deployment";
        let set = replica_set(long, "wxz2456789");
        let runner = runner(&set, u64::MAX);
        assert!(set.len() + 1 + SUFFIX <= MAX && runner.len() <= MAX, "{set} {runner}");
        let registration = registration(long, u64::MAX);
        assert!(registration.len() <= MAX && registration.contains("-registration-"), "{registration}");
        assert!(runner.ends_with(|c: char| ALPHABET.contains(&(c as u8))));
    }
}
