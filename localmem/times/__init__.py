"""Times and amounts that texts name: resolved by the day they were said on, shown, asked for, and worked out.

Knows texts and days, no memory, no model and no file.
"""
