"""Which model a body names, and the body with that name changed: as a JSON reader would see it, and no other byte."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llmgw_core.gateway.body import PREFIX_BYTES, BadBody, affinity_key, read_model, rename_model
from llmgw_core.model.route import Affinity

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("model") | st.just('"model":"old"')
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=10,
)
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_EXTRA = st.dictionaries(_TEXTS.filter(lambda text: text != "model"), _VALUES, max_size=4)


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[bytes, str, dict[str, Any]]:
    """A body, the model it names, and what else it has."""
    name, before, after = draw(_NAMES), draw(_EXTRA), draw(_EXTRA)
    whole = {**before, "model": name, **after}
    whole.pop("", None)
    text = json.dumps(
        whole,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1])),
        separators=draw(st.sampled_from([(",", ":"), (" , ", " : ")])),
    )
    return text.encode(), name, whole


@given(_bodies())
@settings(deadline=None)
def test_the_model_is_read_as_any_reader_of_json_would(body: tuple[bytes, str, dict[str, Any]]) -> None:
    assert read_model(body[0], b"application/json") == body[1]


@given(_bodies(), _NAMES)
@settings(deadline=None)
def test_renaming_changes_the_model_and_nothing_else(body: tuple[bytes, str, dict[str, Any]], new: str) -> None:
    data, old, whole = body
    assume(old != new)
    renamed = rename_model(data, b"application/json", old, new)
    assert json.loads(renamed) == {**whole, "model": new}
    if data.count(msgspec.json.encode(old)) == 1:
        assert renamed == data.replace(msgspec.json.encode(old), msgspec.json.encode(new))


@pytest.mark.parametrize(
    ("body", "renamed"),
    [
        (b'{"model":"old"}', b'{"model":"new/1"}'),
        (b' {\n"model"\t:\r\n"old" } ', b' {\n"model"\t:\r\n"new/1" } '),
        (b'{"model":"ol\\u0064"}', b'{"model":"new/1"}'),
        (b'{"mo\\u0064el":"old"}', b'{"mo\\u0064el":"new/1"}'),
        (b'{"a":{"model":"old"},"model":"old"}', b'{"a":{"model":"old"},"model":"new/1"}'),
        (b'{"model":"old","a":{"model":"old"}}', b'{"model":"new/1","a":{"model":"old"}}'),
        (b'{"model":"old","a":["model","old"]}', b'{"model":"new/1","a":["model","old"]}'),
        (b'{"a":"\\"model\\":\\"old\\"","model":"old"}', b'{"a":"\\"model\\":\\"old\\"","model":"new/1"}'),
        (b'{"a":"model","model":"old"}', b'{"a":"model","model":"new/1"}'),
        (b'{"model":"first","model":"old"}', b'{"model":"first","model":"new/1"}'),
        (b'{"model":"old","x":"\\\\"}', b'{"model":"new/1","x":"\\\\"}'),
        (b'{"x":1e400,"model":"old","y":-0.0}', b'{"x":1e400,"model":"new/1","y":-0.0}'),
    ],
)
def test_renaming(body: bytes, renamed: bytes) -> None:
    assert rename_model(body, b"", "old", "new/1") == renamed


def test_a_body_of_many_models_is_refused_at_once() -> None:
    body = b'{"x":[' + b'{"model":"old"},' * 100_000 + b'1],"model":"old"}'
    with pytest.raises(BadBody, match="use the name new"):
        rename_model(body, b"", "old", "new")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_name_a_model_or_are_refused(body: bytes) -> None:
    for kind in (b"", b"application/json", b"multipart/form-data; boundary=b", b"multipart/form-data"):
        for data in (body, b'{"model":' + body + b"}", b"--b\r\n" + body + b"\r\n--b--\r\n"):
            with suppress(BadBody):
                assert read_model(data, kind) or kind.endswith(b"json") or not kind


@pytest.mark.parametrize(
    "content_type",
    [
        b"multipart/form-data; boundary=abc",
        b'multipart/form-data; boundary="abc"',
        b"Multipart/Form-Data; charset=utf-8; Boundary=abc ",
        b"multipart/form-data;boundary=abc;charset=utf-8",
    ],
)
def test_boundaries(content_type: bytes) -> None:
    body = b'--abc\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--abc--\r\n'
    assert read_model(body, content_type) == "m"
    assert rename_model(body, content_type, "m", "n") == body.replace(b"\r\nm\r\n", b"\r\nn\r\n")


def test_a_boundary_may_have_odd_signs() -> None:
    body = b'--a,b;c d\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--a,b;c d--\r\n'
    assert read_model(body, b'multipart/form-data; boundary="a,b;c d"') == "m"


# Who should meet.


def _key(affinity: Affinity, session: bytes = b"", **body: Any) -> bytes:
    return affinity_key(json.dumps({"model": "m", **body}).encode(), affinity, session)


def test_what_says_of_a_session_and_what_does_not() -> None:
    assert _key(Affinity.SESSION, b"s", user="u") == b"s"
    assert _key(Affinity.SESSION, user="u") == b"u"
    assert _key(Affinity.SESSION, user="u", prompt_cache_key="k") == b"k"
    assert _key(Affinity.SESSION) == _key(Affinity.SESSION, user={"a": 1}) == _key(Affinity.SESSION, user=3) == b""
    assert _key(Affinity.NONE, b"s", user="u") == b""
    assert affinity_key(b"no json", Affinity.SESSION, b"") == affinity_key(b"no json", Affinity.PREFIX, b"") == b""


def test_what_says_of_a_prefix() -> None:
    talk = [{"role": "system", "content": "x" * 2000}]
    assert _key(Affinity.PREFIX, messages=talk) == _key(
        Affinity.PREFIX, messages=[*talk, {"role": "user"}], stream=True
    )
    assert len(_key(Affinity.PREFIX, messages=talk)) == PREFIX_BYTES
    assert _key(Affinity.PREFIX, prompt="a") != _key(Affinity.PREFIX, prompt="b")
    assert _key(Affinity.PREFIX, input=[1, 2]) == b"[1, 2]"
    assert _key(Affinity.PREFIX, messages=[], prompt="p") in (b"[]", b'"p"')
    assert _key(Affinity.PREFIX) == b""
