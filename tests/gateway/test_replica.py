"""Which replica gets a request."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.gateway.board import Board
from llmgw_core.gateway.replica import LONGEST_OUT_S, OUT_S, ServedModel, ServedReplica
from llmgw_core.model.route import ModelRoute, Target


def served(count: int) -> ServedModel:
    board = Board(1)
    model = ServedModel(ModelRoute("m"), 1)
    model.replicas = tuple(
        ServedReplica(Target(f"m/{each}", 1, "127.0.0.1", 1), each, each, board.rows[0], ())
        for each in range(1, count + 1)
    )
    return model


_LOADS = st.lists(st.integers(0, 5), min_size=1, max_size=8)


def _load(model: ServedModel, loads: list[int]) -> None:
    for replica, load in zip(model.replicas, loads, strict=True):
        for _ in range(load):
            replica.begin()


@given(_LOADS)
def test_the_least_loaded_of_those_that_take_connections(loads: list[int]) -> None:
    model = served(len(loads))
    _load(model, loads)
    for out in range(len(loads)):
        chosen = model.choose(0.0, (), b"")
        assert chosen is not None
        good = [each for each in model.replicas if not each.failures]
        assert chosen in good
        assert chosen.in_flight == min(each.in_flight for each in good)
        model.replicas[out].note_failure(0.0)
    assert model.choose(0.0, (), b"") is not None


@given(_LOADS, st.binary(min_size=1, max_size=5))
def test_who_meets_meets_at_one_place_that_is_not_loaded_more_than_others(loads: list[int], meeting: bytes) -> None:
    model = served(len(loads))
    liked = model.choose(0.0, (), meeting)
    assert liked is not None
    assert model.choose(0.0, (), meeting) is liked
    _load(model, loads)
    chosen = model.choose(0.0, (), meeting)
    assert chosen is not None
    mean = sum(loads) / len(loads)
    if chosen is liked:
        assert liked.in_flight <= 1.25 * mean + 2
    else:
        assert chosen.in_flight == min(loads)


@given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=20, unique=True), st.integers(2, 6))
def test_a_replica_that_goes_moves_nobody_who_met_elsewhere(meetings: list[bytes], count: int) -> None:
    model = served(count)
    before = {each: model.choose(0.0, (), each) for each in meetings}
    gone = model.replicas[-1]
    model.replicas = model.replicas[:-1]
    for each, place in before.items():
        assert place is gone or model.choose(0.0, (), each) is place


def test_none_is_tried_twice_for_one_request() -> None:
    model = served(2)
    first = model.choose(0.0, (), b"")
    assert first is not None
    second = model.choose(0.0, (first,), b"")
    assert second not in (None, first)
    assert model.choose(0.0, model.replicas, b"") is None


def test_equals_take_turns() -> None:
    model = served(3)
    chosen = [model.choose(0.0, (), b"") for _ in range(6)]
    assert sorted(chosen.count(each) for each in model.replicas) == [2, 2, 2]


def test_how_long_a_replica_is_out() -> None:
    [replica] = served(1).replicas
    outs = []
    for _ in range(7):
        replica.note_failure(100.0)
        outs.append(replica.out_until - 100)
    assert outs == [OUT_S, 2, 4, 8, LONGEST_OUT_S, LONGEST_OUT_S, LONGEST_OUT_S]
    replica.note_answer()
    assert (replica.out_until, replica.failures) == (0.0, 0)
