//! The chart, with the real helm: what it renders for ten sets of values, what it refuses, and installations, upgrades and removals on the real
//! API server, where the rendered command lines and environments start the real operator. And the commands of the pages of the book, as they stand.

#[path = "chart/around.rs"]
mod around;
#[path = "chart/busy.rs"]
mod busy;
#[path = "chart/guides.rs"]
mod guides;
#[path = "chart/helm.rs"]
mod helm;
#[path = "chart/installation.rs"]
mod installation;
#[path = "chart/manuals.rs"]
mod manuals;
#[path = "chart/pages.rs"]
mod pages;
#[path = "chart/pod.rs"]
mod pod;
#[path = "chart/reader.rs"]
mod reader;
#[path = "chart/rendered.rs"]
mod rendered;
#[path = "chart/shipped.rs"]
mod shipped;
#[path = "chart/values.rs"]
mod values;
