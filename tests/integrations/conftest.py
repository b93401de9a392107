"""A strict provider for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.integrations.judge import Node
from tests.integrations.provider import Provider


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture
def provider(node: Node) -> Iterator[Provider]:
    with Provider(node) as provider:
        yield provider
