"""Cutting a session into topical segments: by the backbone, by trained models, by TextTiling."""
