//! The byte-level JSON boundary: what counts as usable JSON, and what its identity is.
//!
//! Bytes from outside pass [`AcceptedJson::check`] once and are carried verbatim from then on. Everything downstream
//! takes the type, so unchecked JSON does not compile, and no later hop can read the same bytes in another way than the
//! first one did: no repeated keys, no broken surrogates, a bounded depth, bounded numbers.
//!
//! ```
//! use leasehold_json::{AcceptedJson, RefusalReason};
//!
//! let order = AcceptedJson::check(br#" {"id": 9007199254740993, "amount": 1.50} "#)?;
//! assert_eq!(order.as_str(), r#"{"id": 9007199254740993, "amount": 1.50}"#);
//! assert_eq!(order.canonical(), r#"{"amount":1.5,"id":9007199254740993}"#);
//!
//! let refused = AcceptedJson::check(br#"{"path":"/tmp/a","path":"/"}"#).unwrap_err();
//! assert_eq!(refused.to_string(), r#"repeated key "path" at byte 17"#);
//! # Ok::<(), leasehold_json::Refusal>(())
//! ```
//!
//! There is no other way in: the constructor is private.
//!
//! ```compile_fail,E0423
//! let forged = leasehold_json::AcceptedJson(std::sync::Arc::from("{"));
//! ```
//!
//! ```compile_fail,E0451
//! let forged = leasehold_json::AcceptedJson { text: std::sync::Arc::from("{") };
//! ```

mod accepted;
mod boundary;
mod canonical;
mod digest;
mod kept;
mod number;
mod read;
mod refusal;

pub use accepted::{AcceptedJson, BuildError, Kind};
pub use boundary::MAX_DEPTH;
pub use digest::{Digest, DigestBuilder, DigestError};
pub use kept::Kept;
pub use number::{Decimal, DecimalError, MAX_EXPONENT, MAX_NUMBER_LITERAL};
pub use refusal::{Refusal, RefusalReason};
