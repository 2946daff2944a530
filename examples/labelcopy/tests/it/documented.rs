//! The page that walks through the example shows its code.

const PAGE: &str = include_str!("../../../../docs/design-framework.md");
const CODE: [&str; 2] = [include_str!("../../src/lib.rs"), include_str!("../../src/list.rs")];

/// Lines without their indentation, which a page does not have.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).collect()
}

#[test]
fn each_piece_of_code_on_the_page_is_that_of_the_example() {
    let (_, section) = PAGE.split_once("## How to write a job").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks: Vec<&str> = section.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let pieces: Vec<_> = blocks.iter().flat_map(|block| block.split("\n\n")).map(lines).collect();
    assert!(pieces.len() > 10, "{pieces:#?}");
    for piece in pieces {
        let is_shown = CODE.iter().any(|code| lines(code).windows(piece.len()).any(|found| found == piece));
        assert!(is_shown, "docs/design-framework.md shows code that the example does not have:\n{}", piece.join("\n"));
    }
}
