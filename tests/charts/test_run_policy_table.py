"""The table of the admission policy, against the CRDs of every supported version of KubeRay and JobSet."""

from __future__ import annotations

from tests.charts import schemas
from tests.charts.run_policy_table import KINDS, fields, table
from tests.charts.schemas import META, _definition
from tests.tools import openapi

BOUNDS = ("shape", "is", "items", "check")
"""The keys of a row that limit what is in a map or a list."""


def versions() -> list[tuple[str, str]]:
    return [(kind, version) for kind, api in KINDS.items() for version in schemas.versions(api.partition("/")[0])]


def test_every_field_is_allowed_with_a_reason_or_refused() -> None:
    """A map or list that is allowed has a shape, or a check of what is in it, so that no field below is overlooked."""
    for kind, version in versions():
        found = list(fields(version, kind))
        allowed = [(field, field.row) for field in found if field.row is not None]
        assert len(allowed) > 90, (kind, version)
        assert len(allowed) < len(found)
        unchecked = [
            field.keys[-1]
            for field, row in allowed
            if field.schema.get("type") in ("object", "array") and not any(row.get(key) for key in BOUNDS)
        ]
        # Capabilities that are dropped.
        assert set(unchecked) <= {"drop"}, (kind, version)


def test_no_row_is_about_a_field_that_no_version_has() -> None:
    found = {(field.shape, field.keys[-1]) for kind, version in versions() for field in fields(version, kind)}
    # metadata of the objects is not in the CRDs.
    listed = {
        (name, field)
        for name, shape in table()["shapes"].items()
        if name != "object"
        for part in ("fields", "refused")
        for field in shape.get(part, {})
    }
    assert listed - found == set()


def test_the_metadata_of_objects() -> None:
    known = set(_definition(list(openapi.VERSIONS)[-1], META)["properties"])
    shape = table()["shapes"]["object"]
    assert known == set(shape["fields"]) | set(shape["refused"])


def test_the_rows_are_complete() -> None:
    """A check has a sentence for its message, a reason ends in a full stop, and no field is allowed and refused."""
    for name, shape in table()["shapes"].items():
        assert not set(shape["fields"]) & set(shape.get("refused", {})), name
        for field, row in shape["fields"].items():
            assert row["why"].endswith("."), (name, field)
            assert ("check" in row) == ("message" in row), (name, field)
            assert set(row) <= {
                "why",
                "check",
                "message",
                "key",
                "required",
                "shape",
                "is",
                "items",
                "most",
                "entries",
                "size",
            }
        for field, why in shape.get("refused", {}).items():
            assert why.endswith("."), (name, field)
