//! Plain HTTP to servers of the tests.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The head and the body of what a server says to a GET. By HTTP/1.0, so that the body comes as it is.
///
/// # Errors
///
/// When nothing listens there, or it does not answer in UTF-8.
pub async fn get(address: &str, path: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok((head.to_owned(), body.to_owned()))
}
