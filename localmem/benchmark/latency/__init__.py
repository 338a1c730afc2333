"""How long every stage of memory takes: real agents over a real backbone, each request timed and kept raw."""
