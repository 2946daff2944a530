//! How long the two examples are: lines of their `src` that are not blank and no comment, held against half of what the same
//! operators need with koprs.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::report::{Report, Row};

/// Half of the lines that the same operators have with koprs: an author who learns a framework should get that much for it.
const EXAMPLES: [(&str, &str, u32); 2] =
    [("lines of configmapsync", "configmapsync", 115), ("lines of multicontroller", "multicontroller", 222)];

pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    for (subject, name, most) in EXAMPLES {
        let lines = lines_in(&examples.join(name).join("src"))?;
        report.add(Row {
            subject,
            figure: lines.to_string(),
            against: most.to_string(),
            ratio: f64::from(lines) / f64::from(most),
            bound: Some(1.0),
        });
    }
    Ok(())
}

fn lines_in(folder: &Path) -> Result<u32> {
    let mut lines = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            lines += lines_in(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            lines += count(&fs::read_to_string(&path)?);
        }
    }
    Ok(lines)
}

fn count(source: &str) -> u32 {
    let says_something = |line: &&str| !line.is_empty() && !line.starts_with("//");
    u32::try_from(source.lines().map(str::trim).filter(says_something).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_have_not_grown() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        for (name, most) in [("configmapsync", 66), ("multicontroller", 151)] {
            let lines = lines_in(&examples.join(name).join("src")).unwrap();
            assert!(
                (1..=most).contains(&lines),
                "{name} has {lines} lines and may have {most}: is the framework at fault?"
            );
        }
    }

    #[test]
    fn blank_lines_and_comments_do_not_count() {
        assert_eq!(count("//! What.\n\n/// This.\nfn this() {\n    // So.\n    that(); // there\n}\n"), 3);
    }
}
