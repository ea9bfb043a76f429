//! The accounts of a cluster, as text for nats-server: one for the nodes, one for each domain of workers, one each for clients and operators.
//!
//! Only the nodes' account holds streams. The others reach it by service imports, which give every message that crosses a reply of the
//! server's own: whoever may pull, acknowledge or write cannot have the server's answer stored where it may not write itself. In its account
//! each user may publish only under its own name. The text follows from the plan alone, so it can be kept beside the plan and compared.
//! Passwords are variables of the server's environment.
//!
//! An import is never one literal subject of another account's user: a reply that a worker names could be chained into it.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_protocol::{ClientId, OperatorId, WorkerId};
use leasehold_tools::subject_token;

use crate::connect::inbox_prefix;
use crate::names;
use crate::queue::consumer;

/// How long the server keeps the way back of a pull or a question open. Longer than the longest pull (30 s here, 60 s in the wire contract).
const THRESHOLD: &str = "65s";
/// How often, and how long after it, a worker may answer a delivery or a question. Later than the longest call, its acknowledgement is
/// refused, and the call comes again and is found over.
const RESPONSES: &str = "{ max: 16, expires: \"24h\" }";

/// Who there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountPlan {
    /// Who may submit runs.
    pub clients: BTreeSet<ClientId>,
    /// Who may answer questions and cancel runs.
    pub operators: BTreeSet<OperatorId>,
    /// The domains of tools by name.
    pub domains: BTreeMap<String, DomainPlan>,
}

/// The tools that the same people serve, and their workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainPlan {
    /// The tools that its workers pull together; a tool whose concurrency is bounded is pulled by itself, or with those of its key.
    pub pools: BTreeSet<BTreeSet<String>>,
    /// Its workers.
    pub workers: BTreeSet<WorkerId>,
}

/// A plan that makes no accounts.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// Nothing to do there.
    #[error("domain {domain} has no {what}; give it at least one, or take it out")]
    Empty {
        /// Which.
        domain: String,
        /// What it lacks.
        what: &'static str,
    },
    /// A pool of no tools pulls nothing.
    #[error("domain {0} has a pool without tools; take it out")]
    EmptyPool(String),
    /// Two domains that share are one.
    #[error(
        "{what} {name} is in domain {first} and in domain {second}; each {what} belongs to one domain"
    )]
    Shared {
        /// Worker or tool.
        what: &'static str,
        /// Its name.
        name: String,
        /// The one domain.
        first: String,
        /// The other.
        second: String,
    },
    /// Two users would have one password.
    #[error("{first} and {second} would both have their password in {variable}; rename one")]
    Variable {
        /// The variable.
        variable: String,
        /// One user.
        first: String,
        /// The other.
        second: String,
    },
}

/// A subject that an account may reach, and how it is answered.
struct Service {
    subject: String,
    /// Several messages answer, over a longer time.
    streams: bool,
}

fn service(subject: String) -> Service {
    Service {
        subject,
        streams: false,
    }
}

fn stream(subject: String) -> Service {
    Service {
        subject,
        streams: true,
    }
}

impl DomainPlan {
    fn tools(&self) -> BTreeSet<&String> {
        self.pools.iter().flatten().collect()
    }

    fn consumers(&self, domain: &str) -> Vec<String> {
        let name = |pool: &BTreeSet<String>| {
            let tools: Vec<String> = pool.iter().cloned().collect();
            consumer(domain, &tools)
        };
        self.pools.iter().map(name).collect()
    }

    /// All that the domain's account reaches of the nodes'.
    fn services(&self, domain: &str) -> Vec<Service> {
        let mut services = Vec::new();
        for consumer in self.consumers(domain) {
            services.push(stream(format!("$JS.API.CONSUMER.MSG.NEXT.*.{consumer}")));
            // Servers have two forms of acknowledgement subjects.
            services.push(service(format!("$JS.ACK.*.{consumer}.>")));
            services.push(service(format!("$JS.ACK.*.*.*.{consumer}.>")));
            services.push(stream(format!("lh.ask.pool.*.{consumer}")));
        }
        for tool in self.tools() {
            let tool = subject_token(tool);
            for register in ["claim", "outcome"] {
                services.push(service(format!("lh.*.run.*.w.{register}.{tool}.*.*.*.*")));
            }
            services.push(service(format!("lh.*.run.*.w.evidence.{tool}.*.*.*.*.*")));
            for what in ["chain", "notes"] {
                services.push(stream(format!("lh.ask.{what}.*.{tool}.*.*.*")));
            }
        }
        let domain = subject_token(domain);
        services.push(service(format!("lh.ws.{domain}.*.*")));
        services.push(stream(format!("lh.ask.last.lh.ws.{domain}.*.*")));
        services.push(stream("lh.ask.cluster.*".to_owned()));
        services.push(stream("lh.ask.piece.*.*".to_owned()));
        services.push(service("lh.a.*.*".to_owned()));
        services.push(service("lh.wake.*".to_owned()));
        services
    }

    /// What one worker of it may publish.
    fn publishes(&self, domain: &str, worker: &WorkerId) -> Vec<String> {
        let token = worker.token();
        let mut subjects = Vec::new();
        for consumer in self.consumers(domain) {
            subjects.push(format!("$JS.API.CONSUMER.MSG.NEXT.*.{consumer}"));
            subjects.push(format!("lh.ask.pool.*.{consumer}"));
        }
        for tool in self.tools() {
            let tool = subject_token(tool);
            for register in ["claim", "outcome"] {
                subjects.push(format!("lh.*.run.*.w.{register}.{tool}.*.*.*.{token}"));
            }
            subjects.push(format!("lh.*.run.*.w.evidence.{tool}.*.*.*.{token}.*"));
            for what in ["chain", "notes"] {
                subjects.push(format!("lh.ask.{what}.*.{tool}.*.*.*"));
            }
        }
        for subject in [names::live(domain, worker), names::logbook(domain, worker)] {
            subjects.push(format!("lh.ask.last.{subject}"));
            subjects.push(subject);
        }
        subjects.push(format!("lh.ask.cluster.{token}"));
        subjects.extend(["lh.ask.piece.*.*", "lh.a.*.*", "lh.wake.*"].map(str::to_owned));
        subjects
    }
}

/// The name of a domain's account.
fn account(domain: &str) -> String {
    format!("DOMAIN_{}", subject_token(domain))
}

/// The variable that holds a user's password.
fn variable(user: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    let user: String = user.chars().map(plain).collect();
    format!("LEASEHOLD_NATS_PASSWORD_{user}")
}

impl AccountPlan {
    fn check(&self) -> Result<(), PlanError> {
        let mut owners: BTreeMap<(&'static str, &str), &str> = BTreeMap::new();
        for (domain, plan) in &self.domains {
            for (what, is_empty) in [
                ("pools", plan.pools.is_empty()),
                ("workers", plan.workers.is_empty()),
            ] {
                if is_empty {
                    let domain = domain.clone();
                    return Err(PlanError::Empty { domain, what });
                }
            }
            if plan.pools.iter().any(BTreeSet::is_empty) {
                return Err(PlanError::EmptyPool(domain.clone()));
            }
            let tools = plan.tools().into_iter().map(|tool| ("tool", tool.as_str()));
            let workers = plan.workers.iter().map(|name| ("worker", name.as_str()));
            for (what, name) in tools.chain(workers) {
                if let Some(first) = owners.insert((what, name), domain) {
                    return Err(PlanError::Shared {
                        what,
                        name: name.to_owned(),
                        first: first.to_owned(),
                        second: domain.clone(),
                    });
                }
            }
        }
        let mut variables: BTreeMap<String, &str> = BTreeMap::new();
        for user in self.users() {
            let variable = variable(user);
            if let Some(first) = variables.insert(variable.clone(), user) {
                return Err(PlanError::Variable {
                    variable,
                    first: first.to_owned(),
                    second: user.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn users(&self) -> impl Iterator<Item = &str> {
        let workers = self.domains.values().flat_map(|plan| &plan.workers);
        std::iter::once("node")
            .chain(workers.map(WorkerId::as_str))
            .chain(self.clients.iter().map(ClientId::as_str))
            .chain(self.operators.iter().map(OperatorId::as_str))
    }

    /// The variables that the text needs in the server's environment, one password each, in the order of the text.
    ///
    /// # Errors
    /// What is wrong with the plan.
    pub fn variables(&self) -> Result<Vec<String>, PlanError> {
        self.check()?;
        Ok(self.users().map(variable).collect())
    }

    /// The text, for `include` in a server's configuration.
    ///
    /// # Errors
    /// What is wrong with the plan.
    pub fn config(&self) -> Result<String, PlanError> {
        self.check()?;
        let mut text = Text::default();
        text.line("# Accounts for a Leasehold cluster, written by `leasehold accounts`: change the plan, not this file. README.md beside");
        text.line("# the shipped one says what each part is for. Words that begin with `$` are passwords, or their bcrypt hashes, taken from");
        text.line("# the server's environment.");
        text.open("accounts {");
        self.runtime(&mut text);
        for (domain, plan) in &self.domains {
            plan.account(domain, &mut text);
        }
        let inbox = |id: String, subjects: &[&str]| {
            let subjects = subjects.iter();
            (id, subjects.map(|subject| (*subject).to_owned()).collect())
        };
        let clients = self.clients.iter().map(|client| {
            let token = client.token();
            inbox(client.to_string(), &[&format!("lh.*.in.*.{token}")])
        });
        text.people("CLIENTS", clients.collect(), &["lh.*.in.*.*"]);
        let operators = self.operators.iter().map(|operator| {
            let token = operator.token();
            let (decide, cancel) = (format!("lh.*.d.*.*.{token}"), format!("lh.*.c.*.{token}"));
            inbox(operator.to_string(), &[&decide, &cancel])
        });
        let imports = ["lh.*.d.*.*.*", "lh.*.c.*.*"];
        text.people("OPS", operators.collect(), &imports);
        text.close("}");
        Ok(text.0)
    }

    fn runtime(&self, text: &mut Text) {
        text.line("# Nodes, and people who read journals with the `leasehold` command. It holds every stream; what it exports is all that others reach.");
        text.open("RUNTIME {");
        text.line("jetstream: enabled");
        text.line(&format!(
            "users: [ {{ user: node, password: ${} }} ]",
            variable("node")
        ));
        text.open("exports: [");
        for (domain, plan) in &self.domains {
            text.line(&format!("# The workers of {}.", domain.escape_debug()));
            for service in plan.services(domain) {
                text.export(&service, &account(domain));
            }
        }
        if !self.clients.is_empty() {
            text.line("# Submissions.");
            text.export(&service("lh.*.in.*.*".to_owned()), "CLIENTS");
        }
        if !self.operators.is_empty() {
            text.line("# Decisions and cancellations.");
            for subject in ["lh.*.d.*.*.*", "lh.*.c.*.*"] {
                text.export(&service(subject.to_owned()), "OPS");
            }
        }
        text.close("]");
        text.open("imports: [");
        text.line("# A node asks a worker what became of an attempt. It knows the worker's name, and not its domain.");
        for (domain, plan) in &self.domains {
            for worker in &plan.workers {
                let (account, subject) = (account(domain), names::inspect(domain, worker));
                let to = names::inspect(crate::DEFAULT_DOMAIN, worker);
                text.line(&format!(
                    "{{ service: {{ account: {account:?}, subject: {subject:?} }}, to: {to:?} }}"
                ));
            }
        }
        text.close("]");
        text.close("}");
    }
}

impl DomainPlan {
    fn account(&self, domain: &str, text: &mut Text) {
        let name = account(domain);
        let tools: Vec<&str> = self.tools().into_iter().map(String::as_str).collect();
        // A comment is one line, whatever the names hold.
        let (domain_name, tools) = (domain.escape_debug(), tools.join(", "));
        text.line(&format!(
            "# Workers of {domain_name}: {}.",
            tools.escape_debug()
        ));
        text.open(&format!("{name:?} {{"));
        text.open("users: [");
        for worker in &self.workers {
            let inspect = names::inspect(domain, worker);
            let subscribes = [format!("{}.>", inbox_prefix(worker)), inspect];
            text.user(
                worker.as_str(),
                &self.publishes(domain, worker),
                &subscribes,
                Some("# Acknowledgements of what was delivered here, answers to what was asked here."),
            );
        }
        text.close("]");
        text.open("exports: [");
        let asked = format!("lh.worker.{}.*.inspect", subject_token(domain));
        text.export(&service(asked), "RUNTIME");
        text.close("]");
        text.imports(self.services(domain).iter().map(|to| to.subject.as_str()));
        text.close("}");
    }
}

/// Lines, and how far they are indented.
#[derive(Default)]
struct Text(String, usize);

impl Text {
    fn line(&mut self, line: &str) {
        for _ in 0..self.1 {
            self.0.push_str("    ");
        }
        self.0.push_str(line);
        self.0.push('\n');
    }
    fn open(&mut self, line: &str) {
        self.line(line);
        self.1 = self.1.saturating_add(1);
    }
    fn close(&mut self, line: &str) {
        self.1 = self.1.saturating_sub(1);
        self.line(line);
    }

    fn export(&mut self, service: &Service, to: &str) {
        let answered = if service.streams {
            format!(", response_type: stream, threshold: {THRESHOLD:?}")
        } else {
            String::new()
        };
        let subject = &service.subject;
        self.line(&format!(
            "{{ service: {subject:?}{answered}, accounts: [{to:?}] }}"
        ));
    }

    fn imports<'a>(&mut self, subjects: impl Iterator<Item = &'a str>) {
        self.open("imports: [");
        for subject in subjects {
            self.line(&format!(
                "{{ service: {{ account: RUNTIME, subject: {subject:?} }} }}"
            ));
        }
        self.close("]");
    }

    fn user(
        &mut self,
        name: &str,
        publishes: &[String],
        subscribes: &[String],
        responses: Option<&str>,
    ) {
        self.open("{");
        self.line(&format!("user: {name:?}, password: ${}", variable(name)));
        self.open("permissions {");
        self.open("publish { allow: [");
        for subject in publishes {
            self.line(&format!("{subject:?}"));
        }
        self.close("] }");
        let subscribes: Vec<String> = subscribes.iter().map(|to| format!("{to:?}")).collect();
        self.line(&format!(
            "subscribe {{ allow: [ {} ] }}",
            subscribes.join(", ")
        ));
        if let Some(why) = responses {
            self.line(why);
            self.line(&format!("allow_responses: {RESPONSES}"));
        }
        self.close("}");
        self.close("}");
    }

    /// An account of people or programs that write the inbox under their own names.
    fn people(&mut self, name: &str, users: Vec<(String, Vec<String>)>, imports: &[&str]) {
        if users.is_empty() {
            return;
        }
        self.line("# They write into the inbox, each under its own name, and read nothing.");
        self.open(&format!("{name} {{"));
        self.open("users: [");
        for (user, publishes) in users {
            let inbox = format!("_INBOX.{}.>", subject_token(&user));
            self.user(&user, &publishes, &[inbox], None);
        }
        self.close("]");
        self.imports(imports.iter().copied());
        self.close("}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn domain(pools: &[&[&str]], workers: &[&str]) -> DomainPlan {
        DomainPlan {
            pools: pools.iter().map(|pool| set(pool)).collect(),
            workers: workers
                .iter()
                .map(|name| WorkerId::new(*name).unwrap())
                .collect(),
        }
    }

    fn plan(domains: &[(&str, DomainPlan)]) -> AccountPlan {
        let domains = domains
            .iter()
            .map(|(name, plan)| ((*name).to_owned(), plan.clone()));
        AccountPlan {
            domains: domains.collect(),
            ..AccountPlan::default()
        }
    }

    #[test]
    fn what_two_domains_share_is_refused_by_name() {
        let shared = plan(&[
            ("a", domain(&[&["charge"]], &["w1"])),
            ("b", domain(&[&["mail", "charge"]], &["w2"])),
        ]);
        let error = shared.config().unwrap_err().to_string();
        assert!(
            error.contains("tool charge is in domain a and in domain b"),
            "{error}"
        );
        let shared = plan(&[
            ("a", domain(&[&["charge"]], &["w1"])),
            ("b", domain(&[&["mail"]], &["w1"])),
        ]);
        assert!(matches!(
            shared.config(),
            Err(PlanError::Shared { what: "worker", .. })
        ));
    }

    #[test]
    fn an_empty_domain_and_two_users_of_one_variable_are_refused() {
        for (pools, workers) in [(&[][..], &["w"][..]), (&[&["t"][..]][..], &[][..])] {
            let empty = plan(&[("a", domain(pools, workers))]);
            assert!(matches!(empty.config(), Err(PlanError::Empty { .. })));
        }
        let pool = plan(&[("a", domain(&[&[]], &["w"]))]);
        assert_eq!(pool.config(), Err(PlanError::EmptyPool("a".to_owned())));
        let alike = plan(&[("a", domain(&[&["t"]], &["w.1", "w-1"]))]);
        assert!(matches!(alike.config(), Err(PlanError::Variable { .. })));
    }

    #[test]
    fn a_name_cannot_reach_beyond_its_own_token() {
        let text = plan(&[("a.b", domain(&[&["x.>"]], &["w.*"]))])
            .config()
            .unwrap();
        assert!(text.contains("w.claim.x_2E_3E.*.*.*.w_2E_2A\""), "{text}");
        assert!(!text.contains("w.claim.x.>"), "{text}");
        let lines = plan(&[("a\nb", domain(&[&["x\ny"]], &["w"]))]);
        let config = lines.config().unwrap();
        assert!(config.contains("# Workers of a\\nb: x\\ny."), "{config}");
    }
}
