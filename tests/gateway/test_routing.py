"""Where a request goes by the model it names, and what is said where it can go nowhere."""

import json
from urllib.parse import quote

import pytest
import trio

from llmgw_core.model.route import Absent, ModelRoute
from llmgw_core.testing.gateway_rig import Rig, a_gateway
from llmgw_core.testing.http_words import answer, get, post, wish

GOOD = answer()
NAMES = ["m", "org/model-7B", "a.b.c", "with space", "größe/模型", "m:latest", "../etc", 'q"uote\\']


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_is_found_exactly_and_nothing_like_it(name: str) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine, name=name)
        assert (await rig.ask(post(wish(name)))).status == 200
        assert (await rig.ask(post(json.dumps({"model": name}, ensure_ascii=False).encode()))).status == 200
        for like in (name + " ", name.upper() + "x", name[:-1], f" {name}"):
            found = await rig.ask(post(wish(like)))
            assert (found.status, found.error["code"], found.error["param"]) == (404, "model_not_found", "model")
        told = await rig.ask(get(f"/v1/models/{quote(name)}"))
        assert (told.status, told.json["id"]) == (200, name)


async def test_an_unknown_model_is_a_404_in_openais_form() -> None:  # G23
    async with a_gateway() as rig:
        await rig.route()
        found = await rig.ask(post(wish("nope")))
    assert found.status == 404
    assert found.error == {
        "message": "The model `nope` does not exist, or this key may not use it.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


@pytest.mark.parametrize(
    "body",
    [
        b'{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}',
        b'{"error":{"message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}}',
    ],
)
async def test_what_the_engine_says_of_a_model_passes(body: bytes) -> None:  # G23
    async with a_gateway() as rig:
        await rig.route(await rig.engine([answer(body, "404 Not Found")]))
        found = await rig.ask()
    assert (found.status, found.body) == (404, body)


ODD = (
    b'{ "x_vendor" : 1,"n":1e400, "i":18446744073709551616 ,"f":1.0,"dup":1,"dup":2,"deep":{"model":"gpt-4"},'
    b'\n"model": "%b", "t":"\\u00e9/\\/\xc3\xa9 \\"model\\":\\"gpt-4\\""}'
)


async def test_a_body_passes_as_it_came() -> None:  # G35
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        await rig.ask(post(ODD % b"m", "content-type: application/json"))
    assert engine.requests[0].body == ODD % b"m"


@pytest.mark.parametrize("alias", ["gpt-4", "org/other", "a b"])
async def test_an_alias_changes_the_models_bytes_and_no_others(alias: str) -> None:  # G35
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine, name="org/real", aliases=("gpt-4", "org/other", "a b"))
        assert (await rig.ask(post(ODD % alias.encode()))).status == 200
    assert engine.requests[0].body == ODD % b"org/real"
    assert engine.requests[0].values("content-length") == [str(len(ODD % b"org/real"))]


MULTIPART = "content-type: multipart/form-data; boundary=b"
FILE = b"\x00\xff\r\n--not-the-boundary\r\n" * 400_000


def upload(boundary: bytes, *parts: tuple[str, bytes]) -> bytes:
    whole = b"".join(
        b"--" + boundary + b"\r\nContent-Disposition: form-data; " + head.encode() + b"\r\n\r\n" + body + b"\r\n"
        for head, body in parts
    )
    return whole + b"--" + boundary + b"--\r\n"


def parts_of(model: bytes) -> dict[str, list[tuple[str, bytes]]]:
    audio = ('name="file"; filename="a.wav"\r\nContent-Type: audio/wav', FILE)
    named = ('name="model"', model)
    return {
        "model first": [named, audio],
        "model last": [audio, ('name="models"', b"gpt-4"), ('name="language"', b"gpt-4"), named],
        "type first": [('name="x"', b"1"), ('name="model"\r\nContent-Type: text/plain', model), audio],
    }


@pytest.mark.parametrize("order", parts_of(b""))
@pytest.mark.parametrize("model", ["org/real", "gpt-4"])
async def test_an_upload_goes_by_its_field_model(model: str, order: str) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine, name="org/real", aliases=("gpt-4",))
        body = upload(b"XyZ", *parts_of(model.encode())[order])
        request = post(body, "content-type: multipart/form-data; boundary=XyZ", path="/v1/audio/transcriptions")
        assert len(body) > 9_000_000
        assert (await rig.ask(request)).status == 200
    assert engine.requests[0].body == upload(b"XyZ", *parts_of(b"org/real")[order])


@pytest.mark.parametrize(
    ("body", "fields", "said", "param"),
    [
        (b"", [], "no JSON", None),
        (b"{", [], "no JSON", None),
        (b'{"model":"m"}x', [], "no JSON", None),
        (b"model=m", [], "no JSON", None),
        (b"[]", [], "must be a JSON object", "model"),
        (b"{}", [], "names no `model`", "model"),
        (b'{"model":1}', [], "must be a text", "model"),
        (b'{"model":null}', [], "must be a text", "model"),
        (b'{"model":"m","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", [], "nested too deeply", None),
        (b'{"model":"\xff"}', [], "no JSON", None),
        (b"x", ["content-type: multipart/form-data"], "no boundary", None),
        (b"x", [MULTIPART], "no field `model`", "model"),
        (b"--b\r\nnonsense\r\n\r\nm\r\n--b--\r\n", [MULTIPART], "cannot be read", None),
        (upload(b"b", ('name="x"', b"m")), [MULTIPART], "no field `model`", "model"),
        (upload(b"b", ('name="model"; filename="f"', b"m")), [MULTIPART], "no field `model`", "model"),
    ],
)
async def test_a_body_that_names_no_model_is_refused(
    body: bytes, fields: list[str], said: str, param: str | None
) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        found = await client.ask(post(body, *fields))
        assert found.status == 400
        assert said in found.error["message"]
        assert found.error["param"] == param
        assert (await client.ask(post())).status == 200


async def test_the_models_are_listed_once_each_with_what_is_known_of_them() -> None:  # G14
    async with a_gateway() as rig:
        engines = [await rig.engine([GOOD], name=f"b/{each}") for each in (1, 2)]
        rig.take(
            ModelRoute(
                "b", 1_700_000_000, ("c",), targets=tuple(each.target for each in engines), context_length=32768
            ),
            ModelRoute("a", absent=(Absent("a/1", "starting"),)),
        )
        found = await rig.ask(get())
    assert found.json["object"] == "list"
    first, second = found.json["data"]
    assert first == {
        "id": "a",
        "object": "model",
        "created": 0,
        "owned_by": "llmgw",
        "ready": False,
        "replicas": {"ready": 0, "wanted": 1},
    }
    assert second["id"] == "b"
    assert second["max_model_len"] == 32768
    assert second["aliases"] == ["c"]
    assert second["replicas"] == {"ready": 2, "wanted": 2}


async def test_where_no_replica_is_ready_the_reason_is_said() -> None:  # G25
    absent = (
        Absent("m/1", "starting", "loading", 1_800_000_000.0 - 40),
        Absent("m/2", "unplaced", "needs 8 GPUs, 4 free"),
    )
    async with a_gateway(retry_after_s=5) as rig:
        rig.take(ModelRoute("m", absent=absent))
        found = await rig.ask()
    assert (found.status, found.error["type"], found.error["code"]) == (503, "server_error", "no_replica_ready")
    assert found.error["message"] == (
        "no replica of m is ready: 1 starting (loading for 40 s), 1 unplaced (needs 8 GPUs, 4 free)"
    )
    assert found.fields["retry-after"] == "5"


async def test_before_there_is_a_table_all_is_unavailable_and_nothing_unknown() -> None:
    async with a_gateway() as rig:
        assert (await rig.ask()).error["code"] == "no_routes"
        assert (await rig.ask(get("/health"))).status == 503
        rig.take()
        assert (await rig.ask(get("/health"))).status == 200
        assert (await rig.ask()).status == 404


# Requests that are held.


async def test_a_held_request_is_served_as_soon_as_a_replica_is_ready() -> None:
    async with a_gateway(hold_s=30) as rig:
        await rig.route()
        clients = [await rig.client() for _ in range(5)]
        for each in clients:
            await each.send(post())
        await rig.until(lambda: _waiting(rig) == 5)
        rig.pass_time(20)
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        assert [(await each.answer()).status for each in clients] == [200] * 5
        assert _waiting(rig) == 0
        assert (await clients[0].ask(post())).status == 200


def _waiting(rig: Rig) -> int:
    return sum(len(model.waiting) for model in rig.worker._models.values())


async def test_a_held_request_is_refused_in_time_and_its_connection_goes_on() -> None:
    async with a_gateway(hold_s=30) as rig:
        rig.take(ModelRoute("m", absent=(Absent("m/1", "failed"),)))
        client = await rig.client()
        await client.send(post() + get())
        await rig.until(lambda: _waiting(rig) == 1)
        rig.pass_time(31)
        assert (await client.answer()).status == 503
        assert (await client.answer()).status == 200
        assert rig.counts()['llmgw_gateway_own_answers_total{status="503"}'] == 1


async def test_only_so_many_requests_are_held() -> None:
    async with a_gateway(hold_s=30, held_requests=2) as rig:
        await rig.route()
        clients = [await rig.client() for _ in range(2)]
        for each in clients:
            await each.send(post())
        await rig.until(lambda: _waiting(rig) == 2)
        assert (await rig.ask()).status == 503
        assert (await rig.ask(post(wish("nope")))).status == 404


async def test_a_held_request_whose_model_goes_is_refused_in_time() -> None:
    async with a_gateway(hold_s=30) as rig:
        await rig.route()
        client = await rig.client()
        await client.send(post())
        await rig.until(lambda: _waiting(rig) == 1)
        rig.take()
        rig.pass_time(31)
        assert (await client.answer()).status == 503


async def test_a_new_table_changes_nothing_for_a_request_on_its_way() -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        engine = await rig.engine([go_on, GOOD])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        await engine.until(lambda: engine.requests)
        rig.take()
        go_on.set()
        assert (await client.answer()).status == 200
        assert (await client.ask(post())).status == 404


async def test_requests_are_refused_while_too_many_bodies_are_held() -> None:
    async with a_gateway(bodies_bytes=1_000_000) as rig:
        go_on = trio.Event()
        engine = await rig.engine([go_on, GOOD])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post(wish(text="x" * 2_000_000)))
        await engine.until(lambda: engine.requests)
        rig.pass_time(1)
        found = await rig.ask()
        assert (found.status, found.error["code"]) == (503, "overloaded")
        go_on.set()
        assert (await client.answer()).status == 200
        rig.pass_time(1)
        assert (await rig.ask()).status == 200
