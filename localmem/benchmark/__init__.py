"""Measurements of localmem itself: how fast, how many at a time, on which machine. Results carry all that made them."""
