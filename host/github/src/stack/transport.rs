//! The connection at the end of the stack: whole answers, within their limits.

use std::path::Path;

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use pacer_connect::{ConnectError, ProxyRules};
use tower::BoxError;
use tower::util::BoxCloneSyncService;

use crate::call::{Call, LARGEST_ANSWER};
use crate::memory::Share;

/// Sends one request over the network and reads the whole answer. Replaceable, see [`crate::GitHub::with_transport`].
pub type Transport = BoxCloneSyncService<http::Request<Bytes>, http::Response<Bytes>, BoxError>;

/// A transport over real connections. The system's certificate authorities count, and those in `authorities` too. Answers take room of `share`,
/// where there is one.
pub(crate) fn connect(
    api: &str,
    authorities: Option<&Path>,
    proxy: &ProxyRules,
    share: Option<Share>,
) -> Result<Transport, ConnectError> {
    let client = pacer_connect::client(authorities, proxy, api.starts_with("https:"))?;
    let send = move |request: http::Request<Bytes>| {
        let (client, share) = (client.clone(), share.clone());
        async move {
            let largest = request.extensions().get::<Call>().map_or(LARGEST_ANSWER, |call| call.endpoint.largest());
            let (parts, body) = client.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, largest);
            let body = match share {
                Some(share) => within(&share, body).await?,
                None => body.collect().await?.to_bytes(),
            };
            Ok::<_, BoxError>(http::Response::from_parts(parts, body))
        }
    };
    Ok(BoxCloneSyncService::new(tower::service_fn(send)))
}

/// A whole body, for which there has to be room.
async fn within(share: &Share, mut body: impl Body<Data = Bytes, Error = BoxError> + Unpin) -> Result<Bytes, BoxError> {
    let (mut room, mut bytes) = (share.room(), Vec::new());
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            room.grow(data.len())?;
            bytes.extend_from_slice(&data);
        }
    }
    bytes.shrink_to_fit();
    Ok(room.keep(bytes))
}
