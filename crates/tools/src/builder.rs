//! The builder half of [`ToolSpec`]: one `with_*` method per field that [`ToolSpec::new`] leaves at its usual value.

use crate::spec::{Annotations, ProbeKind, ResultTrust, SchemaText, ToolSpec, Trust};

impl ToolSpec {
    /// Promises results of this shape.
    #[must_use]
    pub fn with_output_schema(mut self, schema: impl Into<SchemaText>) -> Self {
        self.output_schema = Some(schema.into());
        self
    }

    /// Success completes the run.
    #[must_use]
    pub fn with_terminal(mut self, terminal: bool) -> Self {
        self.terminal = terminal;
        self
    }

    /// The tool may end the whole run.
    #[must_use]
    pub fn with_may_abort(mut self, may_abort: bool) -> Self {
        self.may_abort = may_abort;
        self
    }

    /// Whose authority the tool runs with.
    #[must_use]
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Whether results may be more than data; see
    /// [`Origin::default_result_trust`](crate::Origin::default_result_trust).
    #[must_use]
    pub fn with_result_trust(mut self, result_trust: ResultTrust) -> Self {
        self.result_trust = result_trust;
        self
    }

    /// Hints, for people and models.
    #[must_use]
    pub fn with_annotations(mut self, annotations: Annotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// The tool answers probes of this kind.
    #[must_use]
    pub fn with_probe(mut self, probe: ProbeKind) -> Self {
        self.probe = Some(probe);
        self
    }

    /// The service refuses a request whose deadline has passed, inside the effect's own transaction.
    #[must_use]
    pub fn with_refuses_late(mut self, refuses_late: bool) -> Self {
        self.refuses_late = refuses_late;
        self
    }

    /// Blank optional strings, and nulls for optional properties, reach the tool as they are.
    #[must_use]
    pub fn with_keep_blank(mut self, keep_blank: bool) -> Self {
        self.keep_blank = keep_blank;
        self
    }

    /// At most `most` calls of all tools with this key run at a time.
    #[must_use]
    pub fn with_concurrency(mut self, key: impl Into<String>, most: u32) -> Self {
        self.concurrency_key = Some(key.into());
        self.max_concurrency = Some(most);
        self
    }

    /// Calls of all tools with this key share one rate.
    #[must_use]
    pub fn with_rate_key(mut self, key: impl Into<String>) -> Self {
        self.rate_key = Some(key.into());
        self
    }
}
