//! Addresses that no server of users has, and that whoever names a server must not reach through the operator: those of the link, and of the
//! services that tell a machine its own credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::{BoxError, Service};

/// A server at such an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is a link-local or metadata address, which no server of users has; name another server")]
pub(crate) struct Refused(IpAddr);

/// Metadata services outside of the link-local networks: of AWS, of Alibaba Cloud, of Oracle Cloud, of Azure's wire server.
const METADATA_4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(168, 63, 129, 16)];

const METADATA_6: [Ipv6Addr; 1] = [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)];

/// Why a host that is an address is refused; none where it may be called, or is a name.
pub(crate) fn refused(host: &str) -> Option<Refused> {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    (!may_be(address)).then_some(Refused(address))
}

fn may_be(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_link_local() && !METADATA_4.contains(&address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => may_be(IpAddr::V4(mapped)),
            None => !address.is_unicast_link_local() && !METADATA_6.contains(&address),
        },
    }
}

/// The system's resolver without these addresses.
#[derive(Clone)]
pub(crate) struct Checked(GaiResolver);

impl Default for Checked {
    fn default() -> Self {
        Self(GaiResolver::new())
    }
}

impl Service<Name> for Checked {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Service::poll_ready(&mut self.0, cx).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolved = Service::call(&mut self.0, name);
        Box::pin(async move {
            let all: Vec<SocketAddr> = resolved.await?.collect();
            if let Some(refused) = all.iter().find(|address| !may_be(address.ip())) {
                return Err(Refused(refused.ip()).into());
            }
            Ok(all.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_and_link_local_addresses_are_refused_in_every_form() {
        for host in
            ["169.254.169.254", "169.254.0.1", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "100.100.100.200"]
        {
            assert!(refused(host).is_some(), "{host}");
        }
        for host in ["127.0.0.1", "10.0.0.1", "[::1]", "[fd00::1]", "140.82.121.6", "ghe.example.com", "169.254.example.com"] {
            assert!(refused(host).is_none(), "{host}");
        }
    }

    #[tokio::test]
    async fn names_are_refused_by_what_they_resolve_to() {
        let resolve = async |name: &str| Checked::default().call(name.parse().unwrap()).await;
        assert!(resolve("localhost").await.is_ok());
        // The resolver takes addresses for names.
        let refused = resolve("169.254.169.254").await.unwrap_err().to_string();
        assert!(refused.contains("metadata"), "{refused}");
    }
}
