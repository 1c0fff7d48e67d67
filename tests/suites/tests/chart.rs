//! The chart, with the real helm: what it renders for ten sets of values, what it refuses, and installations, upgrades and removals on the real
//! API server, where the rendered command lines and environments start the real operator. And the commands of the pages of the book, as they stand.

mod around;
mod busy;
mod guides;
mod helm;
mod installation;
mod manuals;
mod pages;
mod pod;
mod reader;
mod rendered;
mod shipped;
mod values;
