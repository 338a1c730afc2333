"""The trainers, one module a kind of model."""
