"""A Python package out of a contract: typed tasks, handlers, a client and a worker.

Invariants: the same contract gives the same bytes, with any version of any other tool; what is generated is
formatted, passes strict types, and needs nothing but Forebay; nothing is overwritten that wasn't generated.
"""

from forebay.contract.generating.files import Written, stale_files, write_package
from forebay.contract.generating.package import package_files

__all__ = ["Written", "package_files", "stale_files", "write_package"]
