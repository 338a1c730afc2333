"""Trainers: each module has a recipe and a function `train` that turns a job into a run's folder."""
