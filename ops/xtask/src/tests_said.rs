//! What test runners say, read line by line: counts, tests that were not really run, and which lines are worth showing.

use std::collections::BTreeMap;

/// How a test says that this machine cannot run it: `SKIPPED needs: WHAT: TEST`.
const SKIPPED: &str = "SKIPPED needs: ";

/// Words with which a status line of nextest begins.
const STATUS: [&str; 10] = [
    "PASS [",
    "FAIL [",
    "SLOW [",
    "LEAK [",
    "FLAKY ",
    "TIMEOUT [",
    "SIG",
    "ABORT [",
    "Summary [",
    "error:",
];

/// Who runs the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// `cargo test`, told `--show-output`.
    Libtest,
    /// `cargo nextest run`, told to show the output of passing tests.
    Nextest,
}

/// Counts over all runners. `passed` includes the tests that returned early because this machine lacks something.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    /// Tests by what they need.
    pub(crate) not_run: BTreeMap<String, Vec<String>>,
}

impl Said {
    /// Reads one runner's output.
    pub(crate) fn of(&mut self, runner: Runner) -> Reading<'_> {
        Reading {
            said: self,
            runner,
            quiet: false,
        }
    }

    /// How many tests this machine could not run.
    pub(crate) fn not_run_here(&self) -> usize {
        self.not_run.values().map(Vec::len).sum()
    }
}

/// One runner's output.
pub(crate) struct Reading<'a> {
    said: &'a mut Said,
    runner: Runner,
    /// Inside the output of a test that passed.
    quiet: bool,
}

impl Reading<'_> {
    /// Takes a line in. Whether it is worth showing.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        let text = line.trim_start();
        if let Some((_, skipped)) = text.split_once(SKIPPED) {
            let (need, test) = skipped
                .rsplit_once(": ")
                .unwrap_or((skipped, "a test without a name"));
            let tests = self.said.not_run.entry(need.to_owned()).or_default();
            if !tests.iter().any(|known| known == test) {
                tests.push(test.to_owned());
            }
        }
        match self.runner {
            Runner::Libtest => self.libtest(text),
            Runner::Nextest => self.nextest(text),
        }
    }

    fn libtest(&mut self, text: &str) -> bool {
        if let Some(result) = text.strip_prefix("test result: ") {
            self.quiet = false;
            self.count(result);
            return true;
        }
        match text {
            "successes:" => self.quiet = true,
            "failures:" => self.quiet = false,
            _ => {}
        }
        !self.quiet
    }

    fn nextest(&mut self, text: &str) -> bool {
        if STATUS.iter().any(|word| text.starts_with(word)) {
            self.quiet = text.starts_with("PASS [");
            if let Some((_, result)) = text.split_once("tests run: ") {
                self.count(result);
            } else if let Some((_, result)) = text.split_once("test run: ") {
                self.count(result);
            }
            return true;
        }
        !self.quiet
    }

    /// Adds up a line like `3 passed (1 slow), 1 failed, 2 skipped` or `ok. 3 passed; 1 failed; 2 ignored`.
    fn count(&mut self, result: &str) {
        let words: Vec<&str> = result
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let [number, what] = pair else { continue };
            let Ok(number) = number.parse::<usize>() else {
                continue;
            };
            match *what {
                "passed" => self.said.passed += number,
                "failed" | "timed" | "exec" => self.said.failed += number,
                "ignored" | "skipped" => self.said.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(runner: Runner, lines: &[&str]) -> (Said, Vec<String>) {
        let mut said = Said::default();
        let mut reading = said.of(runner);
        let shown = lines.iter().filter(|line| reading.line(line));
        let shown = shown.map(|line| line.trim().to_owned()).collect();
        (said, shown)
    }

    #[test]
    fn libtest_is_counted_and_the_output_of_passing_tests_hidden() {
        let (said, shown) = read(
            Runner::Libtest,
            &[
                "test a ... ok",
                "successes:",
                "---- a stdout ----",
                "noise",
                "SKIPPED needs: mount: a",
                "failures:",
                "---- b stdout ----",
                "loud",
                "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 7 filtered out; finished in 0.1s",
            ],
        );
        assert_eq!((said.passed, said.failed, said.ignored), (3, 1, 2));
        assert_eq!(said.not_run["mount"], ["a"]);
        assert!(shown.contains(&"loud".to_owned()) && !shown.contains(&"noise".to_owned()));
    }

    #[test]
    fn nextest_is_counted_once_although_each_test_closes_like_libtest() {
        let (said, shown) = read(
            Runner::Nextest,
            &[
                "        PASS [   0.005s] (1/2) c::t a",
                "  stdout ───",
                "    SKIPPED needs: to be root: a",
                "    test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out",
                "        FAIL [   0.005s] (2/2) c::t b",
                "    loud",
                "     Summary [   1.2s] 4 tests run: 1 passed (1 slow, 1 leaky), 2 failed, 1 timed out, 5 skipped",
                "        FAIL [   0.005s] (2/2) c::t b",
            ],
        );
        assert_eq!((said.passed, said.failed, said.ignored), (1, 3, 5));
        assert_eq!(said.not_run_here(), 1);
        assert!(shown.contains(&"loud".to_owned()));
        assert!(!shown.iter().any(|line| line.starts_with("test result")));
    }

    #[test]
    fn a_test_told_twice_is_counted_once_and_a_need_may_contain_a_colon() {
        let skipped = "SKIPPED needs: mount: permission denied: a";
        let (said, _) = read(Runner::Libtest, &[skipped, skipped]);
        assert_eq!(said.not_run["mount: permission denied"], ["a"]);
    }
}
