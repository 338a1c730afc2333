"""Is the memory any good? Data, runs and measures. Receives ready agents; knows no system and no settings."""
