"""The OpenAI-compatible server with memory. Imported by `localmem serve` only; the web framework loads with it."""
