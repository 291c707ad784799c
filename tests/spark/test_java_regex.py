"""Java's regular expressions in Python. ``test_planning_as_builtin`` asks Java itself."""

from __future__ import annotations

import contextlib
import warnings

import pytest
from hypothesis import given, strategies as st

from pykclient.spark.java_regex import compile_java_regex


@pytest.mark.parametrize(
    ("pattern", "finds", "misses"),
    [
        ("ps", "sps", "s-p"),
        ("orders.*", "my-orders-1", "order"),
        ("^orders-[0-9]+$", "orders-17", "orders-17a"),
        (r"^\Qa.b\E.c$", "a.b-c", "a-b-c"),
        (r"\Qa.b", "xa.b", "aab"),
        (r"^(?<name>[ab]+)-\k<name>$", "ab-ab", "ab-a"),
        (r"^(a|b)-\1$", "b-b", "a-b"),
        ("^a++b", "aab", "b"),
        ("^(?>a+)b", "aab", "ac"),
        (r"^[\w-.]+$", "a_b-c.d", "a b"),
        (r"^[a-c-.]+$", "a-c.", "d"),
        ("^[]a]+$", "a", "b"),
        ("^[^]a]+$", "b", "a"),
        ("^[-a]+$", "a-", "b"),
        ("^[a-]+$", "a-", "b"),
        ("^[+--]$", "-", "/"),
        ("^[a||b~~&]+$", "a|b~&", "c"),
        (r"^[\]\.\-]+$", "].-", "a"),
        ("(?i)ORDERS", "my-Orders", "order"),
        ("^(?i:O)rders", "orders", "oRDERS"),
        ("(?<=a)b(?!c)", "abb", "abc"),
        (r"\A\x61\u0062\z", "ab", "abc"),
        (r"ps\Z", "sps", "spsx"),
        ("^a{2}b{1,}c{0,2}$", "aabb", "abc"),
        ("a}", "a}", "a"),
    ],
)
def test_compiled_pattern_matches_as_in_java(pattern: str, finds: str, misses: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of notations that Python may give another meaning
        compiled = compile_java_regex(pattern)
    assert compiled.search(finds)
    assert not compiled.search(misses)


def test_classes_match_only_ascii() -> None:
    assert not compile_java_regex(r"\w").search("é")
    assert not compile_java_regex("(?i)k").search("\N{KELVIN SIGN}")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\p{Alpha}+", r"the escape \p at position 0 is not supported"),
        (r"a\P{L}", r"the escape \P at position 1"),
        (r"[\p{L}]", r"the escape \p at position 1"),
        (r"\h", r"the escape \h"),
        (r"\R", r"the escape \R"),
        (r"[\b]", r"the escape \b"),
        (r"a\E", r"the escape \E"),
        (r"(a)\11", r"the escape \1 at position 3"),
        (r"\xZZ", r"the escape \x"),
        ("[a-z&&[^b]]", "an intersection of classes, at position 4"),
        ("[a[bc]]", "a class in a class"),
        ("a(?i)b", "a flag that is not at the beginning"),
        ("(?x)a b", "a flag that"),
        ("(?P<n>a)", "a group"),
        ("(?#no)a", "a group"),
        ("a{,2}", r"the brace at position 1 is no repetition such as {2} or {1,3}; write \{ for a brace"),
        ("*", "Python does not take it: nothing to repeat at position 0"),
        ("orders-(", "Python does not take it: missing )"),
        ("[a", "a class in brackets has no end"),
        ("[a\\", "it ends with a backslash"),
        ("a\\", "it ends with a backslash"),
        ("(?<=a+)b", "look-behind requires fixed-width pattern"),
        (r"\k<n>", "unknown group name 'n'"),
        ("[z-a]", "bad character range"),
        ("a{99999999999}", "Python does not take it"),
    ],
)
def test_unsupported_syntax_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the text is looked at below
        compile_java_regex(pattern)
    assert why in str(caught.value)


@given(st.text(alphabet="ab-.[](){}^$|*+?\\&~<>=!:,12QEkwdpixPn", max_size=20))
def test_any_pattern_compiles_or_is_refused(pattern: str) -> None:
    with warnings.catch_warnings(), contextlib.suppress(ValueError):
        warnings.simplefilter("error")
        compile_java_regex(pattern).search("a-b.2")
