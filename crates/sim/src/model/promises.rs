//! What must hold in every situation, and what must come about somewhere for the check to mean anything.

use leasehold_protocol::{
    Basis, ClaimBody, Finding, LogbookRecord, NoteKind, ObservationKind, OutcomeBody, Phase, Sealed,
};
use stateright::Property;

use super::Bound;
use super::printed::Printed;
use super::state::State;
use super::stored::Lane;

/// Every property of the model, over a tool with a fencing probe or without one.
pub(super) fn all(fencing: bool) -> Vec<Property<Bound>> {
    let mut properties = vec![
        Property::always(
            "I1: effects <= 1 + run-again decisions",
            |_, state: &State| i1(state),
        ),
        Property::always(
            "I2: proved not done means no effect, ok means one",
            |_, state: &State| i2(state),
        ),
        Property::always(
            "moments: what is promised about one moment (I5, I6, I8, I15, I16, I17, I20)",
            |_, state: &State| state.stored.flaw.is_none(),
        ),
        Property::always("no stuck state", |model: &Bound, state: &State| {
            !model.is_stuck(state)
        }),
        Property::always(
            "every invariant over the stored bytes",
            |model: &Bound, state: &State| {
                !model.is_terminal(state) || state.stored.check().is_empty()
            },
        ),
        Property::sometimes("a tombstone", |_, state: &State| {
            state.workers.iter().any(|worker| {
                worker
                    .disk
                    .values()
                    .any(|record| matches!(**record, LogbookRecord::Tombstone { .. }))
            })
        }),
        Property::sometimes("an unsure note", |_, state: &State| {
            noted(state, |kind| matches!(kind, NoteKind::Unsure { .. }))
        }),
        Property::sometimes("an outcome that met a seal", |_, state: &State| {
            noted(state, |kind| matches!(kind, NoteKind::MetSeal { .. }))
        }),
        Property::sometimes("a further attempt on a proof", |_, state: &State| {
            has_basis(state, |basis| matches!(basis, Basis::Proof { .. }))
        }),
        Property::sometimes("an end", |_, state: &State| {
            state.stored.journal.state.ended.is_some()
        }),
        Property::sometimes(
            "an effect that lands after its worker's end",
            |_, state: &State| state.spent.worker_crashes > 0 && state.adrift[0] > 0,
        ),
    ];
    if fencing {
        properties.push(Property::sometimes(
            "a sealed not-done",
            |_, state: &State| sealed(state, |finding| matches!(finding, Sealed::ProbeNotDone)),
        ));
        properties.push(Property::sometimes("a sealed done", |_, state: &State| {
            sealed(state, |finding| matches!(finding, Sealed::ProbeDone { .. }))
        }));
    } else {
        properties.push(Property::sometimes(
            "run again, and two effects",
            |_, state: &State| state.stored.total() == 2,
        ));
        properties.push(Property::sometimes("a continue", |_, state: &State| {
            has_basis(state, |basis| matches!(basis, Basis::Continue { .. }))
        }));
    }
    properties
}

fn i1(state: &State) -> bool {
    let again = state.stored.step().map_or(0, |step| {
        let attempts = step.attempts.iter();
        attempts
            .filter(|attempt| matches!(attempt.basis, Basis::RunAgain { .. }))
            .count()
    });
    state.stored.total() <= 1 + again && state.stored.effects.iter().all(|count| *count <= 1)
}

fn i2(state: &State) -> bool {
    let idle = |(at, lane): (usize, &Printed<Lane>)| {
        let claim = lane.chain.claim.as_ref().map(|(_, claim)| claim);
        let outcome = lane
            .chain
            .outcome
            .as_ref()
            .map(|(_, outcome)| &outcome.fact);
        let proved = matches!(
            outcome,
            Some(
                OutcomeBody::NotStarted { .. }
                    | OutcomeBody::NothingHappened { .. }
                    | OutcomeBody::Sealed {
                        finding: Sealed::ProbeNotDone,
                        ..
                    }
            )
        ) || matches!(claim, Some(ClaimBody::Revoke { .. }));
        !proved || state.stored.effects[at] == 0
    };
    let ok = state.stored.step().is_some_and(|step| {
        let by_person = step
            .latest()
            .is_some_and(|latest| matches!(latest.finding, Some((Finding::RecordedDone, _))));
        step.phase == Phase::Finished
            && !by_person
            && step
                .observation
                .as_ref()
                .is_some_and(|told| told.kind == ObservationKind::ToolResult)
    });
    state.stored.lanes.iter().enumerate().all(idle) && (!ok || state.stored.total() > 0)
}

fn noted(state: &State, wanted: fn(&NoteKind) -> bool) -> bool {
    state
        .stored
        .lanes
        .iter()
        .flat_map(|lane| &lane.evidence)
        .any(wanted)
}

fn sealed(state: &State, wanted: fn(&Sealed) -> bool) -> bool {
    state.stored.lanes.iter().any(|lane| {
        matches!(&lane.chain.outcome, Some((_, outcome)) if matches!(&outcome.fact, OutcomeBody::Sealed { finding, .. } if wanted(finding)))
    })
}

fn has_basis(state: &State, wanted: fn(&Basis) -> bool) -> bool {
    state
        .stored
        .step()
        .is_some_and(|step| step.attempts.iter().any(|attempt| wanted(&attempt.basis)))
}
