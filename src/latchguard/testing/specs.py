"""Name a kernel on a command line: `stdio:"node kernel.js"` or `python:package.module:factory`."""

from __future__ import annotations

import shlex
import sys
from importlib import import_module
from pathlib import Path

from latchguard.core.errors import InvalidValueError, cut
from latchguard.testing.protocol import Kernel
from latchguard.testing.stdio import StdioKernel

__all__ = ["make_kernel"]

_FORMS = 'stdio:"command", or python:module:factory'


def make_kernel(spec: str, timeout_s: float = 5) -> Kernel:
    """Make the kernel that *spec* names.

    Args:
        spec: `stdio:` and a command, split as a shell would; or `python:`, a module, `:`, and what gives a kernel when
            it is called, looked for in the current directory too.
        timeout_s: how long to wait for an answer on stdio.

    Raises:
        InvalidValueError: *spec* is neither, or there is no such module or factory.
        ProtocolError: the command cannot be started or does not say hello.
    """
    scheme, _, rest = spec.partition(":")
    if scheme == "stdio" and (argv := shlex.split(rest)):
        return StdioKernel(argv, timeout_s)
    module_name, _, name = rest.partition(":")
    if scheme != "python" or not module_name or not name:
        raise InvalidValueError("kernel", _FORMS, cut(spec))
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = getattr(import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise InvalidValueError("kernel", "a module that can be imported, with the factory", str(error)) from error
    kernel: Kernel = factory()
    return kernel
