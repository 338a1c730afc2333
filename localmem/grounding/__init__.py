"""Whether a text is borne out by what it was made of, and what of a model's text may become memory."""
