//! What no caller can make up: the types of these cases are made by the machines alone, so the cases do not compile.

#[test]
fn i6_i3_permissions_and_fencing_tokens_cannot_be_forged() {
    trybuild::TestCases::new().compile_fail("tests/forge/*.rs");
}
