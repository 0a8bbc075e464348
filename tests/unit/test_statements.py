"""Statements are written once and mean the same on both databases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.engine import for_postgres, for_sqlite, listed, restored, storable

SQL = "SELECT a FROM t WHERE b = :b AND c IN (:c_0, :c_1) AND d = 'x:y' ORDER BY a FOR UPDATE"


def test_row_locks_are_for_postgres_only():
    """SQLite has one writer and no such clause."""
    assert for_sqlite(SQL) == SQL.removesuffix(" FOR UPDATE")
    assert for_postgres(SQL).endswith(" FOR UPDATE")


def test_parameters_take_the_drivers_form():
    """Names become the driver's style; a colon inside a word is no parameter."""
    assert for_postgres(SQL) == (
        "SELECT a FROM t WHERE b = %(b)s AND c IN (%(c_0)s, %(c_1)s) AND d = 'x:y' ORDER BY a FOR UPDATE"
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], ("(NULL)", {})), (["x", "y"], ("(:n_0, :n_1)", {"n_0": "x", "n_1": "y"}))],
)
def test_lists_have_a_parameter_each(values: list[str], expected: tuple[str, dict[str, str]]):
    """An empty list matches nothing."""
    assert listed("n", values) == expected


@given(st.dictionaries(st.sampled_from("abc"), st.text(st.characters(codec=None)) | st.integers() | st.none()))
def test_texts_come_back_from_their_columns(params: dict[str, object]):
    """Escaping on the way in and restoring on the way out is the identity."""
    assert restored(tuple(storable(params).values())) == tuple(params.values())


def test_parameters_without_anything_to_escape_are_not_copied():
    """The hot path pays for a look, not for a copy."""
    params = {"a": "plain", "b": "ä\U0001f9f5", "c": 1}
    assert storable(params) is params
