"""Comparison with golden values that counts what it compared; pytest prints the sums at the end."""

from collections import Counter

import numpy as np

AGREED = Counter()
"""{(operation, reference, "clone" or "full"): values}"""


def agree(path, operation, reference, found, wanted, note="", atol=None):
    """Asserts that all values agree (exactly, or within ``atol``) and counts them.

    ``path`` is the golden file or folder: copies in tests/golden count as the clone's.
    """
    wanted = np.asarray(wanted)
    if atol is None:
        np.testing.assert_array_equal(found, wanted, err_msg=note)
    else:
        np.testing.assert_allclose(found, wanted, atol=atol, rtol=0, err_msg=note)
    source = "clone" if "tests/golden" in path.as_posix() else "full"
    AGREED[operation, reference, source] += wanted.size


def summary():
    """Lines of the table: operation, reference, values that agree in the clone and in the full files."""
    rows = sorted({key[:2] for key in AGREED})
    return [
        f"| {operation} | {reference} | {AGREED[operation, reference, 'clone']:,} "
        f"| {AGREED[operation, reference, 'full']:,} |"
        for operation, reference in rows
    ]
