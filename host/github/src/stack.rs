//! What a request passes on its way to GitHub, outermost first: deadline, concurrency, rate gate, conditional cache,
//! authentication, rate gate once more, turns, meter, redirects, connection.
//!
//! Every layer is a function from service to service over whole bodies, always ready, so that waiting happens inside the call and
//! under its deadline.

pub(crate) mod admission;
pub(crate) mod auth;
pub(crate) mod cache;
pub(crate) mod gate;
pub(crate) mod meter;
pub(crate) mod redirect;
pub(crate) mod transport;
pub(crate) mod turn;

use std::future::Future;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tower::util::BoxCloneSyncService;

use crate::error::Fault;

pub(crate) type Request = http::Request<Bytes>;
pub(crate) type Response = http::Response<Bytes>;
/// A part of the stack, from itself down to the connection.
pub(crate) type Next = BoxCloneSyncService<Request, Response, Fault>;

/// Makes a service of a function.
pub(crate) fn service<F, Reply>(function: F) -> Next
where
    F: Fn(Request) -> Reply + Clone + Send + Sync + 'static,
    Reply: Future<Output = Result<Response, Fault>> + Send + 'static,
{
    BoxCloneSyncService::new(tower::service_fn(function))
}

/// Passes answers of success on and turns all others into octocrab's error, which has GitHub's message.
pub(crate) async fn checked(response: Response) -> octocrab::Result<Response> {
    if response.status().is_success() {
        return Ok(response);
    }
    let response = response.map(|body| Full::new(body).map_err(|never| match never {}).boxed());
    let (parts, body) = octocrab::map_github_error(response).await?.into_parts();
    Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
}
