"""Settings out of a file, the environment and flags, in rising order.

Invariants: every fault is reported, not only the first; each value remembers where it came from;
nothing that is shown or said holds a secret; the environment is read nowhere else.
"""

from forebay.app.configuring.faults import Fault, misconfigured
from forebay.app.configuring.files import file_faults
from forebay.app.configuring.flags import declare_settings, load_from, read_from
from forebay.app.configuring.reading import Loaded, Reading, load_settings, read_settings
from forebay.app.configuring.schema import ORIGINAL_VARIABLES, OTHER_VARIABLES, SETTINGS, Setting

__all__ = [
    "ORIGINAL_VARIABLES",
    "OTHER_VARIABLES",
    "SETTINGS",
    "Fault",
    "Loaded",
    "Reading",
    "Setting",
    "declare_settings",
    "file_faults",
    "load_from",
    "load_settings",
    "misconfigured",
    "read_from",
    "read_settings",
]
