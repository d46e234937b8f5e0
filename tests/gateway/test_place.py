"""Places on the board: kept, given back, never two for one nor one for two."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.gateway.board import ATTEMPTS, KEYS
from llmgw_core.gateway.place import Places, assign_places, attempt_name
from llmgw_core.model.route import Absent, ModelRoute, RouteTable, Target, UserKey

_TARGETS = st.builds(Target, st.sampled_from(["m/1", "m/2", "m/3", "n/1"]), st.integers(1, 3), st.just("a"), st.just(1))
_TABLES = st.builds(
    lambda version, targets, keys: RouteTable(
        version,
        (ModelRoute("m", targets=tuple(targets), absent=(Absent("m/9", "failed"),)),),
        tuple(UserKey(each, "00") for each in keys),
    ),
    st.integers(1, 9),
    st.lists(_TARGETS, max_size=4),
    st.sets(st.sampled_from("abc")),
)
_STEPS = st.lists(st.tuples(_TABLES, st.booleans()), max_size=8)


@given(_STEPS)
def test_who_has_a_place_keeps_it_and_has_it_alone(steps: list[tuple[RouteTable, bool]]) -> None:
    places = Places()
    for table, linger in steps:
        before = places
        places = assign_places(before, table, before.attempts if linger else ())
        wanted = {attempt_name(target) for model in table.models for target in model.targets}
        assert wanted <= set(places.attempts)
        assert not linger or set(before.attempts) <= set(places.attempts)
        assert linger or set(places.attempts) == wanted
        for old, new in (
            (before.attempts, places.attempts),
            (before.keys, places.keys),
            (before.replicas, places.replicas),
            (before.models, places.models),
        ):
            assert all(new[name] == place for name, place in old.items() if name in new)
            assert len(set(new.values())) == len(new)
            assert 0 not in new.values()
        assert {key.id for key in table.keys} <= set(places.keys)
        assert "m/9" in places.replicas


def test_who_finds_no_place_has_none_of_its_own() -> None:
    targets = tuple(Target(f"m/{each}", 1, "a", 1) for each in range(ATTEMPTS + 5))
    places = assign_places(Places(), RouteTable(1, (ModelRoute("m", targets=targets),)), ())
    assert len(places.attempts) == ATTEMPTS - 1


def test_places_of_what_is_gone_are_given_away_last() -> None:
    def keys(begin: int, count: int) -> RouteTable:
        return RouteTable(1, (), tuple(UserKey(f"k{each}", "00") for each in range(begin, begin + count)))

    places = assign_places(Places(), keys(0, KEYS - 2), ())
    places = assign_places(places, keys(KEYS - 2, 1), ())
    assert "k0" in places.keys
    places = assign_places(places, keys(KEYS - 1, 2), ())
    assert len(set(places.keys.values())) == KEYS - 1
    assert {f"k{KEYS - 1}", f"k{KEYS}"} <= set(places.keys)
