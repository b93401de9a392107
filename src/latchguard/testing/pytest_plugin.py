"""The option `--latchguard-kernel` and the fixture `latchguard_kernel`. Imports nothing but pytest until used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from latchguard.testing.protocol import Kernel

__all__ = ["latchguard_kernel", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("latchguard").addoption(
        "--latchguard-kernel",
        metavar="KERNEL",
        help='the kernel for the fixture latchguard_kernel: stdio:"command" or python:module:factory',
    )


@pytest.fixture
def latchguard_kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """Give the kernel that `--latchguard-kernel` names; a test that asks for it is skipped without the option."""
    spec = request.config.getoption("--latchguard-kernel")
    if not spec:
        pytest.skip("needs --latchguard-kernel")
    from latchguard.testing.specs import make_kernel  # noqa: PLC0415  # heavy, and this is where it is used

    kernel = make_kernel(spec)
    yield kernel
    if close := getattr(kernel, "close", None):
        close()
