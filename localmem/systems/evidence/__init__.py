"""Evidence: the default memory. What was said, word for word, found from several sides and kept current.

Not a paper's method: it takes the turn as the unit (SeCom's turn-level baseline), several keys for a unit and rank
fusion, a cross-encoder, and the replacement of outdated statements (Keep Me Updated) together, and asks no LLM.
"""

from localmem.systems import NEVER, System
from localmem.systems.evidence.evidence_memory import EvidenceMemory, EvidenceOptions

SYSTEM = System("evidence", EvidenceOptions, EvidenceMemory, "what was said, kept current", NEVER, views=True)
