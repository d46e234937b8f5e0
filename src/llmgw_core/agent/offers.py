"""The agent's answers to what it may be asked to run: whether its engines take the commands, and the weights are there.

Rules: answered again whenever the offers or the engines change, and the weights every half minute; a directory that
blocks delays no other answer, of offers that come meanwhile neither; what is found at about the same time is said
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import trio
from attrs import define, evolve, field

from llmgw_core.agent.judging import lacking_table, refusal_of
from llmgw_core.agent.weights import Weights
from llmgw_core.checking import program_of
from llmgw_core.discovery.engines import Inspected
from llmgw_core.engine import Command, LaunchOrder, Shard
from llmgw_core.engines import Engines
from llmgw_core.errors import ImpossibleReplica, LlmgwError
from llmgw_core.model.launch import Offer, OfferChecked
from llmgw_core.plan.profile import stand_in_replica
from llmgw_core.plan.sidecar import placed_profile, stand_in_ports

WEIGHTS_EVERY_S = 30.0
TOGETHER_S = 0.05
_STAND_IN_KEY = "llmgw-stand-in-key"
_STAND_IN_DIRECTORY = "/run/llmgw/shard"


@define(eq=False)
class OfferBook:
    engines: Engines
    weights: Weights
    inspected: Callable[[], tuple[Inspected, ...]]
    tell: Callable[[tuple[OfferChecked, ...]], None]
    _offers: tuple[Offer, ...] = ()
    _answers: dict[str, OfferChecked] = field(factory=dict)
    """By key, without the weights. Another one for each change of the engines: what is being judged is then late."""
    _troubles: dict[str, str] = field(factory=dict)
    _followed: dict[str, trio.CancelScope] = field(factory=dict)
    """By source."""
    _changed: trio.Event = field(factory=trio.Event)
    _asked_anew: trio.Event = field(factory=trio.Event)

    def offer(self, offers: tuple[Offer, ...]) -> None:
        self._offers = offers
        self._ask_anew()

    def engines_changed(self) -> None:
        self._answers = {}
        self._ask_anew()

    def _ask_anew(self) -> None:
        self._asked_anew.set()
        self._asked_anew = trio.Event()
        self._changed.set()

    async def watch(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                self._changed = trio.Event()
                await self._answer(self._offers, self._answers, nursery)
                await self._changed.wait()
                await trio.sleep(TOGETHER_S)

    async def _answer(self, offers: tuple[Offer, ...], answers: dict[str, OfferChecked], nursery: trio.Nursery) -> None:
        self._follow_all({offer.source for offer in offers}, nursery)
        await self._ask_engines(offers, answers)
        self._say(offers, answers)

    def _follow_all(self, sources: set[str], nursery: trio.Nursery) -> None:
        for source in self._followed.keys() - sources:
            self._followed.pop(source).cancel()
            self._troubles.pop(source, None)
        for source in sources - self._followed.keys():
            self._followed[source] = trio.CancelScope()
            nursery.start_soon(self._follow, source, self._followed[source])
        self.weights.forget_all_but(sources)

    async def _follow(self, source: str, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                asked_anew = self._asked_anew
                trouble = await self.weights.trouble(source)
                if self._troubles.get(source) != trouble:
                    self._troubles[source] = trouble
                    self._changed.set()
                with trio.move_on_after(WEIGHTS_EVERY_S):
                    await asked_anew.wait()

    async def _ask_engines(self, offers: tuple[Offer, ...], answers: dict[str, OfferChecked]) -> None:
        found = {each.found.engine: each for each in self.inspected()}
        unseen = {plugin.info.name for plugin in self.engines.loaded} - found.keys()
        for offer in offers:
            if offer.key not in answers and offer.profile.engine not in unseen:
                # Building and judging takes a while for a big help, and heartbeats do not wait for it.
                check = partial(check_offer, self.engines, offer, found.get(offer.profile.engine))
                answers[offer.key] = await trio.to_thread.run_sync(check, abandon_on_cancel=True)
        for key in answers.keys() - {offer.key for offer in offers}:
            del answers[key]

    def _say(self, offers: tuple[Offer, ...], answers: dict[str, OfferChecked]) -> None:
        """Only of what was looked at: not yet is no answer."""
        self.tell(
            tuple(
                evolve(answers[offer.key], weights=self._troubles[offer.source])
                for offer in offers
                if offer.source in self._troubles and offer.key in answers
            )
        )


def check_offer(engines: Engines, offer: Offer, inspected: Inspected | None) -> OfferChecked:
    """The answer of the engine that is installed; its weights are looked at elsewhere."""
    try:
        info = engines.info(offer.profile.engine)
        if inspected is None:
            return OfferChecked(offer.key, refusal=f"{info.name} was not looked at yet")
        ranks = range(min(max(offer.profile.nodes, 1), 2))
        lacking = lacking_table(info, inspected, {program_of(info, rank) for rank in ranks})
        if lacking:
            return OfferChecked(offer.key, refusal=lacking)
        commands = _stand_in_commands(engines, offer, inspected)
        refusal = refusal_of(engines, info.name, inspected, commands)
        takes_key = offer.profile.engine_key and not refusal and _takes_key(engines, offer, inspected, commands)
    except ImpossibleReplica as error:
        return OfferChecked(offer.key, refusal="; ".join(error.reasons))
    except LlmgwError as error:
        return OfferChecked(offer.key, refusal=str(error))
    return OfferChecked(
        offer.key,
        refusal=refusal,
        workers_first=any(each.launch_order is LaunchOrder.WORKERS_FIRST for each in commands),
        head_first=any(each.stop.head_first for each in commands),
        takes_key=takes_key,
    )


def _takes_key(engines: Engines, offer: Offer, inspected: Inspected, without: Sequence[Command]) -> bool:
    """Whether its engine can be told to ask for a key: not where others on the node would read it, or it is refused."""
    try:
        commands = _stand_in_commands(engines, offer, inspected, _STAND_IN_KEY)
        if commands[0] == without[0] or any(_STAND_IN_KEY in word for each in commands for word in each.argv):
            return False
        return not refusal_of(engines, offer.profile.engine, inspected, commands)
    except LlmgwError:
        return False


def _stand_in_commands(engines: Engines, offer: Offer, inspected: Inspected, key: str = "") -> tuple[Command, ...]:
    """Of the head and of one worker, on nodes that are not there."""
    profile = placed_profile(offer.profile, stand_in_ports(offer.profile), _STAND_IN_DIRECTORY)
    replica = stand_in_replica(profile, offer.model, offer.model, offer.source, key)
    info = engines.info(offer.profile.engine)
    commands = []
    for shard in replica.shards[:2]:
        program = program_of(info, shard.node_rank)
        slots = list(replica.slots)
        with suppress(KeyError):
            slots[shard.node_rank] = evolve(shard.slot, executable=inspected.executables[program])
        placed = Shard(evolve(replica, slots=tuple(slots)), shard.node_rank)
        commands.append(engines.build_command(placed, inspected.tables.get(program)))
    return tuple(commands)
