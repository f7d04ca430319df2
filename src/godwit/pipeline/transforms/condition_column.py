"""Converts a condition to a Spark column, expression by expression: Spark never parses a user's text."""

from __future__ import annotations

from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import TYPE_CHECKING, Final, assert_never

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.pipeline.query.condition import Both, Compare, Either, Expression, Not, OneOf, Search

if TYPE_CHECKING:
    from pyspark.sql import Column

_RELATIONS: Final = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def condition_column(expression: Expression) -> Column:
    """Return a column that is true or false for every row, never null: rows that cannot be compared are false."""
    match expression:
        case Compare():
            return _compare(expression)
        case OneOf(column, values):
            return F.coalesce(F.col(column).isin(*values), F.lit(False))  # noqa: FBT003 - a literal of Spark's
        case Search(column, how, text):
            method = {"contains": "contains", "startsWith": "startswith", "endsWith": "endswith"}[how]
            return F.coalesce(getattr(F.col(column), method)(F.lit(text)), F.lit(False))  # noqa: FBT003
        case Not(inner):
            return ~condition_column(inner)
        case Both(parts):
            return reduce(and_, map(condition_column, parts))
        case Either(parts):
            return reduce(or_, map(condition_column, parts))
        case _:
            assert_never(expression)


def _compare(comparison: Compare) -> Column:
    column = F.col(comparison.column)
    if comparison.value is None:
        return column.isNull() if comparison.relation == "==" else column.isNotNull()
    answer: Column = _RELATIONS[comparison.relation](column, F.lit(comparison.value))
    # A row without a value is unequal to every value.
    return F.coalesce(answer, F.lit(comparison.relation == "!="))
