//! The blocks of code on a page, for tests that follow it: here and in `bins/konverge`.

/// A block of code, and the comment before it that says what it is for.
pub(crate) struct Block {
    pub(crate) purpose: String,
    pub(crate) is_commands: bool,
    pub(crate) text: String,
}

impl Block {
    /// The commands, each with the lines of output that the page shows. A command that ends with a backslash goes on in the next line.
    pub(crate) fn commands(&self) -> Vec<(String, Vec<&str>)> {
        let mut commands: Vec<(String, Vec<&str>)> = Vec::new();
        for line in self.text.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
                (None, Some((command, _))) if command.ends_with('\\') => {
                    command.pop();
                    command.push_str(line.trim_start());
                }
                (None, Some((_, output))) => output.push(line),
                (None, None) => panic!("a block of commands begins with {line:?}"),
            }
        }
        commands
    }
}

/// The blocks of a page. Those in lists are indented.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut purpose, mut lines) = (Vec::new(), String::new(), page.lines());
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(comment) = text.strip_prefix("<!-- ") {
            comment.strip_suffix(" -->").unwrap().clone_into(&mut purpose);
        } else if text.starts_with("```") {
            let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
            let block: Vec<_> = block.map(|line| line.get(indent..).unwrap_or_default()).collect();
            let purpose = std::mem::take(&mut purpose);
            blocks.push(Block { purpose, is_commands: text == "```console", text: block.join("\n") + "\n" });
        }
    }
    blocks
}

/// Whether the lines are in the output, in this order. `…` is any text.
pub(crate) fn shows(output: &str, lines: &[&str]) -> bool {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = output.lines().map(words);
    lines.iter().all(|line| rest.any(|shown| fits(&words(line), &shown)))
}

fn fits(pattern: &str, line: &str) -> bool {
    let Some((first, others)) = pattern.split_once('…') else { return pattern == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut others: Vec<_> = others.split('…').collect();
    let last = others.pop().unwrap_or_default();
    for part in others {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn a_pattern_fits_what_it_describes() {
    for (pattern, line, expected) in [
        ("first", "first", true),
        ("first", "first ", false),
        ("…", "", true),
        ("pod/first-… 0/1 …", "pod/first-ab 0/1 6s", true),
        ("pod/first-… 1/1 …", "pod/first-ab 0/1 6s", false),
        ("a…b", "ab", true),
        ("a…b", "a", false),
    ] {
        assert_eq!(fits(pattern, line), expected, "{pattern} {line}");
    }
    assert!(shows("one\n  two   three\nfour\n", &["two three", "four"]));
    assert!(!shows("one\ntwo\n", &["two", "one"]));
}

#[test]
fn blocks_in_lists_and_commands_of_several_lines_are_whole() {
    let page = "1. First:\n\n   <!-- file: a.yaml -->\n   ```yaml\n   a:\n     b: 1\n   ```\n\n   ```console\n   $ one \\\n       two\n   three\n   ```\n";
    let blocks = blocks(page);
    assert_eq!((blocks[0].purpose.as_str(), blocks[0].text.as_str()), ("file: a.yaml", "a:\n  b: 1\n"));
    assert!(!blocks[0].is_commands && blocks[1].is_commands);
    assert_eq!(blocks[1].commands(), [("one two".to_owned(), vec!["three"])]);
}
