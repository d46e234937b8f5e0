from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.help.plain_text import clean, shown


def test_a_text_is_cleaned_of_what_printing_and_sending_did_to_it() -> None:
    assert clean("\ufeffa\x1b[1;36mb\x1b[0m\r\r\nc\rd\te\x1b]0;title\x07\u2028f\r\n") == "ab\nc\nd       e\u2028f\n"


def test_a_quoted_piece_is_printable_and_short() -> None:
    assert shown(" a\x00b\x1b[2J\ud800 \n") == "a?b?[2J?"
    assert shown("a" * 200, 5) == "aaaaa…"


@given(st.text())
def test_any_text(text: str) -> None:
    assert shown(text).isprintable()
    assert not {"\r", "\t"} & set(clean(text))
    assert clean(clean(text)).count("\n") == clean(text).count("\n")
