from latchguard import Reason


def test_closed_list() -> None:
    """The reasons stand in stored states and reports under these names; there are no others."""
    assert list(Reason) == [
        "hash-mismatch",
        "role-mismatch",
        "kind-mismatch",
        "unassigned-ref",
        "holder-absent",
        "blocked-ref",
        "forbidden-kind",
        "no-identity",
        "unproven",
        "ambiguous",
        "gone",
        "superseded",
        "cleared",
    ]
