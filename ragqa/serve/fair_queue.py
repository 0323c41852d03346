"""Queue in which clients take turns, so that a large request does not hold up the others."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

MAX_OPEN = 256
"""Maximum number of open requests; each holds its body and a part of its response in memory."""
MAX_OPEN_PER_CLIENT = 128
"""Maximum number of open requests of one client, so that one machine cannot fill the queue."""


class QueueFull(Exception):
    """Error for too many open requests of one client (``of_client``), or of all clients."""

    def __init__(self, of_client: bool) -> None:
        super().__init__()
        self.of_client = of_client


class FairQueue:
    """Queue in which clients, usually IP addresses, take turns.

    A request enters once, and then waits for a turn for each piece of its work. Turns rotate among the waiting clients,
    so that a small request does not wait until a large request of another client is complete.

    Args:
        turns: number of pieces of work that run at once; 0 for a queue that only counts open requests.
        max_open: maximum number of open requests.
        max_open_per_client: maximum number of open requests of one client.
    """

    def __init__(self, turns: int, max_open: int = MAX_OPEN, max_open_per_client: int = MAX_OPEN_PER_CLIENT) -> None:
        self._free, self._max_open, self._max_open_per_client = turns, max_open, max_open_per_client
        self._open = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting pieces of work by client; the first client has the next turn."""

    @contextmanager
    def enter(self, client: str) -> Iterator[None]:
        """Count a request of ``client`` as open while the block runs.

        Raises:
            QueueFull: too many requests are open.
        """
        if self._open[client] >= self._max_open_per_client:
            raise QueueFull(of_client=True)
        if self._open.total() >= self._max_open:
            raise QueueFull(of_client=False)
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            self._open += Counter()  # drops clients without open requests

    @asynccontextmanager
    async def take_turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn of ``client``; the turn lasts as long as the block."""
        if self._free:
            self._free -= 1
        else:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(client, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # the request got its turn and was cancelled at the same time
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give a turn that has ended to the next waiting client; free it if nobody waits."""
        while self._waiting:
            client = next(iter(self._waiting))
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns  # behind the other clients
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
