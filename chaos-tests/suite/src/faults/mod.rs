//! The faults: what each is, what of it this suite can do, and how it is done.
//!
//! [`catalogue`] names all of F1 to F24; whatever cannot be done here is listed there with its reason. [`mod@draw`] turns an armed fault into
//! steps, by the schedule's randomness alone. [`mod@inject`] carries the steps out on a running cluster, brings everything back, and says for
//! each step whether it took effect and by what that is known.

mod catalogue;
mod draw;
mod inject;
mod step;

pub(crate) use catalogue::{Fault, Means};
pub(crate) use draw::{Shape, draw};
pub(crate) use inject::{Injected, Injector};
pub(crate) use step::{Step, Toward, Who};
