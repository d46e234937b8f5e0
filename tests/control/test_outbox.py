"""What is said to a node on one link, and when its list is the whole truth."""

from __future__ import annotations

from llmgw_core.control.outbox import MOST_UNHEARD, Outbox
from llmgw_core.model.catalog import Profile
from llmgw_core.model.launch import Launch, Offer, Place, RunShard, Stage, StopShard
from llmgw_core.wire.message import Offers, Ordered

OFFER = Offer("key", "qwen3", "/models/qwen3", "small", Profile(engine="sim"))
LAUNCH = Launch("qwen3/1", 1, OFFER, (Place("gpu-01", "192.0.2.1", 18000),))
PREPARE, RUN = RunShard(LAUNCH, 0, Stage.PREPARE), RunShard(LAUNCH, 0, Stage.RUN)
STOP = StopShard("qwen3/1", 1, 0)


def test_an_order_is_said_once_on_a_link() -> None:
    outbox = Outbox()
    outbox.order([PREPARE])
    outbox.order([PREPARE])
    assert outbox.take() == [Ordered(1, PREPARE)]
    outbox.order([PREPARE])
    assert not outbox.waiting


def test_the_next_order_for_the_same_shard_is_another_one() -> None:
    outbox = Outbox()
    for order in (PREPARE, RUN, STOP):
        outbox.order([order])
    assert outbox.take() == [Ordered(1, PREPARE), Ordered(2, RUN), Ordered(3, STOP)]


def test_a_list_is_the_whole_truth_only_when_the_last_order_was_heard() -> None:
    outbox = Outbox()
    assert not outbox.settled  # nothing was said yet of what runs
    outbox.shards = ()
    assert outbox.settled
    outbox.order([PREPARE])
    assert not outbox.settled  # said or not: it may run soon
    outbox.heard = 1
    assert outbox.settled


def test_what_is_over_is_forgotten_and_may_be_said_again() -> None:
    outbox = Outbox(shards=())
    outbox.order([STOP])
    outbox.heard = 1
    outbox.order([])
    outbox.order([STOP])
    assert [message.number for message in outbox.take() if isinstance(message, Ordered)] == [1, 2]


def test_nobody_is_told_of_no_offers_who_never_had_any() -> None:
    outbox, none, some = Outbox(), object(), object()
    outbox.tell_offers(none, Offers(()))
    assert not outbox.waiting
    outbox.tell_offers(some, Offers((OFFER,)))
    outbox.tell_offers(some, Offers((OFFER,)))
    assert outbox.take() == [Offers((OFFER,))]
    outbox.tell_offers(none, Offers(()))
    assert outbox.take() == [Offers(())]


def test_a_node_that_never_says_what_it_heard_fills_no_memory() -> None:
    """What is over is remembered only so long: it may be said twice, which changes nothing."""
    outbox = Outbox(shards=())
    for generation in range(MOST_UNHEARD + 2):
        outbox.order([StopShard("m/1", generation, 0)])
    first = StopShard("m/1", 0, 0)
    outbox.take()
    outbox.order([first])
    assert [message.order for message in outbox.take() if isinstance(message, Ordered)] == [first]
