//! The tools of one process, checked together before any run: the registry refuses what contradicts itself and says
//! everything that is wrong at once.
//!
//! Order is the order declared, because that is the order in which an agent is offered the tools, on every request.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use thiserror::Error;

use crate::{
    compile::{CompiledTool, SpecError, compile_tool},
    spec::{ToolSpec, Trust},
    tool::{Origin, Tool},
};

/// One tool as its registrar hands it in.
#[derive(Clone)]
pub struct Registered {
    /// What it says about itself.
    pub spec: ToolSpec,
    /// Where its implementation comes from.
    pub origin: Origin,
    /// What runs it, with the authority of this process; none for a sandboxed tool, which an executor runs, and for one that is served
    /// elsewhere.
    pub implementation: Option<Arc<dyn Tool>>,
}

impl Registered {
    /// A tool with an implementation.
    pub fn new(spec: ToolSpec, origin: Origin, implementation: Arc<dyn Tool>) -> Self {
        Self {
            spec,
            origin,
            implementation: Some(implementation),
        }
    }

    /// A tool that a sandboxed executor runs.
    pub fn sandboxed(spec: ToolSpec) -> Self {
        Self {
            spec,
            origin: Origin::Sandbox,
            implementation: None,
        }
    }

    /// A tool that workers elsewhere execute: this process judges its calls and leaves them to those.
    pub fn elsewhere(spec: ToolSpec) -> Self {
        Self {
            spec,
            origin: Origin::Elsewhere,
            implementation: None,
        }
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("spec", &self.spec)
            .field("origin", &self.origin)
            .field(
                "implementation",
                &self.implementation.as_ref().map(|_| ".."),
            )
            .finish()
    }
}

/// Why tools cannot be assembled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AssemblyError {
    /// One specification is refused by itself.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Two tools have one name.
    #[error("tool {tool:?} is declared more than once; give each tool a name of its own")]
    DuplicateName {
        /// The name.
        tool: String,
    },
    /// Nothing would run the tool.
    #[error(
        "tool {tool:?} is authoritative but has no implementation; give it one, or declare it sandboxed or served elsewhere"
    )]
    NothingToRun {
        /// The name.
        tool: String,
    },
    /// The tool would run with this process's authority after all.
    #[error(
        "tool {tool:?} is sandboxed but carries an implementation; remove it, or declare the tool authoritative"
    )]
    SandboxedWithImplementation {
        /// The name.
        tool: String,
    },
    /// Its calls would be taken here and elsewhere.
    #[error(
        "tool {tool:?} is served elsewhere but carries an implementation; remove it, or do not declare the tool served elsewhere"
    )]
    ElsewhereWithImplementation {
        /// The name.
        tool: String,
    },
    /// A worker has authority of its own.
    #[error(
        "tool {tool:?} is served by workers elsewhere, which act with their own authority; declare it authoritative"
    )]
    SandboxedElsewhere {
        /// The name.
        tool: String,
    },
    /// A server elsewhere has authority of its own.
    #[error(
        "tool {tool:?} comes from an MCP server, which acts with its own authority; declare it authoritative"
    )]
    SandboxedFromMcp {
        /// The name.
        tool: String,
    },
}

struct Entry {
    tool: CompiledTool,
    /// None where nothing is known but the specification.
    origin: Option<Origin>,
    implementation: Option<Arc<dyn Tool>>,
}

/// A tool on its way into a registry.
struct Candidate {
    contradiction: Option<AssemblyError>,
    spec: ToolSpec,
    origin: Option<Origin>,
    implementation: Option<Arc<dyn Tool>>,
}

/// Tools that passed every check, in declared order.
#[derive(Default)]
pub struct Registry {
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
}

impl Registry {
    /// Checks and compiles the tools of a process that runs them. On failure every error is given, in declared order.
    pub fn assemble(tools: Vec<Registered>) -> Result<Self, Vec<AssemblyError>> {
        Self::collect(tools.into_iter().map(|tool| Candidate {
            contradiction: contradiction(&tool),
            spec: tool.spec,
            origin: Some(tool.origin),
            implementation: tool.implementation,
        }))
    }

    /// Checks and compiles specifications for a process that only reads or decides; errors as for
    /// [`assemble`](Self::assemble), except that nothing is expected to run the tools.
    pub fn specs_only(specs: Vec<ToolSpec>) -> Result<Self, Vec<AssemblyError>> {
        Self::collect(specs.into_iter().map(|spec| Candidate {
            contradiction: None,
            spec,
            origin: None,
            implementation: None,
        }))
    }

    fn collect(tools: impl Iterator<Item = Candidate>) -> Result<Self, Vec<AssemblyError>> {
        let mut registry = Self::default();
        let mut names = HashSet::new();
        let mut errors = Vec::new();
        for candidate in tools {
            let Candidate {
                contradiction,
                spec,
                origin,
                implementation,
            } = candidate;
            let is_new = names.insert(spec.name.clone());
            match compile_tool(&spec) {
                Ok(tool) => {
                    registry
                        .by_name
                        .insert(spec.name.clone(), registry.entries.len());
                    registry.entries.push(Entry {
                        tool,
                        origin,
                        implementation,
                    });
                }
                Err(error) => errors.push(error.into()),
            }
            if !is_new {
                errors.push(AssemblyError::DuplicateName { tool: spec.name });
            }
            errors.extend(contradiction);
        }
        if errors.is_empty() {
            Ok(registry)
        } else {
            Err(errors)
        }
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&CompiledTool> {
        self.entry(name).map(|entry| &entry.tool)
    }

    /// What runs the tool of this name in this process.
    pub fn implementation(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.entry(name)?.implementation.clone()
    }

    /// Where the implementation of the tool of this name comes from; none where only its specification is known.
    pub fn origin(&self, name: &str) -> Option<Origin> {
        self.entry(name)?.origin
    }

    /// The names of the tools that workers elsewhere execute, in declared order.
    pub fn elsewhere(&self) -> impl Iterator<Item = &str> {
        let entries = self.entries.iter();
        entries
            .filter(|entry| entry.origin == Some(Origin::Elsewhere))
            .map(|entry| entry.tool.spec().name.as_str())
    }

    /// All tools in declared order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &CompiledTool> {
        self.entries.iter().map(|entry| &entry.tool)
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no tool.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).and_then(|&at| self.entries.get(at))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(CompiledTool::name))
            .finish()
    }
}

/// What a tool's declared trust, its origin and its implementation say against each other.
fn contradiction(registered: &Registered) -> Option<AssemblyError> {
    let tool = registered.spec.name.clone();
    match (
        registered.spec.trust,
        registered.origin,
        &registered.implementation,
    ) {
        (Trust::Sandboxed, Origin::Elsewhere, _) => {
            Some(AssemblyError::SandboxedElsewhere { tool })
        }
        (Trust::Authoritative, Origin::Elsewhere, Some(_)) => {
            Some(AssemblyError::ElsewhereWithImplementation { tool })
        }
        (Trust::Authoritative, Origin::Elsewhere, None) => None,
        (Trust::Sandboxed, Origin::Mcp, _) => Some(AssemblyError::SandboxedFromMcp { tool }),
        (Trust::Sandboxed, _, Some(_)) => Some(AssemblyError::SandboxedWithImplementation { tool }),
        (Trust::Authoritative, _, None) => Some(AssemblyError::NothingToRun { tool }),
        (Trust::Authoritative, _, Some(_)) | (Trust::Sandboxed, _, None) => None,
    }
}
