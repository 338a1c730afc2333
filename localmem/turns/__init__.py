"""What a turn is by its words: a question, a statement, a request to forget, a list, a pinned note."""
