"""Columns with few distinct values."""

from hypothesis import given
from hypothesis import strategies as st

from forebay.model.columns import fold, fold_headers, refold, unfold

columns = st.lists(st.sampled_from("abcd"), min_size=1, max_size=30)


@given(columns)
def test_a_folded_column_unfolds_and_wastes_nothing(column: list[str]) -> None:
    table, index = fold(column)
    assert table == list(dict.fromkeys(column))
    assert (index is None) == (len(table) == 1)
    assert unfold(table, index, len(column)) == column


@given(columns, st.data())
def test_a_refolded_column_is_as_if_folded_afresh(column: list[str], data: st.DataObject) -> None:
    table, index = fold([*column, "x", "y"])
    assert index is not None
    start = data.draw(st.integers(0, len(column) - 1))
    assert refold(table, index[start:-2])[1] == fold(column[start:])[1]
    kept, rest = refold(table, index[start:-2])
    assert unfold(kept, rest, len(column) - start) == column[start:]


def test_a_table_follows_first_use_also_when_nothing_is_dropped() -> None:
    assert refold(["a", "b"], [1, 0]) == (["b", "a"], [0, 1])


def test_the_order_of_headers_does_not_matter() -> None:
    one, same, other = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}, {"a": "2", "b": "1"}
    assert fold_headers([one, other, same]) == ([one, other], [0, 1, 0])


def test_headers_fold_by_value_and_none_is_as_empty() -> None:
    one = {"flow": "a"}
    assert fold_headers([one, dict(one)]) == ([one], None)
    assert fold_headers([None, {}]) == (None, None)
    assert fold_headers([None, None]) == (None, None)
    assert fold_headers([{}, {}]) == (None, None)
    assert fold_headers([one, None, {}, one]) == ([one, {}], [0, 1, 1, 0])
