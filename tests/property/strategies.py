"""Strategies that are made once for each choice of arguments: preparing a new one takes Hypothesis longer than a draw."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

integers = cache(st.integers)
sampled_from = cache(st.sampled_from)
permutations = cache(st.permutations)
booleans = cache(st.booleans)
sets = cache(st.sets)
one_of = cache(st.one_of)


@cache
def earlier(i: int, most: int) -> st.SearchStrategy[list[int]]:
    """Return up to `most` of the numbers below `i`, in order."""
    return st.sets(integers(0, i - 1), max_size=most).map(sorted) if i else st.just([])
