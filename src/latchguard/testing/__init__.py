"""The harness for people who change kernels: the laws, a machine that looks for what breaks them, and broken kernels.

`docs/harness.md` is its page: the protocol, shims, a tutorial. This package needs the extra `testing`. Names are loaded
when they are first used, so that the pytest plugin costs nothing in runs that do not use it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latchguard.testing import faults, planted, strategies
    from latchguard.testing.checking import Conformance, NonConformanceError, check_kernel
    from latchguard.testing.core_kernel import CoreKernel, report_replay, report_state
    from latchguard.testing.errors import ProtocolError
    from latchguard.testing.laws import LAWS, Law, Violation
    from latchguard.testing.machine import RestampReplayMachine
    from latchguard.testing.protocol import CAPABILITIES, Kernel
    from latchguard.testing.scope import check_small_scope
    from latchguard.testing.stdio import StdioKernel
    from latchguard.testing.store_kernel import check_store

_HOMES = {
    "checking": ("Conformance", "NonConformanceError", "check_kernel"),
    "core_kernel": ("CoreKernel", "report_replay", "report_state"),
    "errors": ("ProtocolError",),
    "laws": ("LAWS", "Law", "Violation"),
    "machine": ("RestampReplayMachine",),
    "protocol": ("CAPABILITIES", "Kernel"),
    "scope": ("check_small_scope",),
    "stdio": ("StdioKernel",),
    "store_kernel": ("check_store",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CAPABILITIES",
    "LAWS",
    "Conformance",
    "CoreKernel",
    "Kernel",
    "Law",
    "NonConformanceError",
    "ProtocolError",
    "RestampReplayMachine",
    "StdioKernel",
    "Violation",
    "check_kernel",
    "check_small_scope",
    "check_store",
    "faults",
    "planted",
    "report_replay",
    "report_state",
    "strategies",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is not None:
        value = globals()[name] = getattr(import_module(f"latchguard.testing.{home}"), name)
        return value
    if name in __all__:
        return import_module(f"latchguard.testing.{name}")
    raise AttributeError(f"module 'latchguard.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
