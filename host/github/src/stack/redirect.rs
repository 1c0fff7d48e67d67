//! Follows redirects: GitHub answers with one after a repository or organization was renamed.

use http::header::LOCATION;
use http::{Method, Uri};
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt};

use crate::error::Fault;
use crate::stack::{Next, Request, Response, service};

/// Redirects followed for one call.
const HOPS: usize = 3;

/// Follows redirects within the same origin only, since the request carries credentials. Redirects that would change the method
/// of a call with effects (301, 302, 303) are answers for the caller.
pub(crate) fn layer() -> impl Layer<Next, Service = Next> {
    layer_fn(|next: Next| {
        service(move |mut request: Request| {
            let next = next.clone();
            async move {
                for _ in 0..HOPS {
                    let again = request.clone();
                    let response = next.clone().oneshot(request).await?;
                    let Some(target) = target(again.method(), again.uri(), &response) else { return Ok(response) };
                    request = again;
                    *request.uri_mut() = target;
                }
                Err(Fault::Answer(format!("more than {HOPS} redirects, the last to {}", request.uri())))
            }
        })
    })
}

fn target(method: &Method, from: &Uri, response: &Response) -> Option<Uri> {
    match response.status().as_u16() {
        301 | 302 if *method == Method::GET => {}
        307 | 308 => {}
        _ => return None,
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?.parse::<Uri>().ok()?;
    if location.authority().is_some() {
        return (location.scheme() == from.scheme() && location.authority() == from.authority()).then_some(location);
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(location.path_and_query()?.clone());
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn only_redirects_that_keep_method_and_origin_are_followed() {
        let from = Uri::from_static("https://api.github.com/repos/acme/old/actions/runners?per_page=100");
        let table = [
            (Method::GET, 301, "https://api.github.com/repositories/7/actions/runners", true),
            (Method::GET, 302, "/repositories/7/actions/runners?per_page=100", true),
            (Method::GET, 304, "https://api.github.com/x", false),
            (Method::GET, 301, "https://evil.example/repositories/7", false),
            (Method::GET, 301, "http://api.github.com/repositories/7", false),
            (Method::POST, 301, "https://api.github.com/repositories/7", false),
            (Method::POST, 303, "https://api.github.com/repositories/7", false),
            (Method::POST, 307, "https://api.github.com/repositories/7", true),
            (Method::DELETE, 308, "https://api.github.com/repositories/7", true),
        ];
        for (method, status, location, followed) in table {
            let response = http::Response::builder().status(status).header(LOCATION, location).body(Bytes::new()).unwrap();
            let target = target(&method, &from, &response);
            assert_eq!(target.is_some(), followed, "{method} {status} {location}");
            if let Some(target) = target {
                assert_eq!(target.host(), Some("api.github.com"));
            }
        }
    }
}
