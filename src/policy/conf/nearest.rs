//! The known word that a mistyped one was most likely meant to be.

/// The candidate with the fewest edits to `word`, if few enough that the suggestion is likely right: at most a third of
/// the longer word, and never all of it. Ties go to the earlier candidate.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A key of absurd length is nobody's typing error, and the distance is quadratic.
    if word.len() > 256 {
        return None;
    }
    let scored = candidates.into_iter().map(|candidate| (distance(word, candidate), candidate));
    let (edits, best) = scored.min_by_key(|(edits, _)| *edits)?;
    (edits * 3 <= word.len().max(best.len())).then_some(best)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other, at least.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                let two_rows_up: &Vec<usize> = &before_last;
                best = best.min(two_rows_up[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abd", 1),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn a_likely_word_is_found_and_an_unlikely_one_is_not() {
        let known = ["memory_limit", "memory_fraction", "free_sync"];
        assert_eq!(nearest("memory_limt", known), Some("memory_limit"));
        assert_eq!(nearest("mem_fraction", known), Some("memory_fraction"));
        assert_eq!(nearest("fere_sync", known), Some("free_sync"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
