"""A document as Markdown."""

from bignn.lab.report.document import Document, Figure, Listing, Section, Series, Table, Verdict
from bignn.lab.report.markdown import markdown


def test_a_document_as_markdown() -> None:
    verdict = Verdict("lower (p = 0.002)", "poor")
    columns = ("model", "ours | theirs", "verdict[^1]")
    row = ("a|b[^1][^2]", "81.2", verdict)
    table = Table("Accuracy", columns, (row,), ("Of a test.", "Of two."))
    bare = Table("", ("x",), (("1",),))
    figure = Figure("width", "By width", "lines", "x", "y", (Series("s", (1,), (2.0,)),))
    document = Document(
        "Results",
        "All of them.",
        (("30x", "smaller"),),
        (
            Section("one", "First", ("A `word`.", table, figure)),
            Section("two", "Second", (bare, Listing("a\n  b"))),
        ),
    )
    assert markdown(document, "pictures") == (
        "# Results\n\nAll of them.\n\n- **30x** smaller\n\n"
        "## First\n\nA `word`.\n\n"
        "Accuracy\n\n"
        "| model | ours \\| theirs | verdict<sup>1</sup> |\n|---|---|---|\n"
        "| a\\|b<sup>1,2</sup> | 81.2 | lower (p = 0.002) |\n\n"
        "<sup>1</sup> Of a test.  \n<sup>2</sup> Of two.\n\n"
        "![By width](pictures/width.svg)\n\nBy width\n\n"
        "## Second\n\n| x |\n|---|\n| 1 |\n\n"
        "```\na\n  b\n```\n"
    )


def test_without_headline_or_sections() -> None:
    assert markdown(Document("T", "L", (), ()), "f") == "# T\n\nL\n"
