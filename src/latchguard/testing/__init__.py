"""The harness for people who change kernels: the laws, a machine that looks for what breaks them, and broken kernels.

`docs/harness.md` is its page: the protocol, shims, a tutorial. This package needs the extra `testing`.
"""

from latchguard.testing import faults, planted, strategies
from latchguard.testing.checking import Conformance, NonConformanceError, check_kernel
from latchguard.testing.core_kernel import CoreKernel
from latchguard.testing.errors import ProtocolError
from latchguard.testing.laws import LAWS, Law, Violation
from latchguard.testing.machine import RestampReplayMachine
from latchguard.testing.protocol import CAPABILITIES, Kernel

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
    "Violation",
    "check_kernel",
    "faults",
    "planted",
    "strategies",
]
