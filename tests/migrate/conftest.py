"""A database per test: SQLite, PostgreSQL, MariaDB."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from latchguard.store.connections import make_engine
from tests.store.conftest import SERVERS, make_database


@pytest.fixture(params=["sqlite", *SERVERS])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine on a database without a single table."""
    urls = iter([f"sqlite:///{tmp_path}/own.db"]) if request.param == "sqlite" else make_database(request.param)
    engine = make_engine(next(urls))
    yield engine
    engine.dispose()
    list(urls)


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine on a SQLite file without a single table, for what no server does otherwise."""
    engine = make_engine(f"sqlite:///{tmp_path}/own.db")
    yield engine
    engine.dispose()
