//! Tests only; see tests/.
