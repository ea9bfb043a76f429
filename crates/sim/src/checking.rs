//! Going through a model: what stateright finds broken or never seen, and whether every state can still come to rest.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use stateright::{Checker, HasDiscoveries, Model};

/// What a situation has to be for stateright to keep it.
pub(crate) trait Situation: Clone + PartialEq + Hash + Send + Sync + 'static {}
impl<T: Clone + PartialEq + Hash + Send + Sync + 'static> Situation for T {}

/// What came of a check.
#[derive(Debug)]
pub struct Checked<Action> {
    /// Different states.
    pub states: usize,
    /// Steps between them.
    pub transitions: usize,
    /// Steps of the longest way that was gone.
    pub depth: usize,
    /// Properties that were looked at in each state.
    pub properties: usize,
    /// Broken promises, each with a way to it.
    pub broken: Vec<(&'static str, Vec<Action>)>,
    /// Situations that the model is about and that never came about: a check with one of them proves less than it says.
    pub never: Vec<&'static str>,
}

/// Goes through every state, on all processors; stops at the first broken promise.
pub(crate) fn exhaust<M>(model: M) -> Checked<M::Action>
where
    M: Model<State: Situation, Action: Clone + PartialEq + Send + Sync> + Send + Sync + 'static,
{
    go(model, HasDiscoveries::AnyFailures)
}

/// Goes on until the promise whose name begins like this is broken, or everything was seen.
pub(crate) fn find<M>(model: M, promise: &str) -> Checked<M::Action>
where
    M: Model<State: Situation, Action: Clone + PartialEq + Send + Sync> + Send + Sync + 'static,
{
    let named = model.properties().into_iter().map(|property| property.name);
    let wanted = named.filter(|name| name.starts_with(promise)).collect();
    go(model, HasDiscoveries::AllOf(wanted))
}

fn go<M>(model: M, until: HasDiscoveries) -> Checked<M::Action>
where
    M: Model<State: Situation, Action: Clone + PartialEq + Send + Sync> + Send + Sync + 'static,
{
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(until)
        .spawn_bfs()
        .join();
    let mut broken = Vec::new();
    let mut seen = Vec::new();
    let properties = checker.model().properties();
    for (name, path) in checker.discoveries() {
        let failure = properties
            .iter()
            .any(|property| property.name == name && property.expectation.discovery_is_failure());
        if failure {
            broken.push((name, path.into_actions()));
        } else {
            seen.push(name);
        }
    }
    let never = properties
        .iter()
        .filter(|property| !property.expectation.discovery_is_failure())
        .map(|property| property.name)
        .filter(|name| !seen.contains(name))
        .collect();
    Checked {
        states: checker.unique_state_count(),
        transitions: checker.state_count(),
        depth: checker.max_depth(),
        properties: properties.len(),
        broken,
        never,
    }
}

/// Whether every state can come to rest.
#[derive(Debug)]
pub struct Settles<Action> {
    /// Different states.
    pub states: usize,
    /// Of them, those at rest.
    pub settled: usize,
    /// The shortest way to a state from which none at rest can be reached.
    pub lost: Option<Vec<Action>>,
}

/// Goes through every state and asks whether one in which `settled` holds can be reached from each. Under strong fairness (what may happen
/// again and again happens at last) that is: every schedule comes to rest; and unlike a property of paths it holds over circles too.
pub(crate) fn settles<M>(model: M, settled: impl Fn(&M::State) -> bool) -> Settles<M::Action>
where
    M: Model,
    M::State: Hash + Clone,
    M::Action: Clone + Debug,
{
    let mut numbers: HashMap<u64, u32> = HashMap::new();
    let mut parents: Vec<u32> = Vec::new();
    let mut before: Vec<Vec<u32>> = Vec::new();
    let mut good: Vec<u32> = Vec::new();
    let mut level = Vec::new();
    for state in model.init_states() {
        numbers.insert(print(&state), 0);
        (parents, before) = (vec![0], vec![Vec::new()]);
        level.push((0, state));
    }
    let mut actions = Vec::new();
    while !level.is_empty() {
        for (at, state) in std::mem::take(&mut level) {
            if settled(&state) {
                good.push(at);
            }
            model.actions(&state, &mut actions);
            for action in actions.drain(..) {
                let Some(next) = model.next_state(&state, action) else {
                    continue;
                };
                if !model.within_boundary(&next) {
                    continue;
                }
                let fresh = u32::try_from(parents.len()).unwrap_or(u32::MAX);
                match numbers.entry(print(&next)) {
                    Entry::Occupied(known) => before[*known.get() as usize].push(at),
                    Entry::Vacant(place) => {
                        place.insert(fresh);
                        parents.push(at);
                        before.push(vec![at]);
                        level.push((fresh, next));
                    }
                }
            }
        }
    }
    let settled = good.len();
    let mut fine = vec![false; parents.len()];
    while let Some(at) = good.pop() {
        if !std::mem::replace(&mut fine[at as usize], true) {
            good.extend(&before[at as usize]);
        }
    }
    // Numbers rise with the distance from the beginning.
    let lost = fine.iter().position(|fine| !fine);
    Settles {
        states: parents.len(),
        settled,
        lost: lost.map(|at| way(&model, &numbers, &parents, at)),
    }
}

/// The actions that led to a state, found again along its parents.
fn way<M>(model: &M, numbers: &HashMap<u64, u32>, parents: &[u32], to: usize) -> Vec<M::Action>
where
    M: Model,
    M::State: Hash + Clone,
    M::Action: Clone,
{
    let mut stops = vec![to];
    let mut at = to;
    while at != 0 {
        at = parents[at] as usize;
        stops.push(at);
    }
    let mut gone = Vec::new();
    let Some(mut state) = model.init_states().pop() else {
        return gone;
    };
    for stop in stops.into_iter().rev().skip(1) {
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let step = actions.into_iter().find_map(|action| {
            let next = model.next_state(&state, action.clone())?;
            let there = numbers.get(&print(&next)) == Some(&u32::try_from(stop).ok()?);
            there.then_some((action, next))
        });
        let Some((action, next)) = step else {
            return gone;
        };
        gone.push(action);
        state = next;
    }
    gone
}

fn print(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
