//! Ways a tool runs: as Rust code in the worker's process, as a command, over HTTP; and the file that declares them.

mod bounds;
mod command;
mod http;
mod post;
mod probe;
mod process;
mod rust;
mod tools_file;

pub use bounds::{MAX_EXCERPT_BYTES, MAX_RESULT_BYTES};
pub use command::{CommandError, CommandTool, DEFAULT_ENV};
pub use http::{HttpTool, UrlError};
pub use post::HttpClient;
pub use process::TERM_GRACE;
pub use rust::RustTool;
pub use tools_file::{ToolsFile, ToolsFileError, ToolsFileErrors, load};
