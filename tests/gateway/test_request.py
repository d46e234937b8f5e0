"""What is read as a request, and what is refused because two readers could read it differently."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw_core.gateway.answer import Refusal
from llmgw_core.gateway.flow import PIECE_BYTES
from llmgw_core.gateway.request import HEAD_BYTES, MOST_FIELDS, RequestReader

POST = b"POST /v1/x HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
LIMIT = 1_000_000


def read(data: bytes, piece: int = PIECE_BYTES, refusal: Refusal | None = None) -> RequestReader:
    reader = RequestReader(LIMIT, lambda request: refusal)
    for begin in range(0, len(data), piece):
        reader.feed(data[begin : begin + piece])
    return reader


REFUSED = {
    # G27: lengths and chunks
    "two lengths": (400, POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd"),
    "the same length twice": (400, POST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"),
    "a list of lengths": (400, POST + b"Content-Length: 4, 4\r\n\r\nabcd"),
    "length, then chunks": (400, POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "chunks, then length": (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
    "length +4": (400, POST + b"Content-Length: +4\r\n\r\nabcd"),
    "length -4": (400, POST + b"Content-Length: -4\r\n\r\nabcd"),
    "length 0x4": (400, POST + b"Content-Length: 0x4\r\n\r\nabcd"),
    "length 4 4": (400, POST + b"Content-Length: 4 4\r\n\r\nabcd"),
    "no length": (400, POST + b"Content-Length: \r\n\r\nabcd"),
    "length of 70 bits": (400, POST + b"Content-Length: 999999999999999999999\r\n\r\n"),
    "a space before the colon": (400, POST + b"Content-Length : 4\r\n\r\nabcd"),
    "coding with a space before the colon": (400, POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    # other codings
    "xchunked": (501, POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "gzip, chunked": (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "chunked, gzip": (400, POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
    "chunked, identity": (400, POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    "identity": (501, POST + b"Transfer-Encoding: identity\r\n\r\n"),
    "chunked twice": (400, POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "chunked, then identity": (
        400,
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    ),
    "quoted": (501, POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n'),
    "a vertical tab": (400, POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "chunked, a tab": (501, POST + b"Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n"),
    "chunked, folded": (400, POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    "chunks in HTTP/1.0": (400, b"POST /v1/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    # line ends
    "bare CR in a value": (400, POST + b"X: a\rb\r\nContent-Length: 0\r\n\r\n"),
    "bare CR for an end": (400, POST + b"X: a\rContent-Length: 4\r\n\r\nabcd"),
    "bare LF": (400, b"POST /v1/x HTTP/1.1\nHost: x\n\n"),
    "bare LF in a head": (400, POST + b"X: a\nContent-Length: 0\r\n\r\n"),
    "folded": (400, POST + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n"),
    "folded length": (400, POST + b"Content-Length:\r\n 4\r\n\r\nabcd"),
    "first field folded": (400, b"POST /v1/x HTTP/1.1\r\n Host: x\r\nContent-Length: 0\r\n\r\n"),
    # chunks
    "chunk 0x4": (400, CHUNKED + b"0x4\r\nabcd\r\n0\r\n\r\n"),
    "chunk -4": (400, CHUNKED + b"-4\r\nabcd\r\n0\r\n\r\n"),
    "chunk 4 and a space": (400, CHUNKED + b"4 \r\nabcd\r\n0\r\n\r\n"),
    "a space and 4": (400, CHUNKED + b" 4\r\nabcd\r\n0\r\n\r\n"),
    "no size": (400, CHUNKED + b"\r\nabcd\r\n0\r\n\r\n"),
    "size of 68 bits": (400, CHUNKED + b"10000000000000004\r\nabcd\r\n0\r\n\r\n"),
    "chunk too long": (400, CHUNKED + b"4\r\nabcdX\r\n0\r\n\r\n"),
    "LF after a size": (400, CHUNKED + b"4\nabcd\r\n0\r\n\r\n"),
    "LF after a chunk": (400, CHUNKED + b"4\r\nabcd\n0\r\n\r\n"),
    "LF in an extension": (400, CHUNKED + b"4;a\nabcd\r\n0\r\n\r\n"),
    "CR in an extension": (400, CHUNKED + b"4;a\rb\r\nabcd\r\n0\r\n\r\n"),
    "a length in a trailer": (400, CHUNKED + b"4\r\nabcd\r\n0\r\nContent-Length: 9\r\n\r\n"),
    "a coding in a trailer": (400, CHUNKED + b"4\r\nabcd\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    # heads
    "no Host": (400, b"GET /v1/models HTTP/1.1\r\n\r\n"),
    "two Hosts": (400, b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    "NUL": (400, POST + b"X: a\0b\r\n\r\n"),
    "control character": (400, POST + b"X: a\x01b\r\n\r\n"),
    "a space in a name": (400, POST + b"X y: a\r\n\r\n"),
    "no name": (400, POST + b": a\r\n\r\n"),
    "no colon": (400, POST + b"Xy\r\n\r\n"),
    "unknown method": (400, b"FOO /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a method in small letters": (400, b"post /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a space in a target": (400, b"GET /v1/a b HTTP/1.1\r\nHost: x\r\n\r\n"),
    "control character in a target": (400, b"GET /v1/\x01 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "bytes over 127 in a target": (400, b"GET /v1/\xe9 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "HTTP/0.9": (505, b"GET /v1/models HTTP/0.9\r\nHost: a\r\n\r\n"),
    "no version": (505, b"GET /v1/models\r\n\r\n"),
    "HTTP/2.0": (505, b"GET /v1/models HTTP/2.0\r\nHost: a\r\n\r\n"),
    "HTTP/3.0": (400, b"GET /v1/models HTTP/3.0\r\nHost: a\r\n\r\n"),
    "the preface of HTTP/2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    # sizes
    "head over 64 KiB": (431, POST + b"X: " + b"a" * HEAD_BYTES + b"\r\n\r\n"),
    "endless head": (431, POST + b"X: a\r\n" * 40_000),
    "many fields": (431, POST + b"X: a\r\n" * MOST_FIELDS + b"\r\n"),
    "endless target": (431, b"GET /" + b"a" * 200_000),
    "endless extension": (431, CHUNKED + b"4;" + b"a" * 200_000),
    "endless trailer": (431, CHUNKED + b"0\r\n" + b"X: a\r\n" * 40_000),
    "a long body": (413, POST + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1)),
    "a very long body": (413, POST + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n"),  # G33
    "many chunks": (413, CHUNKED + (b"4000\r\n" + b"a" * 0x4000 + b"\r\n") * 62),
}


@pytest.mark.parametrize("piece", [PIECE_BYTES, 1, 7, 4096])
@pytest.mark.parametrize(("status", "data"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(status: int, data: bytes, piece: int) -> None:
    reader = read(data + GET, max(piece, len(data) // 100_000))
    assert reader.refusal is not None
    assert reader.refusal.status == status
    assert not reader.whole


BODY = b'{"model":"m"}'
TAKEN = {
    "a length": (POST + b"Content-Length: 13\r\n\r\n" + BODY, BODY),
    "a length, spaces": (POST + b"Content-Length:   13  \r\n\r\n" + BODY, BODY),
    "a length with zeros": (POST + b"Content-Length: 0000000000013\r\n\r\n" + BODY, BODY),
    "chunks": (CHUNKED + b"3\r\n" + BODY[:3] + b"\r\nA\r\n" + BODY[3:] + b"\r\n0\r\n\r\n", BODY),
    "chunks of a byte": (CHUNKED + b"".join(b"1\r\n%c\r\n" % each for each in BODY) + b"0\r\n\r\n", BODY),
    "extensions": (CHUNKED + b'd;a=b;c="d;e"\r\n' + BODY + b"\r\n0;x\r\n\r\n", BODY),
    "trailers": (CHUNKED + b"d\r\n" + BODY + b"\r\n0\r\nX-Sum: 1\r\n\r\n", BODY),
    "CHUNKED": (POST + b"TRANSFER-ENCODING: CHUNKED\r\n\r\nD\r\n" + BODY + b"\r\n0\r\n\r\n", BODY),
    "no body": (POST + b"\r\n", b""),
    "empty lines before": (b"\r\n\r\n" + POST + b"Content-Length: 0\r\n\r\n", b""),
    "bytes over 127 in a value": (POST + b"X: \xe9\r\n\r\n", b""),
    "HTTP/1.0": (b"POST /v1/x HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 13\r\n\r\n" + BODY, BODY),
    "an offer of HTTP/2": (
        POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        b"Content-Length: 13\r\n\r\n" + BODY,
        BODY,
    ),
    "an offer of HTTP/2, chunks": (
        POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nd\r\n" + BODY + b"\r\n0\r\n\r\n",
        BODY,
    ),
    "an offer of HTTP/2, no body": (POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", b""),
    "an offer without the protocol": (POST + b"Connection: Upgrade\r\nContent-Length: 13\r\n\r\n" + BODY, BODY),
    "a head of 60 KiB": (POST + b"X: " + b"a" * 60 * 1024 + b"\r\n\r\n", b""),
    "as many fields as may be": (POST + b"X: a\r\n" * (MOST_FIELDS - 1) + b"\r\n", b""),
    "a body at the limit": (POST + b"Content-Length: %d\r\n\r\n" % LIMIT + b"a" * LIMIT, b"a" * LIMIT),
}


@pytest.mark.parametrize("piece", [PIECE_BYTES, 1, 7, 4096])
@pytest.mark.parametrize(("data", "body"), TAKEN.values(), ids=TAKEN)
def test_what_is_taken_and_the_next_request_after_it(data: bytes, body: bytes, piece: int) -> None:
    reader = read(data + GET, max(piece, len(data) // 100_000))
    assert reader.refusal is None
    first, second = reader.whole
    assert (first.method, first.target, bytes(first.body)) == (b"POST", b"/v1/x", body)
    assert (second.method, second.target, bytes(second.body)) == (b"GET", b"/v1/models", b"")


def test_after_the_last_request_of_a_connection_nothing_is_read() -> None:  # G30
    reader = read(POST + b"Connection: close\r\nContent-Length: 0\r\n\r\n" + GET)
    assert [each.target for each in reader.whole] == [b"/v1/x"]
    assert reader.refusal is not None


def test_a_refused_request_is_known_though_it_came_whole() -> None:
    reader = read(b"GET /v1/models HTTP/1.1\r\nX-Request-ID: r1\r\n\r\n")
    assert reader.refused is not None
    assert (reader.refused.target, reader.refused.request_id) == (b"/v1/models", b"r1")


def test_what_the_head_refuses_is_read_on_where_that_is_little() -> None:
    refusal = Refusal(401, "no")
    small = read(POST + b"Content-Length: 13\r\n\r\n" + BODY + GET, refusal=refusal)
    assert [each.refusal for each in small.whole] == [refusal, refusal]
    for head in (b"Content-Length: 900000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
        assert read(POST + head, refusal=refusal).refusal == refusal
    assert read(POST + b"Content-Length: 13\r\nExpect: 100-continue\r\n\r\n", refusal=refusal).refusal == refusal


def test_a_long_body_in_small_chunks_is_no_long_head() -> None:
    reader = RequestReader(LIMIT, lambda request: None)
    reader.feed(CHUNKED)
    for _ in range(30_000):
        for piece in (b"1\r\n", b"a", b"\r\n"):
            reader.feed(piece)
    reader.feed(b"0\r\n\r\n")
    assert [len(each.body) for each in reader.whole] == [30_000]


def test_many_offers_of_another_protocol_in_one_piece_are_read() -> None:
    offer = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert len(read(offer * 3000).whole) == 3000


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (b"abc-1._:/+=", b"abc-1._:/+="),
        (b"a" * 128, b"a" * 128),
        (b"a" * 129, b""),
        (b"", b""),
        (b"a b", b""),
        (b'a"b', b""),
        (b"a\xe9", b""),
        (b"<script>", b""),
    ],
)
def test_a_request_id_is_kept_where_it_is_harmless(said: bytes, known: bytes) -> None:
    [request] = read(POST + b"X-Request-Id: " + said + b"\r\n\r\n").whole
    assert request.request_id == known


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        (b"Authorization: Bearer abc\r\n", b"abc"),
        (b"authorization: bearer  abc \r\n", b"abc"),
        (b"Authorization: Basic abc\r\n", b""),
        (b"X-Api-Key: abc\r\n", b"abc"),
        (b"X-Api-Key: other\r\nAuthorization: Bearer abc\r\n", b"abc"),
        (b"", b""),
    ],
)
def test_where_a_key_stands(fields: bytes, key: bytes) -> None:
    [request] = read(POST + fields + b"\r\n").whole
    assert request.key == key
    assert not request.fields


@given(st.binary(max_size=400), st.integers(1, 50))
@settings(deadline=None)
def test_arbitrary_bytes_are_read_or_refused_and_nothing_else(data: bytes, piece: int) -> None:
    read(data, piece)
    read(POST + data, piece)
    read(CHUNKED + data, piece)


_LINES = st.sampled_from(
    (
        *(b"Host: x", b"Content-Length: 3", b"Content-Length: 0", b"Transfer-Encoding: chunked", b"Connection: close"),
        *(b"Connection: upgrade", b"Upgrade: h2c", b"Expect: 100-continue", b"X: y", b"abc", b"3", b"0", b"", b"", b""),
        *(b"POST /v1/x HTTP/1.1", b"GET /v1/models HTTP/1.1", b"POST /v1/x HTTP/1.0", b"CONNECT a:1 HTTP/1.1"),
    )
)


def _seen(reader: RequestReader) -> tuple[list[tuple[bytes, bytes, bytes, bool]], bool]:
    return [
        (each.method, each.target, bytes(each.body), each.keep_alive) for each in reader.whole
    ], reader.refusal is not None


@given(st.lists(_LINES, max_size=30), st.integers(1, 40))
@settings(deadline=None, max_examples=400)
def test_where_bytes_are_split_changes_nothing(lines: list[bytes], piece: int) -> None:
    data = b"\r\n".join([b"POST /v1/x HTTP/1.1", b"Host: x", *lines])
    assert _seen(read(data)) == _seen(read(data, piece))


_BODIES = st.lists(st.binary(min_size=1, max_size=60), max_size=4)


@st.composite
def _request(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A valid request, and its body."""
    pieces = draw(_BODIES)
    body = b"".join(pieces)
    offer = draw(st.sampled_from([b"", b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Expect: 100-continue\r\n"]))
    if draw(st.booleans()):
        return POST + offer + b"Content-Length: %d\r\n\r\n" % len(body) + body, body
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces)
    return POST + offer + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", body


@given(st.lists(_request(), max_size=6), st.lists(st.integers(1, 80), min_size=1))
@settings(deadline=None)
def test_any_split_of_valid_requests_gives_these_requests(requests: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    data = b"".join(each for each, _ in requests)
    reader = RequestReader(LIMIT, lambda request: None)
    at = turn = 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        reader.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert reader.refusal is None
    assert [bytes(each.body) for each in reader.whole] == [body for _, body in requests]
