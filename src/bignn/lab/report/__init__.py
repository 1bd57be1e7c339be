"""Shows results: a document as data, written as Markdown or as one page, and its figures."""
