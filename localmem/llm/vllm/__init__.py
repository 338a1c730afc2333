"""What talks to a model server, and what keeps a server of our own alive."""
