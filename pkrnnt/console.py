"""What every command shares: exit statuses, printing, and errors as messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

DONE, DIFFERENT, BAD_INPUT = 0, 1, 2


def say(text: str) -> None:
    """Prints; a reader that closes the pipe (`| head`) is no error of ours."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(command: Callable[[], int]) -> int:
    """Runs a command; bad input becomes a message on standard error and exit status 2."""
    try:
        return command()
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
