"""What is shown of results: a document as data, as Markdown or as one page, and its figures."""
