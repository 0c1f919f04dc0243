"""What a program of ours makes is for its user alone, whatever the shell that started it says."""

import os
from typing import Final

# Of the modes that a program asks for, these bits are left out.
_OTHERS: Final = 0o077


def use_private_files() -> None:
    """Has this process make files 0600 and folders 0700; what is there keeps its mode."""
    os.umask(_OTHERS)
