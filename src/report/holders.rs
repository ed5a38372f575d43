//! Who holds the memory, as text: the few sites with most of it, or all with their stacks.

use std::fmt::Write;

use super::sites::{By, Frame, Held, Site, Sites};
use super::units::{counted, human, printable};

/// Frames of a site that one line shows.
const FRAMES_SHOWN: usize = 3;
/// Characters of a frame that a line shows: a name of C++ may go on for thousands.
const FRAME_SHOWN: usize = 100;

/// Lines of the report on one device, each with its label: how was sampled, and the first `most` sites at the end and
/// at the peak. Of a process that runs, the end is now.
pub fn lines(sites: &Sites, most: usize, runs: bool) -> Vec<(&'static str, String)> {
    let mut lines = vec![("sites", how(sites))];
    let end = if runs { "held now" } else { "held at the end" };
    for (label, by) in [(end, By::Live), ("held at peak", By::Peak)] {
        let top = sites.top(by);
        for (at, site) in top.iter().take(most).enumerate() {
            let text = format!("{}: {}", amount(sites, &site.held, by), place(sites, site));
            lines.push((if at == 0 { label } else { "" }, text));
        }
        let shown: u64 = top.iter().take(most).map(|site| by.of(&site.held)).sum();
        let rest = by.of(&sites.all).saturating_sub(shown);
        if rest > 0 && !top.is_empty() {
            lines.push(("", format!("{} by others", human(rest))));
        }
    }
    lines
}

/// How the figures came about, and what is missing from them.
pub fn how(sites: &Sites) -> String {
    let samples = counted(sites.all.samples, "sample");
    let mut text = if sites.interval_bytes == 1 {
        format!("{samples}: every allocation")
    } else {
        format!("{samples}, one in {} on average: amounts are estimates", human(sites.interval_bytes))
    };
    if sites.unplaced_samples > 0 {
        let _ = write!(
            text,
            "; {} at more sites than there is room for",
            counted(sites.unplaced_samples, "sample")
        );
    }
    if sites.untracked_samples > 0 {
        let unseen = counted(sites.untracked_samples, "sample");
        let _ = write!(text, "; {unseen} too many at once, which are missing from what is held");
    }
    if sites.without_python > 0 {
        let _ = write!(
            text,
            "; {} without frames of Python ({})",
            counted(sites.without_python, "sample"),
            printable(&sites.python)
        );
    }
    text
}

/// An amount, and by how much it may be off where it is an estimate.
pub fn amount(sites: &Sites, held: &Held, by: By) -> String {
    let (bytes, blocks, samples) = match by {
        By::Live => (held.live_bytes, Some(held.live_blocks), Some(held.live_samples)),
        By::Peak => (held.peak_bytes, None, None),
        By::Total => (held.total_bytes, Some(held.total_blocks), Some(held.samples)),
    };
    let mut text = human(bytes);
    if let Some(samples) = samples.filter(|samples| *samples > 0 && sites.interval_bytes > 1) {
        let _ = write!(text, " ± {:.0} %", 100.0 / (samples as f64).sqrt());
    }
    if let Some(blocks) = blocks {
        let _ = write!(text, " in {}", counted(blocks, "block"));
    }
    text
}

/// A site in one line. Where others would read the same, it says exactly where the calls are that differ, and if none of the
/// shown does, the first that does.
pub fn place(sites: &Sites, site: &Site) -> String {
    let frames = sites.gist(site, FRAMES_SHOWN);
    if frames.is_empty() {
        return "(no frames)".to_owned();
    }
    let others = sites.sites.iter().filter(|other| !std::ptr::eq(*other, site));
    let gists = others.map(|other| (other, sites.gist(other, FRAMES_SHOWN)));
    let reads_same = |gist: &[&Frame]| {
        gist.len() == frames.len() && gist.iter().zip(&frames).all(|(one, other)| one.reads_like(other))
    };
    let alike: Vec<(&Site, Vec<&Frame>)> = gists.filter(|(_, gist)| reads_same(gist)).collect();
    let words = frames.iter().enumerate().map(|(at, frame)| {
        let tells = alike.iter().any(|(_, gist)| gist[at] != *frame);
        shortened(&if tells { sites.exact_words(frame) } else { sites.words(frame) })
    });
    let mut line = words.collect::<Vec<_>>().join(" < ");
    let still: Vec<&Site> =
        alike.iter().filter(|(_, gist)| *gist == frames).map(|(other, _)| *other).collect();
    let differs = sites
        .stack(site)
        .enumerate()
        .find(|(at, frame)| still.iter().any(|other| sites.stack(other).nth(*at) != Some(*frame)));
    if let Some((_, frame)) = differs.filter(|_| !still.is_empty()) {
        let _ = write!(line, " < … < {}", shortened(&sites.exact_words(frame)));
    }
    line
}

fn shortened(words: &str) -> String {
    let words = printable(words);
    match words.char_indices().nth(FRAME_SHOWN) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}

/// All sites by what they hold, each with its whole stack.
pub fn stacks(sites: &Sites, by: By) -> String {
    let mut out = format!("  {}\n", how(sites));
    for site in sites.top(by) {
        let _ = writeln!(out, "\n  {}", amount(sites, &site.held, by));
        for frame in sites.stack(site) {
            let _ = writeln!(out, "    {}", printable(&sites.exact_words(frame)));
        }
        if site.cut {
            out.push_str("    …\n");
        }
    }
    let listed: u64 = sites.top(by).iter().map(|site| by.of(&site.held)).sum();
    let rest = by.of(&sites.all).saturating_sub(listed);
    if rest > 0 {
        let _ = writeln!(out, "\n  {} by sites that are not listed", human(rest));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::sites::Module;

    #[test]
    fn the_first_few_are_told_and_the_rest_summed() {
        let lines: Vec<String> = lines(&sample::sites(), 1, false)
            .into_iter()
            .map(|(label, text)| format!("{label}|{text}"))
            .collect();
        assert_eq!(
            lines,
            [
                "sites|12,814 samples, one in 64.00 MiB on average: amounts are estimates",
                "held at the end|640.00 MiB ± 32 % in 1 block: remember (train.py:41) < main (train.py:80)",
                "|128.00 MiB by others",
                "held at peak|4.00 GiB: forward (model.py:12) < main (train.py:80)",
                "|512.00 MiB by others",
            ]
        );
    }

    #[test]
    fn nothing_that_is_missing_goes_unsaid() {
        let mut sites = sample::sites();
        (sites.unplaced_samples, sites.untracked_samples, sites.without_python) = (3, 2, 1);
        let how = how(&sites);
        for words in
            ["3 samples at more sites", "2 samples too many at once", "1 sample without frames of Python"]
        {
            assert!(how.contains(words), "{how}");
        }
        sites.interval_bytes = 1;
        assert!(!amount(&sites, &sites.all, By::Live).contains('±'));
    }

    #[test]
    fn stacks_are_whole() {
        let text = stacks(&sample::sites(), By::Live);
        assert!(
            text.contains("    _ZN2at5emptyEv in libtorch.so+0x1000\n    remember (train.py:41)\n"),
            "{text}"
        );
        assert!(text.contains("solver+0x1234"), "{text}");
    }

    #[test]
    fn names_without_end_are_cut_and_say_nothing_to_a_terminal() {
        let mut sites = sample::sites();
        sites.frames[4].function = Some(format!("\u{1b}[31m{}", "x".repeat(5000)));
        let text = place(&sites, &sites.sites[1]);
        assert!(text.len() < 400 && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn sites_that_read_the_same_are_told_apart_by_what_differs() {
        let native = |offset, function: &str| Frame {
            module: Some(0),
            offset: Some(offset),
            function: Some(function.into()),
            ..Frame::default()
        };
        let site = |stack: &[u32]| Site {
            held: Held { live_bytes: 1, ..Held::default() },
            stack: stack.to_vec(),
            ..Site::default()
        };
        let sites = Sites {
            modules: vec![Module { path: "/x/solver".into(), ..Module::default() }],
            frames: vec![
                native(0x10, "grow"),
                native(0x20, "step"),
                native(0x28, "step"),
                native(0x30, "main"),
                native(0x40, "start"),
                native(0x48, "start"),
                native(0x50, "other"),
            ],
            sites: vec![
                site(&[0, 1, 3, 4]),
                site(&[0, 2, 3, 4]),
                site(&[0, 1, 3, 5]),
                site(&[6, 1, 3, 4]),
                site(&[0, 1]),
            ],
            ..Sites::default()
        };
        let lines: Vec<String> = sites.sites.iter().map(|site| place(&sites, site)).collect();
        assert_eq!(
            lines,
            [
                "grow in solver < step in solver+0x20 < main in solver < … < start in solver+0x40",
                "grow in solver < step in solver+0x28 < main in solver",
                "grow in solver < step in solver+0x20 < main in solver < … < start in solver+0x48",
                "other in solver < step in solver < main in solver",
                "grow in solver < step in solver",
            ]
        );
        let of_python = |function: &str| Frame {
            function: Some(function.into()),
            file: Some("t.py".into()),
            line: Some(3),
            ..Frame::default()
        };
        let sites = Sites {
            frames: vec![native(0x10, "empty"), of_python("step"), native(0x18, "empty")],
            sites: vec![site(&[0, 1]), site(&[2, 1])],
            ..sites
        };
        let lines: Vec<String> = sites.sites.iter().map(|site| place(&sites, site)).collect();
        assert_eq!(
            lines,
            ["step (t.py:3) < … < empty in solver+0x10", "step (t.py:3) < … < empty in solver+0x18"]
        );
    }
}
