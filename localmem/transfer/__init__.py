"""Moving in and out: conversations and memories of other programs become sessions, and sessions become files.

`import_file` recognises the format of a file, `read_sessions` returns its sessions alone. Depends on no store and no
model. The formats are those that the programs publish, each described in its module.
"""

from localmem.transfer.drafts import FileDefaults
from localmem.transfer.import_file import Imported, import_file, read_sessions

__all__ = ["FileDefaults", "Imported", "import_file", "read_sessions"]
