"""The table that every gateway goes by, and what each of them has taken of it.

Rules: a table is whole, and its version only grows, over restarts too; whoever subscribes gets the latest at once, and
of those that come while it is busy only the last; a gateway that went is remembered until nobody has to wait for it any
more; nothing is published before it is known what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

import trio
from attrs import define, evolve, field

from llmgw_core.errors import LlmgwError
from llmgw_core.model.route import Lingering, ModelRoute, RouteTable, UserKey
from llmgw_core.plan.route import attempts_of
from llmgw_core.plan.world import Attempt, ObservedGateway
from llmgw_core.wire.message import Routes
from llmgw_core.wire.text import encode

TELL_S = 10.0
"""So long a gateway is still known by its name after its silence was borne no more."""
MOST_LINGERING = 10_000
Who = tuple[str, str]
"""A gateway's name and instance."""


class NoMoreTables(LlmgwError):
    """The subscription has ended."""


@define(eq=False)
class Published:
    """One table, and what is made of it once for all."""

    table: RouteTable
    at: float
    """Seconds since 1970."""
    attempts: frozenset[Attempt] = field(init=False)
    _text: str = ""
    _making: trio.Lock = field(factory=trio.Lock)

    def __attrs_post_init__(self) -> None:
        self.attempts = attempts_of(self.table.models)

    async def text(self) -> str:
        """As it is said on a link; made once, in a thread, since a large one takes a while."""
        async with self._making:
            if not self._text:
                self._text = await trio.to_thread.run_sync(encode, Routes(self.table))
        return self._text


@define(eq=False)
class Subscription:
    """One gateway: what it was given, and what it has taken."""

    who: Who
    address: str = ""
    until: float = inf
    """End of its certificate, seconds since 1970."""
    since: float = 0.0
    """When it came; seconds since 1970."""
    live: bool = True
    gone_at: float = 0.0
    """When it was last heard, once it is not live."""
    version: int = 0
    """Of the table that it has taken; 0: of none of ours."""
    attempts: frozenset[Attempt] | None = None
    """To which that table leads; `None`: it has taken none, and may go by one of before."""
    lingering: tuple[Lingering, ...] = ()
    behind_since: float | None = None
    """Since when it has not taken what there is; `None`: it has."""
    silent_since: Callable[[], float | None] = field(default=lambda: None)
    """Since when it was not heard, of one that is live."""
    _routes: RoutesBook = field(kw_only=True)
    _given: dict[int, Published] = field(factory=dict)
    """Those that it may still take."""
    _last: int = 0
    _ended: bool = False
    _news: trio.Event = field(factory=trio.Event)

    @property
    def name(self) -> str:
        name, instance = self.who
        return f"{name}/{instance[:8]}" if instance else name

    async def next_published(self) -> Published:
        """The latest table, as soon as it is another than the last one; raises `NoMoreTables`."""
        while not self._ended:
            latest = self._routes.latest
            if latest is not None and latest.table.version > self._last:
                self._last = latest.table.version
                self._given[self._last] = latest
                return latest
            await self._news.wait()
        raise NoMoreTables(f"{self.name} is told nothing any more")

    async def next_table(self) -> RouteTable:
        """The same, the table alone."""
        return (await self.next_published()).table

    def taken(self, version: int, lingering: Iterable[Lingering] = ()) -> None:
        """New requests go by this table only; what it does not know was not ours, and counts for nothing."""
        given = self._given.get(version)
        if given is None:
            return
        self._given = {number: each for number, each in self._given.items() if number >= version}
        kept = tuple(each for each in lingering if each.requests > 0)[:MOST_LINGERING]
        changed = (self.attempts, self.lingering) != (given.attempts, kept)
        is_another = version != self.version
        self.version, self.attempts, self.lingering = version, given.attempts, kept
        latest = self._routes.latest
        if latest is None or version >= latest.table.version:
            self.behind_since = None
        elif is_another or self.behind_since is None:  # to say the same again is not to follow
            self.behind_since = self._routes.now()
        if changed:
            self._routes.look_again()

    def notify(self, at: float) -> None:
        """There is a new table."""
        if self.behind_since is None:
            self.behind_since = at
        self._news.set()
        self._news = trio.Event()

    def close(self) -> None:
        """It is no gateway any more, and sends nothing anywhere: nobody waits for it."""
        self._end()
        self._routes.forget(self)

    def lose(self, last_heard: float) -> None:
        """Its link has ended; it may still send requests to where it last was told."""
        self._end()
        self.live, self.gone_at = False, last_heard
        self._routes.look_again()

    def ended_without(self, name: str) -> bool:
        """Whether it is of that name, and went without having taken a table."""
        return self.who[0] == name and not self.live and not self.version

    def _end(self) -> None:
        self._ended = True
        self._news.set()

    def observed(self) -> ObservedGateway:
        silent = [self.silent_since() if self.live else self.gone_at, self.behind_since]
        return ObservedGateway(
            self.name,
            self.attempts,
            {(each.replica, each.generation): each.requests for each in self.lingering},
            min((at for at in silent if at is not None), default=None),
        )


@define(eq=False)
class RoutesBook:
    """All gateways, and the latest table."""

    now: Callable[[], float]
    """Seconds since 1970."""
    look_again: Callable[[], None]
    """To be called when something changed of which the planner may make something."""
    latest: Published | None = None
    subscriptions: dict[Who, Subscription] = field(factory=dict)
    keys: tuple[UserKey, ...] = ()
    _models: tuple[ModelRoute, ...] = ()

    @property
    def version(self) -> int:
        """Of the latest table; 0: there is none."""
        return self.latest.table.version if self.latest is not None else 0

    def load(self, known: Iterable[Who], started: float) -> None:
        """Those that were there when the control plane last went: what they go by now is not known."""
        for who in known:
            self.subscriptions[who] = Subscription(who, live=False, gone_at=started, routes=self)

    def publish(self, models: tuple[ModelRoute, ...], created: Mapping[str, float]) -> None:
        """Where requests may go from now on, if it is anything new. `created`: by model, when it was first applied."""
        if self.latest is None or self._models != models:
            self._models = models
            dated = tuple(evolve(each, created=int(created.get(each.name, 0))) for each in models)
            self._publish(dated, self.keys)

    def publish_keys(self, keys: tuple[UserKey, ...]) -> None:
        """Who may send requests from now on, at once."""
        self.keys = keys
        if self.latest is not None and self.latest.table.keys != keys:
            self._publish(self.latest.table.models, keys)

    def _publish(self, models: tuple[ModelRoute, ...], keys: tuple[UserKey, ...]) -> None:
        now = self.now()
        self.latest = Published(RouteTable(max(int(now * 1000), self.version + 1), models, keys), now)
        for each in self.subscriptions.values():
            if each.live:
                each.notify(now)

    def subscribe(self, name: str, instance: str = "", address: str = "", until: float = inf) -> Subscription:
        """A gateway that is there now; one with the same name and instance is the same, and this is its newer life."""
        who = (name, instance)
        made = Subscription(who, address, until, since=self.now(), routes=self)
        older = self.subscriptions.get(who)
        if older is not None:
            older._end()
        if older is not None and instance:
            made.attempts, made.lingering = older.attempts, older.lingering
        if self.latest is not None:
            made.behind_since = self._behind_since(who)
        self.subscriptions[who] = made
        self.look_again()
        return made

    def _behind_since(self, who: Who) -> float:
        """Since when a gateway that comes takes no table: lives that ended without one count, its own and its name's.

        Else one that crashes again and again, at its table perhaps, would be waited for for ever.
        """
        lives = [each for each in self.subscriptions.values() if each.who == who or each.ended_without(who[0])]
        return min((each.behind_since for each in lives if each.behind_since is not None), default=self.now())

    def forget(self, subscription: Subscription) -> None:
        """Unless it has come again since."""
        if self.subscriptions.get(subscription.who) is subscription:
            del self.subscriptions[subscription.who]
            self.look_again()

    def forget_silent(self, patience_s: float) -> list[Who]:
        """Those that went so long ago that nobody waits for them: they are forgotten, once that could be told."""
        last = self.now() - patience_s - TELL_S
        past = [each for each in self.subscriptions.values() if not each.live and each.gone_at <= last]
        for each in past:
            del self.subscriptions[each.who]
        return [each.who for each in past]

    def observed(self) -> tuple[ObservedGateway, ...]:
        return tuple(self.subscriptions[who].observed() for who in sorted(self.subscriptions))
