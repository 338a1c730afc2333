"""The papers' memory methods, one module each. They hold ideas only: no weights library, no store, no other system."""
